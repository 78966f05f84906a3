"""One update is the same however it is divided, and the records of a run say what happened."""

import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from made_pairs import read_pair
from torch import Tensor
from torch.nn import functional
from watched_trainer import CONFIG, SHAPE, VOCAB_SIZE

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.data.batches import Position, plan_updates
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.train import gradient


def naive_gradient(model: TranslationModel, store: TokenStore, pairs: list[int], smoothing: float) -> Tensor:
    """The gradient of the mean smoothed loss over all target tokens, a pair at a time, by torch's own loss."""
    total, tokens = torch.zeros(()), 0
    for pair in pairs:
        src, tgt = (ids.tolist() for ids in read_pair(store, pair))
        logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
        targets = torch.tensor([*tgt, EOS_ID])
        total = total + functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        tokens += len(targets)
    return torch.cat([g.flatten() for g in torch.autograd.grad(total / tokens, list(model.parameters()))])


@pytest.mark.parametrize("few_shapes", [False, True])  # as on a CPU, and with the empty rows and places of a GPU
@pytest.mark.parametrize("max_tokens", [1_000, 60, 17, 1])  # one micro-batch; several; one for each pair
def test_an_update_is_the_mean_over_its_target_tokens_however_it_is_divided(
    max_tokens: int,
    few_shapes: bool,
    monkeypatch: pytest.MonkeyPatch,
    watched: Any,
    model_of: Callable[..., TranslationModel],
    store_of: Callable[..., TokenStore],
) -> None:
    monkeypatch.setattr(gradient, "_wants_few_shapes", lambda _: few_shapes)
    run = watched(max_tokens=max_tokens, max_updates=1, label_smoothing=0.2, with_valid=False)
    run.trainer.train()
    store = store_of(90)
    update = next(plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position()))
    expected = naive_gradient(model_of(), store, update.pairs.tolist(), 0.2)
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
    watched: Any, tmp_path: Path, store_of: Callable[..., TokenStore]
) -> None:
    run = watched(max_updates=4, log_every_steps=2, save_every_steps=4, with_valid=False)
    run.trainer.train()
    store, plan = store_of(90), plan_updates(store_of(90), CONFIG.batch_tokens, CONFIG.seed, Position())
    cost = TrainingCost(SHAPE, VOCAB_SIZE)
    flops = [
        cost.update_flops(
            store.lengths(range(len(store)), "src")[u.pairs], store.lengths(range(len(store)), "tgt")[u.pairs]
        )
        for u in islice(plan, 4)
    ]
    first, second = (r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "train")
    assert (first["flops"], second["flops"]) == (sum(flops[:2]), sum(flops))
    assert run.trainer.state.flops == sum(flops)
    per_second = second["mfu"] * 2e9 / sum(flops[2:])  # 1 / seconds of the last two updates
    assert per_second * _tokens_of_updates(store, 2, 4) == pytest.approx(second["tokens_per_second"])


def _tokens_of_updates(store: TokenStore, first: int, last: int) -> int:
    plan = plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position())
    return sum(update.tgt_tokens for update in islice(plan, first, last))


def test_the_logged_loss_is_per_target_token_and_without_smoothing(
    watched: Any, tmp_path: Path, model_of: Callable[..., TranslationModel], store_of: Callable[..., TokenStore]
) -> None:
    watched(max_updates=1, max_tokens=30, label_smoothing=0.4).trainer.train()
    logged = next(record for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "train")
    store, model = store_of(90), model_of()
    update = next(plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position()))
    total, tokens = 0.0, 0
    with torch.no_grad():
        for pair in update.pairs.tolist():
            src, tgt = (ids.tolist() for ids in read_pair(store, pair))
            logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
            total += float(functional.cross_entropy(logits, torch.tensor([*tgt, EOS_ID]), reduction="sum"))
            tokens += len(tgt) + 1
    assert logged["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert logged["pairs"] == len(update.pairs)


def test_the_position_moves_through_the_data_and_over_its_end(
    watched: Any, store_of: Callable[..., TokenStore]
) -> None:
    run = watched(max_updates=7, with_valid=False)
    run.trainer.train()
    store, state = store_of(90), run.trainer.state
    updates = [
        u for u, _ in zip(plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position()), range(7), strict=False)
    ]
    assert state.position == updates[-1].after
    assert state.position.epoch >= 1
    assert state.tgt_tokens == sum(update.tgt_tokens for update in updates)
