"""Compiled layers compute what the others do in a bounded number of graphs, and batches take few shapes."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn
from watched_trainer import SHAPE, VOCAB_SIZE

from aiayn_cli.data.batches import Indices, Position, plan_updates, pool_pairs_for, split_update
from aiayn_cli.data.collate import Shape
from aiayn_cli.data.store import SIDES, Side, TokenStore
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import Compile
from aiayn_cli.train import compilation, gradient
from aiayn_cli.train.compilation import compile_layers, few_counts, few_shapes, problem_with_graphs, without_graphs
from aiayn_cli.train.gradient import teacher_forced
from aiayn_cli.train.loss import smoothed_cross_entropy

CPU = torch.device("cpu")
Backend = Callable[..., None]
Compiled = list[tuple[nn.Module, str | None]]
StoreOf = Callable[..., TokenStore]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Chooses how traced graphs are run, never by compiled C++, which takes a minute; and whether sizes are symbols."""
    compile_module, limit = nn.Module.compile, torch._dynamo.config.recompile_limit

    def choose(name: str, *, symbols: bool = True) -> None:
        def chosen(self: nn.Module, dynamic: bool, mode: str | None) -> None:
            compile_module(self, backend=name, dynamic=dynamic and symbols)

        monkeypatch.setattr(nn.Module, "compile", chosen)

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield choose
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = limit


def a_model(layers: int) -> TranslationModel:
    torch.manual_seed(2)
    return build_model(replace(SHAPE, n_encoder_layers=layers, n_decoder_layers=layers, dropout=0.0), VOCAB_SIZE)


def learn(model: TranslationModel, store: TokenStore, pairs: Indices) -> float:
    """The loss of some pairs; its gradients stay in the weights."""
    hidden, targets = teacher_forced(model, store, pairs, CPU)
    loss, _ = smoothed_cross_entropy(hidden, model.output.weight, targets, 0.1)
    loss.backward()
    return loss.item()


def an_epoch(model: TranslationModel, store: TokenStore) -> list[tuple[torch.Size, float]]:
    """Shape of the sources and loss of each batch of an epoch, of about as many tokens each."""
    shapes: list[torch.Size] = []
    losses = []
    encode = type(model).encode
    model.encode = lambda src, mask: shapes.append(src.shape) or encode(model, src, mask)  # type: ignore[method-assign]
    for update in plan_updates(store, 100, 3, Position()):
        losses.append(learn(model, store, update.pairs))
        if update.after.epoch:
            break
    return list(zip(shapes, losses, strict=True))


def test_an_epoch_of_any_shapes_takes_a_few_graphs_and_gives_the_same_losses(
    backend: Backend, store_of: StoreOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend("eager")
    monkeypatch.setattr(gradient, "_wants_few_shapes", lambda _: True)  # as on a GPU
    store, model, plain = store_of(90, longest=30), a_model(2), a_model(2)
    assert compile_layers(model, "on", CPU)
    found, expected = an_epoch(model, store), an_epoch(plain, store)
    assert len({shape for shape, _ in found}) > 8
    assert found == [(shape, pytest.approx(loss, rel=1e-4)) for shape, loss in expected]
    stats = torch._dynamo.utils.counters["stats"]
    # One of the encoder and one of the decoder, and each again if two sizes of the first batch happened to be equal,
    # which torch takes for a rule: not one for each of the four layers, nor for each shape.
    assert 2 <= stats["unique_graphs"] <= 4
    assert not torch._dynamo.utils.counters["graph_break"]


def test_compiled_layers_have_the_loss_and_the_gradients_of_plain_ones(
    backend: Backend, store_of: StoreOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend("aot_eager", symbols=False)  # all but the last step: the backward pass is traced too
    monkeypatch.setattr(gradient, "_wants_few_shapes", lambda _: True)
    store, models = store_of(12, longest=30), [a_model(1), a_model(1)]
    compile_layers(models[0], "on", CPU)
    assert [model.is_compiled for model in models] == [True, False]
    losses = [learn(model, store, np.arange(12)) for model in models]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert losses[0] == pytest.approx(losses[1], rel=1.3e-6)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """Layers that were to be compiled, and in which mode; none is."""
    found = Compiled()
    monkeypatch.setattr(nn.Module, "compile", lambda self, dynamic, mode: found.append((self, mode)))
    return found


@pytest.mark.parametrize(
    ("wanted", "device", "expected"),
    [
        ("off", "cuda", False), ("off", "cpu", False), ("auto", "cpu", False), ("auto", "cuda", True),
        ("on", "cpu", True), ("graphs", "cpu", False), ("graphs", "cuda", True),
    ],
)  # fmt: skip
def test_auto_and_graphs_compile_on_a_gpu_only(
    wanted: Compile, device: str, expected: bool, compiled: Compiled, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(compilation, "problem_with_graphs", lambda _: "")
    model = a_model(2)
    assert compile_layers(model, wanted, torch.device(device)) is expected
    mode = "reduce-overhead" if wanted == "graphs" else None
    assert compiled == ([(layer, mode) for layer in (*model.encoder_layers, *model.decoder_layers)] if expected else [])
    assert model.replays_graphs == ((wanted, device) == ("graphs", "cuda"))
    assert ("CUDA graphs need a GPU, but the device is cpu" in capsys.readouterr().err) == (
        (wanted, device) == ("graphs", "cpu")
    )


def test_where_cuda_graphs_do_not_work_layers_are_compiled_without_them(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compilation, "problem_with_graphs", lambda _: "no kernel image")
    model = a_model(1)
    assert compile_layers(model, "graphs", torch.device("cuda"))
    assert [mode for _, mode in compiled] == [None, None]
    assert not model.replays_graphs
    assert "CUDA graphs do not work here (no kernel image)" in capsys.readouterr().err


def test_what_is_wrong_with_cuda_graphs_is_found_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors might be ...")

    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    monkeypatch.setattr(torch, "compile", lambda layer, **_: layer)
    assert problem_with_graphs(CPU) == ""
    monkeypatch.setattr(torch, "compile", lambda layer, **_: lambda x: layer(x) + 1)
    assert problem_with_graphs(CPU) == "a replayed layer gives other numbers"
    monkeypatch.setattr(torch, "compile", fail)
    assert problem_with_graphs(CPU) == "operation not permitted when stream is capturing"


def test_each_batch_is_a_pass_of_its_own_where_graphs_are_replayed(
    store_of: StoreOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[None] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(None))
    model, store = a_model(1), store_of(30)
    an_epoch(model, store)
    assert not marks
    model.replays_graphs = True
    assert len(an_epoch(model, store)) == len(marks) > 1


def test_what_has_many_shapes_runs_without_graphs(
    backend: Backend, store_of: StoreOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend("eager")
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: None)
    model, store = a_model(1), store_of(5)
    compile_layers(model, "on", CPU)
    model.replays_graphs = True
    with without_graphs(model):
        an_epoch(model, store)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 0


lengths = st.integers(1, 2_000)


class LengthsAlone:
    """What planning reads of a store: lengths as cleaned corpora have them, log-normal, and similar on both sides."""

    def __init__(self, pairs: int, median: float) -> None:
        random = np.random.default_rng(3)
        src = np.clip(random.lognormal(np.log(median), 0.6, pairs), 1, 250)
        self.sides = {"src": src.astype(np.int32)}
        self.sides["tgt"] = np.clip(src * random.lognormal(0.03, 0.17, pairs), 1, 250).astype(np.int32)

    def __len__(self) -> int:
        return len(self.sides["src"])

    def lengths(self, pairs: Indices, side: Side) -> NDArray[np.int32]:
        return self.sides[side][pairs]


@given(pairs=st.integers(1, 30_000), src=lengths, tgt=lengths, room=st.integers(0, 400))
def test_a_shape_holds_the_batch_and_is_little_larger(pairs: int, src: int, tgt: int, room: int) -> None:
    longest = max(src, tgt) + room
    found = few_shapes(Shape(pairs, src, tgt), longest)
    assert pairs <= found.pairs <= pairs * 33 / 32 + 3
    assert found.pairs % 4 == 0
    for needed, length in ((src, found.src_length), (tgt, found.tgt_length)):
        assert needed <= length <= min(longest, max(8, needed * 9 / 8))
    assert max(found[1:]) <= max(8, max(src, tgt) * 33 / 32)
    assert few_shapes(found, longest) == found


@given(tokens=st.integers(1, 200_000))
def test_counts_of_tokens_are_little_larger(tokens: int) -> None:
    assert tokens <= few_counts(tokens) <= tokens * 33 / 32
    assert few_counts(few_counts(tokens)) == few_counts(tokens)


def batches_of(store: LengthsAlone, batch_tokens: int, epochs: int) -> Iterator[tuple[int, Shape, int]]:
    """Each batch of some epochs: the epoch, its shape, and tokens on both sides."""
    plan = plan_updates(store, batch_tokens, 1, Position(), pool_pairs_for(batch_tokens))  # type: ignore[arg-type]
    epoch = 0
    for update in plan:
        for part in split_update(store, update.pairs, batch_tokens):  # type: ignore[arg-type]
            src, tgt = (store.lengths(part, side) + 1 for side in SIDES)
            yield epoch, Shape(len(part), int(src.max()), int(tgt.max())), int(src.sum() + tgt.sum())
        epoch = update.after.epoch
        if epoch == epochs:
            return


def test_padding_of_the_base_recipe_is_below_5_percent() -> None:
    places = tokens = 0
    for _, exact, count in batches_of(LengthsAlone(524_288, median=23), 25_000, epochs=1):
        shape = few_shapes(exact, 251)
        places += shape.pairs * (shape.src_length + shape.tgt_length)
        tokens += count
    assert 1 - tokens / places < 0.05


def test_epochs_that_are_cut_in_other_places_bring_hardly_any_new_shapes() -> None:
    few: list[set[Shape]] = [set() for _ in range(6)]
    exact: list[set[Shape]] = [set() for _ in range(6)]
    for epoch, shape, _ in batches_of(LengthsAlone(100_000, median=12), 4_096, epochs=6):
        exact[epoch].add(shape)
        few[epoch].add(few_shapes(shape, 251))

    def new_in_the_second_half(shapes: list[set[Shape]]) -> float:
        before = set().union(*shapes[:3])
        return len(set().union(*shapes[3:]) - before) / len(before)

    assert len(set().union(*few)) < 0.5 * len(set().union(*exact))
    assert new_in_the_second_half(few) < 0.2 < new_in_the_second_half(exact)
