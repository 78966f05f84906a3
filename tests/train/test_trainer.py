"""One update is the same however it is divided, asks a device for no number, and the records say what happened.

There is no GPU here. torch's meta device has shapes and no numbers: whoever asks it for one gets an error.
"""

import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from watched_trainer import CONFIG, SHAPE, VOCAB_SIZE, mean_loss

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.data.batches import Position, Update, plan_updates
from aiayn_cli.data.store import SIDES, TokenStore
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.train import gradient
from aiayn_cli.train import optimizer as optimizer_module
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.validation import validation_loss

StoreOf = Callable[..., TokenStore]
ModelOf = Callable[..., TranslationModel]


def updates_of(store: TokenStore, n: int) -> list[Update]:
    """The first updates of a run of CONFIG."""
    return list(islice(plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position()), n))


@pytest.mark.parametrize("few_shapes", [False, True])  # as on a CPU, and with the empty rows and places of a GPU
@pytest.mark.parametrize("max_tokens", [1_000, 60, 17, 1])  # one micro-batch; several; one for each pair
def test_an_update_is_the_mean_over_its_target_tokens_however_it_is_divided(
    max_tokens: int, few_shapes: bool, monkeypatch: pytest.MonkeyPatch, watched: Any, model_of: ModelOf,
    store_of: StoreOf,
) -> None:  # fmt: skip
    monkeypatch.setattr(gradient, "_wants_few_shapes", lambda _: few_shapes)
    run = watched(max_tokens=max_tokens, max_updates=1, label_smoothing=0.2, with_valid=False)
    run.trainer.train()
    store, model = store_of(90), model_of()
    loss = mean_loss(model, store, updates_of(store, 1)[0].pairs, smoothing=0.2)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(run.gradients[0], expected, rtol=1e-4, atol=1e-6)


def test_dropout_depends_on_the_place_in_the_run_alone(watched: Any) -> None:
    runs = [watched(dropout=0.3, max_updates=n, max_tokens=40) for n in (2, 3)]
    for run in runs:
        torch.manual_seed(len(run.saves) + id(run) % 100)  # whatever was drawn before
        run.trainer.train()
    assert torch.equal(runs[0].gradients[0], runs[1].gradients[0])
    assert torch.equal(runs[0].gradients[1], runs[1].gradients[1])
    other_seed = watched(dropout=0.3, max_updates=1, max_tokens=40, seed=6)
    other_seed.trainer.train()
    assert not torch.equal(runs[0].gradients[0], other_seed.gradients[0])


def test_no_two_micro_batches_of_a_run_have_the_same_dropout(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: dict[int, list[int]] = {5: [], 6: []}
    for seed, drawn in seeds.items():
        run = watched(dropout=0.3, max_updates=6, max_tokens=40, seed=seed, with_valid=False)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "manual_seed", drawn.append)
            run.trainer.train()
        assert len(set(drawn)) == len(drawn) > 12  # several for each update
    assert not set(seeds[5]) & set(seeds[6])


def test_bf16_learns_what_float32_learns(watched: Any) -> None:
    single, half = watched(max_updates=1, max_tokens=50), watched(max_updates=1, max_tokens=50, dtype=torch.bfloat16)
    single.trainer.train()
    half.trainer.train()
    difference = float((single.gradients[0] - half.gradients[0]).norm() / single.gradients[0].norm())
    assert difference < 0.06  # of a network 16 wide; two roundings to 8 bits are 0.004 each


def test_training_learns(watched: Any, tmp_path: Path) -> None:
    run = watched(max_updates=150, batch_tokens=400, learning_rate_scale=0.2, warmup_steps=30, save_every_steps=150)
    run.trainer.train()
    losses = [record["loss"] for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "train"]
    assert losses[0] == pytest.approx(math.log(31), abs=0.8)  # as good as guessing
    assert losses[-1] < 0.7 * losses[0]


def test_a_gradient_is_cut_to_the_norm_and_a_smaller_one_is_left_alone(watched: Any, tmp_path: Path) -> None:
    free = watched(max_updates=1)
    free.trainer.train()
    norm = float(free.gradients[0].norm())
    for clip_norm, expected in ((norm / 3, free.gradients[0] / 3), (norm * 1.01, free.gradients[0])):
        run = watched(max_updates=1, clip_norm=clip_norm)
        run.trainer.train()
        torch.testing.assert_close(run.gradients[0], expected)
        record = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "train"][-1]
        assert record["gradient_norm"] == pytest.approx(norm)  # the log has the norm before cutting


def test_records_are_complete_and_finite(watched: Any, tmp_path: Path) -> None:
    run = watched(max_updates=5, log_every_steps=2)
    run.trainer.train()
    records = read_metrics(tmp_path / "metrics.jsonl")
    train = [record for record in records if record["event"] == "train"]
    assert [record["step"] for record in train] == [2, 4, 5]
    fields = {
        "event", "time", "step", "epoch", "seconds", "loss", "perplexity", "learning_rate", "gradient_norm",
        "tokens_per_second", "mfu", "pairs", "flops", "skipped",
    }  # fmt: skip
    for record in train:
        assert record.keys() == fields
        assert all(math.isfinite(value) for name, value in record.items() if name != "event")
        assert record["perplexity"] == pytest.approx(math.exp(record["loss"]))
    validations = [record for record in records if record["event"] == "validation"]
    assert [record["step"] for record in validations] == [2, 4, 5]
    assert all(math.isfinite(record[name]) for record in validations for name in ("loss", "perplexity", "seconds"))
    assert all(record["bleu"] is None for record in validations)


def test_operations_are_counted_over_the_whole_run_and_mfu_is_their_share_of_the_rate(
    watched: Any, tmp_path: Path, store_of: StoreOf
) -> None:
    run = watched(max_updates=4, log_every_steps=2, save_every_steps=4, with_valid=False)
    run.trainer.train()
    store, cost = store_of(90), TrainingCost(SHAPE, VOCAB_SIZE)
    updates = updates_of(store, 4)
    flops = [cost.update_flops(*(store.lengths(update.pairs, side) for side in SIDES)) for update in updates]
    first, second = (r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "train")
    assert (first["flops"], second["flops"]) == (sum(flops[:2]), sum(flops))
    assert run.trainer.state.flops == sum(flops)
    per_second = second["mfu"] * 2e9 / sum(flops[2:])  # 1 / seconds of the last two updates
    tokens = sum(update.tgt_tokens for update in updates[2:])
    assert per_second * tokens == pytest.approx(second["tokens_per_second"])


def test_the_logged_loss_is_per_target_token_and_without_smoothing(
    watched: Any, tmp_path: Path, model_of: ModelOf, store_of: StoreOf
) -> None:
    watched(max_updates=1, max_tokens=30, label_smoothing=0.4).trainer.train()
    logged = next(record for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "train")
    store = store_of(90)
    [update] = updates_of(store, 1)
    assert logged["loss"] == pytest.approx(mean_loss(model_of(), store, update.pairs).item(), rel=1e-5)
    assert logged["pairs"] == len(update.pairs)


def test_the_position_moves_through_the_data_and_over_its_end(watched: Any, store_of: StoreOf) -> None:
    run = watched(max_updates=7, with_valid=False)
    run.trainer.train()
    state, updates = run.trainer.state, updates_of(store_of(90), 7)
    assert state.position == updates[-1].after
    assert state.position.epoch >= 1
    assert state.tgt_tokens == sum(update.tgt_tokens for update in updates)


# ---- no waiting for a device


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_an_update_asks_for_no_number(
    dtype: torch.dtype, clip_norm: float, watched: Any, store_of: StoreOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer_module, "adam", lambda *_, **__: None)  # the fused one refuses the meta device
    settings = {"dtype": dtype, "clip_norm": clip_norm, "max_tokens": 60, "dropout": 0.1, "with_valid": False}
    trainer = watched(device="meta", **settings).trainer
    for update in updates_of(store_of(90), 4):  # with padding and without, in several micro-batches
        trainer._update(update)
    assert trainer.state.step == 4


def test_what_is_known_late_is_counted_all_the_same(watched: Any) -> None:
    trainer = watched(max_updates=5, log_every_steps=2, save_every_steps=5, with_valid=False).trainer
    trainer._readback._lag = 1  # as on a GPU
    limit_norm, count = trainer.optimizer.limit_norm, iter(range(5))

    def spoiling(*limits: float) -> tuple[Tensor, Tensor]:
        if next(count) == 2:
            trainer.optimizer.gradient[0] = torch.nan
        return limit_norm(*limits)

    trainer.optimizer.limit_norm = spoiling
    assert trainer.train() == "max_updates"
    assert trainer.state.skipped == 1


# ---- validation


@pytest.mark.parametrize("max_tokens", [1, 30, 10_000])
def test_the_validation_loss_is_that_of_each_sentence_by_itself(
    max_tokens: int, model_of: ModelOf, store_of: StoreOf
) -> None:
    model, store = model_of(dropout=0.5), store_of(23)
    loss = validation_loss(model, store, max_tokens, Worker())
    assert loss == pytest.approx(mean_loss(model.eval(), store, range(23)).item(), rel=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_validation_leaves_the_model_as_it_was(training: bool, model_of: ModelOf, store_of: StoreOf) -> None:
    model = model_of(dropout=0.5).train(training)
    before = torch.get_rng_state()
    results = {validation_loss(model, store_of(5), 100, Worker()) for _ in range(2)}
    assert len(results) == 1  # dropout was off
    assert model.training is training
    assert all(layer.training is training for layer in model.modules())
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())
