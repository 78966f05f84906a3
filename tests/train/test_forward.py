"""Packed and padded batches are the same to the model: hidden states, loss and gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_pairs import write_store

from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import ModelConfig
from aiayn_cli.train import gradient
from aiayn_cli.train.gradient import teacher_forced
from aiayn_cli.train.loss import smoothed_cross_entropy

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

_VOCAB, _CPU = 60, torch.device("cpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    random = np.random.default_rng(0)
    lengths = [random.integers(0, 22, 30).astype(np.int32) for _ in range(2)]
    tokens = [random.integers(4, _VOCAB, x.sum()).astype(np.uint16) for x in lengths]
    return write_store(tmp_path_factory.mktemp("store"), "train", tokens[0], lengths[0], tokens[1], lengths[1])


def _model(dtype: torch.dtype = torch.float64, **changes: Any) -> TranslationModel:
    torch.manual_seed(0)
    shape = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 4, "d_v": 4}
    return build_model(ModelConfig(**{**shape, "dropout": 0, **changes}), _VOCAB).to(dtype)


def _loss_and_gradients(
    model: TranslationModel, store: TokenStore, pairs: np.ndarray[Any, np.dtype[np.int64]]
) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    hidden, targets = teacher_forced(model, store, pairs, _CPU)
    loss, _ = smoothed_cross_entropy(hidden, model.output.weight, targets, 0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return hidden[: len(targets)], targets, gradients


@pytest.fixture
def padded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on nothing is packed."""
    return lambda: monkeypatch.setattr(gradient, "_LONGEST_PACKED", 0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre"},
        {"attention_window": 2},
        {"attention_bias": True, "positions": "learned", "max_positions": 40},
        {"share_embeddings": "none"},
        {"share_embeddings": "decoder", "d_k": 6, "d_v": 6},
    ],
    ids=str,
)
def test_packed_and_padded_give_one_result(
    changes: dict[str, Any], store: TokenStore, padded: Callable[[], None]
) -> None:
    model, pairs = _model(**changes), np.arange(30)[::-1].copy()
    assert model.reads_packed
    hidden, targets, gradients = _loss_and_gradients(model, store, pairs)
    assert len(targets) == store.lengths(range(len(store)), "tgt")[pairs].sum() + len(pairs)
    padded()
    other_hidden, other_targets, other_gradients = _loss_and_gradients(model, store, pairs)
    assert torch.equal(targets, other_targets)
    torch.testing.assert_close(hidden, other_hidden)
    assert gradients.keys() == other_gradients.keys() == dict(model.named_parameters()).keys()
    for name, found in gradients.items():
        torch.testing.assert_close(found, other_gradients[name], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "changes",
    [
        {"d_v": 5},
        {"attention_window": 2, "d_v": 5},
        {"positions": "learned", "max_positions": 22},
        {"kind": "recurrent"},
        {"kind": "convolutional"},
    ],
    ids=str,
)
def test_empty_rows_and_places_change_nothing(
    changes: dict[str, Any], store: TokenStore, padded: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    padded()
    model, pairs = _model(**changes), np.arange(3, 30)
    exact = _loss_and_gradients(model, store, pairs)
    shapes: list[torch.Size] = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda src, mask: shapes.append(src.shape) or encode(src, mask))
    monkeypatch.setattr(gradient, "_wants_few_shapes", lambda _: True)
    hidden, targets, gradients = _loss_and_gradients(model, store, pairs)
    assert shapes == [(28, 22)]
    assert torch.equal(targets, exact[1])
    torch.testing.assert_close(hidden, exact[0])
    for name, found in gradients.items():
        torch.testing.assert_close(found, exact[2][name], rtol=1e-6, atol=1e-8)


def test_bf16_packed_is_as_near_to_float64_as_bf16_padded(store: TokenStore, padded: Callable[[], None]) -> None:
    pairs = np.arange(30)
    exact = _loss_and_gradients(_model(), store, pairs)[2]

    def error() -> float:
        rounded = _loss_and_gradients(_model(torch.bfloat16), store, pairs)[2]
        return sum(float((rounded[name].double() - exact[name]).norm() / exact[name].norm()) for name in exact)

    packed_error = error()
    padded()
    assert packed_error < 1.2 * error()


def test_long_sentences_are_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = [(np.full(n, 7, np.uint16), np.array([n], np.int32)) for n in (600, 3)]
    store = write_store(tmp_path, "train", *sides[0], *sides[1])
    model = _model()
    monkeypatch.setattr(model, "decode_packed", lambda *_: pytest.fail("packed"))
    hidden, targets = teacher_forced(model, store, np.array([0]), _CPU)
    assert (len(hidden), len(targets)) == (4, 4)


def test_dropout_in_a_packed_batch_is_drawn_anew_and_repeats_with_the_seed(store: TokenStore) -> None:
    model = _model(dropout=0.3, attention_dropout=0.2, activation_dropout=0.2).train()
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(_loss_and_gradients(model, store, np.arange(12))[0])
    assert torch.equal(runs[0], runs[1])
    assert not torch.allclose(runs[0], runs[2])
