"""Compiled layers compute what the others do, in a number of graphs that does not grow with shapes or layers."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aiayn_cli.config import Compile, ModelConfig
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.training.compilation import compile_layers, is_compiled
from aiayn_cli.training.forward import teacher_forced


@pytest.fixture
def _fast_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trace graphs as always, and run them without compiling C++, which takes a minute."""
    compile_module, limit = nn.Module.compile, torch._dynamo.config.recompile_limit
    monkeypatch.setattr(nn.Module, "compile", lambda self, **how: compile_module(self, backend="eager", **how))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = limit


def a_model(layers: int) -> TranslationModel:
    torch.manual_seed(2)
    shape = ModelConfig(
        n_encoder_layers=layers, n_decoder_layers=layers, d_model=8, d_ff=12, n_heads=2, d_k=3, d_v=5, dropout=0
    )
    return build_model(shape, 31)


def logits(model: TranslationModel, sentences: int, src_len: int, tgt_len: int, padded: bool) -> Tensor:
    random = torch.Generator().manual_seed(src_len)
    src, tgt = (torch.randint(4, 23, (sentences, length), generator=random) for length in (src_len, tgt_len))
    mask = torch.ones(sentences, src_len, dtype=torch.bool)
    mask[0, src_len // 2 + 1 :] = False
    return model(src, mask if padded else None, tgt)


@pytest.mark.usefixtures("_fast_backend")
def test_any_shapes_share_a_few_graphs_and_the_numbers_are_the_same() -> None:
    model, plain = a_model(2), a_model(2)
    assert compile_layers(model, "on", torch.device("cpu"))
    shapes = [(s, n, m) for s in (2, 3, 5) for n, m in ((4, 5), (9, 7), (12, 12), (17, 3))]
    for sentences, src_len, tgt_len in shapes:
        for padded in (True, False):
            found = logits(model, sentences, src_len, tgt_len, padded)
            torch.testing.assert_close(found, logits(plain, sentences, src_len, tgt_len, padded))
            found.sum().backward()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert (
        graphs == 4
    )  # encoder and decoder, with and without padding: of 24 batches and 4 layers; one for each would be 96
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.usefixtures("_fast_backend")
def test_a_compiled_model_learns_what_a_plain_one_does(store_of: Callable[..., TokenStore]) -> None:
    store, pairs = store_of(12), np.arange(12)
    hidden = []
    for wanted in ("on", "off"):
        model = a_model(1)
        compile_layers(model, wanted, torch.device("cpu"))
        assert is_compiled(model) == (wanted == "on")
        found, targets = teacher_forced(model, store, pairs, torch.device("cpu"))
        hidden.append(found[: len(targets)].sort(dim=0).values)  # pairs and their rows come in another order
    torch.testing.assert_close(*hidden)


@pytest.mark.parametrize(
    ("wanted", "device", "expected"),
    [("off", "cuda", False), ("off", "cpu", False), ("auto", "cpu", False), ("auto", "cuda", True)],
)
def test_auto_compiles_on_a_gpu_only(
    wanted: Compile, device: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: compiled.append(self))
    model = a_model(2)
    assert compile_layers(model, wanted, torch.device(device)) is expected
    assert compiled == ([*model.encoder_layers, *model.decoder_layers] if expected else [])
