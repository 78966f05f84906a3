"""What is best is kept, checkpoints come when they are due, and a signal saves the place."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.train import trainer as trainer_module
from aiayn_cli.train import validation as validation_module
from aiayn_cli.train.validation import Interrupted


@pytest.mark.parametrize(("stop", "saved"), [(3, (3, False, False)), (4, (4, False, True))])
def test_a_signal_saves_the_place_once(stop: int, saved: tuple[int, bool, bool], watched: Any) -> None:
    calls = iter([""] * (stop - 1) + ["SIGINT"])
    run = watched(signals=calls.__next__, with_valid=False)
    assert run.trainer.train() == "SIGINT"
    assert run.saves == [(2, False, True), saved]
    assert run.trainer.state.step == stop


def test_a_signal_during_the_last_update_changes_nothing_where_no_validation_follows(watched: Any) -> None:
    run = watched(signals=lambda: "SIGTERM", max_updates=1, with_valid=False)
    assert run.trainer.train() == "max_updates"
    assert run.saves == [(1, False, True)]


@pytest.mark.parametrize("looks", [0, 1, 5])  # at signals: in the update itself, in the loss, in BLEU
@pytest.mark.parametrize("last", [False, True])
def test_a_signal_leaves_the_validation_to_the_next_call(
    looks: int, last: bool, watched: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(1_000))

    def signals() -> str:
        return "SIGTERM" if next(calls) > looks else ""  # the first update asks once, too

    def score(interrupted: Callable[[], str]) -> float:
        while not interrupted():
            pass
        raise Interrupted("SIGTERM")

    settings = {"save_every_steps": 2, "max_updates": 2 if last else 4, "patience": 1}
    stopped = watched(bleu=[0.0], signals=signals, **settings)
    stopped.trainer._hooks.validation.bleu = score
    assert stopped.trainer.train() == "SIGTERM"
    assert stopped.saves == [(2, False, False)]
    state = stopped.trainer.state
    assert (state.validation_due, state.best_step, state.worse_validations, state.saves) == (True, None, 0, 0)
    assert stopped.trainer.model.training

    again = watched(bleu=[0.0], state=state, signals=lambda: "SIGINT", **settings)
    assert again.trainer.train() == "SIGINT"
    assert again.saves == [(2, False, False)]
    assert again.trainer.state == state

    last_call = watched(bleu=[7.0, 6.0], state=state, best_metric="bleu", **settings)
    assert last_call.trainer.train() == ("max_updates" if last else "patience")
    assert last_call.saves == [(2, True, True)] + [(4, False, True)] * (not last)
    assert not last_call.trainer.state.validation_due
    records = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "validation"]
    assert [record["bleu"] for record in records] == [7.0] + [6.0] * (not last)


def test_patience_ends_a_run_whose_last_validation_was_stopped(watched: Any) -> None:
    settings = {"max_updates": 12, "patience": 2, "best_metric": "bleu"}
    unbroken = watched(bleu=[5.0, 4.0, 3.0, 9.0], **settings)
    assert unbroken.trainer.train() == "patience"
    state = replace(unbroken.trainer.state, worse_validations=1, validation_due=True, saves=2)
    resumed = watched(bleu=[3.0, 9.0], state=state, **settings)
    assert resumed.trainer.train() == "patience"
    assert resumed.saves == [(6, False, True)]
    assert resumed.trainer.state == unbroken.trainer.state


def test_by_time_a_checkpoint_comes_after_so_much_training(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1_000_000, 30))  # each look at the clock takes half a minute
    monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: float(next(now)))
    run = watched(max_updates=10, save_every_minutes=2, save_every_steps=1, with_valid=False)
    run.trainer.train()
    steps = [step for step, _, regular in run.saves if regular]
    assert 3 <= len(steps) <= 6
    assert steps[-1] == 10
    assert len(set(b - a for a, b in zip(steps[:-1], steps[1:-1], strict=False))) == 1  # noqa: C401, RUF007
    assert run.trainer.state.saves == len(steps)


def test_the_best_bleu_is_the_highest(watched: Any) -> None:
    run = watched(bleu=[10.0, 12.0, 12.0], best_metric="bleu")
    run.trainer.train()
    assert run.saves == [(2, True, True), (4, True, True), (6, False, True)]  # an equal one is no better
    state = run.trainer.state
    assert (state.best_value, state.best_step, state.worse_validations) == (12.0, 4, 1)


def scripted_losses(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    results = iter(losses)
    monkeypatch.setattr(validation_module, "validation_loss", lambda *_: next(results))


@pytest.mark.parametrize("bleu", [None, [1.0, 2.0, 3.0]])
def test_the_best_loss_is_the_lowest(bleu: list[float] | None, watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_losses(monkeypatch, [3.0, 2.5, 2.75])
    run = watched(bleu=bleu, best_metric="loss")
    run.trainer.train()
    assert [best for _, best, _ in run.saves] == [True, True, False]
    assert (run.trainer.state.best_value, run.trainer.state.best_step) == (2.5, 4)


def test_a_loss_that_is_not_a_number_is_never_the_best(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_losses(monkeypatch, [math.nan, 2.5, math.nan])
    run = watched(best_metric="loss")
    run.trainer.train()
    assert [best for _, best, _ in run.saves] == [False, True, False]
    assert (run.trainer.state.best_value, run.trainer.state.worse_validations) == (2.5, 1)


def test_patience_counts_validations_in_a_row_without_a_better_one(watched: Any) -> None:
    run = watched(bleu=[5.0, 4.0, 6.0, 6.0, 5.0, 9.0], max_updates=12, patience=2)
    assert run.trainer.train() == "patience"
    assert run.trainer.state.step == 10
    assert run.saves[-1] == (10, False, True)


def test_validation_comes_every_so_many_checkpoints_and_after_the_last(watched: Any, tmp_path: Path) -> None:
    run = watched(max_updates=9, validate_every_saves=2, bleu=[1.0, 2.0, 3.0])
    run.trainer.train()
    assert [step for step, _, _ in run.saves] == [2, 4, 6, 8, 9]
    validations = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "validation"]
    assert [record["step"] for record in validations] == [4, 8, 9]
    assert [record["bleu"] for record in validations] == [1.0, 2.0, 3.0]
