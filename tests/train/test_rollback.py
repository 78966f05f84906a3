"""An update without a usable gradient is left out and counted; after ten in a row training goes back."""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from watched_trainer import CONFIG, Watched

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.data.batches import Position, plan_updates
from aiayn_cli.errors import AiaynError
from aiayn_cli.train.optimizer import learning_rate
from aiayn_cli.train.resume import TrainingState


def spoil(run: Watched, updates: Iterable[int], value: float = math.nan) -> None:
    """Make the gradients of some updates, counted from 1, not finite."""
    optimizer, count = run.trainer.optimizer, iter(range(1, 1_000))
    accumulate = optimizer.accumulate

    def spoilt() -> None:
        accumulate()
        if next(count) in updates:
            optimizer.gradient[7] = value

    optimizer.accumulate = spoilt  # type: ignore[method-assign]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_without_a_finite_gradient_is_left_out_and_counted(
    value: float, watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=3, save_every_steps=3, with_valid=False)
    before = {name: weight.clone() for name, weight in run.weights.items()}
    spoil(run, range(1, 3), value)
    assert run.trainer.train() == "max_updates"
    records = read_metrics(tmp_path / "metrics.jsonl")
    alone = watched(max_updates=3, save_every_steps=3, with_valid=False)  # the same gradients, the third one alone
    step, rates = alone.trainer.optimizer.step, iter([None, None, learning_rate(3, 16, 4)])
    clear = alone.trainer.optimizer.clear
    alone.trainer.optimizer.step = lambda _: clear() if (rate := next(rates)) is None else step(rate)
    alone.trainer.train()
    assert all(torch.equal(weight, alone.weights[name]) for name, weight in run.weights.items())
    assert run.trainer.state.skipped == 2
    assert run.trainer.state.step == 3
    assert not all(torch.equal(weight, before[name]) for name, weight in run.weights.items())
    assert all(weight.isfinite().all() for weight in run.weights.values())
    assert [(r["event"], r["step"]) for r in records] == [
        ("skipped", 1), ("train", 1), ("skipped", 2), ("train", 2), ("train", 3),
    ]  # fmt: skip
    assert [r["loss"] is None for r in records if r["event"] == "train"] == [True, True, False]
    err = capsys.readouterr().err
    assert f"warning: update 2 is skipped: its gradient norm is {'nan' if math.isnan(value) else 'inf'}" in err


def test_ten_such_updates_in_a_row_end_training_and_weights_are_those_before(watched: Any) -> None:
    run = watched(max_updates=40, with_valid=False, save_every_steps=100)
    before = {name: weight.clone() for name, weight in run.weights.items()}
    spoil(run, range(1, 100))
    with pytest.raises(AiaynError, match="10 updates in a row up to 10 had no finite gradient") as error:
        run.trainer.train()
    assert "learning_rate_scale" in error.value.hint
    assert all(torch.equal(weight, before[name]) for name, weight in run.weights.items())


def test_an_update_whose_gradient_explodes_is_left_out_and_counted(
    watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=6, exploding_norm=50, with_valid=False, save_every_steps=6)
    optimizer, sizes, accumulate = run.trainer.optimizer, iter([1.0, 1.0, 400.0, 1.0, 10.0, 1.0]), None
    accumulate = optimizer.accumulate

    def blown_up() -> None:
        accumulate()
        optimizer.gradient.mul_(next(sizes))

    optimizer.accumulate = blown_up
    run.trainer.train()
    assert run.trainer.state.skipped == 1
    assert [r["step"] for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "skipped"] == [3]
    assert "times the usual" in capsys.readouterr().err
    with_all = watched(max_updates=6, exploding_norm=0, with_valid=False, save_every_steps=6)
    sizes, accumulate = iter([1.0, 1.0, 1e9, 1.0, 10.0, 1.0]), with_all.trainer.optimizer.accumulate
    optimizer = with_all.trainer.optimizer
    optimizer.accumulate = blown_up
    with_all.trainer.train()
    assert with_all.trainer.state.skipped == 0


def returning(run: Watched, state: TrainingState) -> list[int]:
    """Give a trainer a checkpoint of its present weights; returns a list that grows with each return to it."""
    weights = {name: weight.clone() for name, weight in run.weights.items()}
    moments = {name: moment.clone() for name, moment in run.trainer.optimizer.moments().items()}
    returns: list[int] = []

    def go_back() -> TrainingState:
        returns.append(run.trainer.state.step)
        for name, weight in run.weights.items():
            weight.copy_(weights[name])
        run.trainer.optimizer.load_moments(moments, state.step)
        return state

    run.trainer._hooks = replace(run.trainer._hooks, load_newest=go_back)
    return returns


def test_ten_such_updates_in_a_row_lead_back_to_the_last_checkpoint_and_past_the_pairs(
    watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=6, with_valid=False, save_every_steps=100)
    returns = returning(run, TrainingState())
    spoil(run, range(3, 13))  # after two good updates
    before = {name: weight.clone() for name, weight in run.weights.items()}
    optimizer, seen = run.trainer.optimizer, []
    limit = optimizer.limit_norm
    optimizer.limit_norm = lambda *args: (seen.append({n: w.clone() for n, w in run.weights.items()}), limit(*args))[1]
    run.trainer._config = replace(run.trainer._config, max_updates=15)
    assert run.trainer.train() == "max_updates"
    assert returns == [12]
    assert all(torch.equal(weight, before[name]) for name, weight in seen[12].items())  # the first update after it
    assert (run.trainer.state.step, run.trainer.state.rollbacks, run.trainer.state.skipped) == (15, 1, 0)
    store_updates = plan_updates(run.trainer.store, CONFIG.batch_tokens, CONFIG.seed, Position())
    positions = [update.after for update, _ in zip(store_updates, range(27), strict=False)]
    assert run.trainer.state.position == positions[-1]  # 12 and 15 updates further: no pairs come again
    events = [(r["event"], r["step"]) for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] != "train"]
    assert events == [*(("skipped", step) for step in range(3, 13)), ("rollback", 0)]
    assert "back to the weights of update 0, and on with other pairs" in capsys.readouterr().err


def test_training_that_explodes_again_and_again_ends(watched: Any) -> None:
    run = watched(max_updates=100, with_valid=False, save_every_steps=1_000)
    returns = returning(run, TrainingState())
    spoil(run, range(1, 1_000))
    with pytest.raises(AiaynError, match="and again after 3 returns to update 0") as error:
        run.trainer.train()
    assert "learning_rate_scale" in error.value.hint
    assert len(returns) == 4


def test_nine_in_a_row_now_and_then_do_not(watched: Any) -> None:
    run = watched(max_updates=20, with_valid=False, save_every_steps=20)
    spoil(run, {*range(1, 10), *range(11, 20)})
    assert run.trainer.train() == "max_updates"
    assert run.trainer.state.skipped == 18


def test_weights_that_are_not_finite_are_never_saved(watched: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = watched(max_updates=8, with_valid=False, save_every_steps=2)
    returns = returning(run, TrainingState())
    step = run.trainer.optimizer.step
    count = iter(range(1, 100))

    def too_far(rate: float) -> None:
        step(rate)
        if next(count) == 3:
            run.trainer.optimizer._master[5] = math.inf

    run.trainer.optimizer.step = too_far
    assert run.trainer.train() == "max_updates"
    assert returns == [4]
    assert [step for step, _, _ in run.saves] == [2, 2, 4, 6, 8]
    assert "the weights are not finite after update 4; back to the weights of update 0" in capsys.readouterr().err
