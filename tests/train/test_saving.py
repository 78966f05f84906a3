"""Each update saves and validates what is due, what is best is kept, and a signal saves the place."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.recipe_keys import TrainingConfig
from aiayn_cli.train import trainer as trainer_module
from aiayn_cli.train import validation as validation_module
from aiayn_cli.train.gradient import Agreement
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Due, due
from aiayn_cli.train.validation import Interrupted


def due_at(step: int, *, saves: int = 0, time_is_up: bool = False, signal: str = "", **changes: Any) -> Due:
    values = {"max_updates": 12, "save_every_steps": 4, "validate_every_saves": 2, "log_every_steps": 3, **changes}
    state, agreement = TrainingState(step=step, saves=saves), Agreement(False, signal, time_is_up)
    return due(TrainingConfig(**values), state, agreement, has_valid=True)


def test_by_time_the_updates_do_not_count() -> None:
    assert not due_at(4, save_every_minutes=10).save
    for saves, validate in ((0, False), (1, True), (2, False), (3, True)):
        found = due_at(5, saves=saves, save_every_minutes=10, time_is_up=True)
        assert found == Due(log=False, validate=validate, save=True, regular=True)
    assert due_at(12, save_every_minutes=10).regular
    assert due_at(5, save_every_minutes=10, time_is_up=True, signal="SIGTERM").regular
    assert not due_at(5, time_is_up=True).save  # without an interval of time, time does not matter


@given(
    step=st.integers(1, 40),
    saves=st.integers(0, 9),
    time_is_up=st.booleans(),
    signal=st.sampled_from(["", "SIGTERM", "SIGINT"]),
    every=st.integers(1, 9),
    validate_every=st.integers(1, 3),
    minutes=st.sampled_from([0.0, 0.5, 10.0]),
)
def test_nothing_that_is_due_is_lost_by_what_else_is(
    step: int, saves: int, time_is_up: bool, signal: str, every: int, validate_every: int, minutes: float
) -> None:
    settings = {"save_every_steps": every, "validate_every_saves": validate_every, "save_every_minutes": minutes}
    found, alone = (
        due_at(step, saves=saves, time_is_up=time_is_up, signal=received, **settings) for received in (signal, "")
    )
    assert (found.log, found.validate, found.regular) == (alone.log, alone.validate, alone.regular)
    assert found.save == (alone.save or bool(signal))
    assert found.regular or not found.validate  # only what is saved is validated
    if step >= 12:
        assert found.regular
        assert found.log
        assert found.validate


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


@pytest.mark.parametrize(
    ("metric", "bleu", "losses", "best", "value"),
    [
        ("bleu", [10.0, 12.0, 12.0], [3.0, 2.5, 2.5], [True, True, False], 12.0),
        ("bleu", [12.0, 12.004, 12.0], [3.0, 2.5, 2.75], [True, True, False], 12.004),  # the loss decides
        ("bleu", [0.4, 0.0, 0.3], [3.0, 2.5, 2.75], [True, True, False], 0.0),  # so little means nothing
        ("bleu", [0.0, 0.0, 0.0], [math.nan, 2.5, math.inf], [True, True, False], 0.0),
        ("loss", None, [3.0, 2.5, 2.75], [True, True, False], 2.5),
        ("loss", [1.0, 2.0, 3.0], [3.0, 2.5, 2.75], [True, True, False], 2.5),
        ("loss", None, [math.nan, 2.5, math.nan], [False, True, False], 2.5),
    ],
)
def test_the_best_is_the_highest_bleu_or_the_lowest_loss_that_is_a_number(
    metric: str, bleu: list[float] | None, losses: list[float] | None, best: list[bool], value: float, watched: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if losses is not None:
        results = iter(losses)
        monkeypatch.setattr(validation_module, "validation_loss", lambda *_: next(results))
    run = watched(bleu=bleu, best_metric=metric)
    run.trainer.train()
    assert run.saves == [(step, is_best, True) for step, is_best in zip((2, 4, 6), best, strict=True)]
    state = run.trainer.state
    assert (state.best_value, state.best_step, state.worse_validations) == (value, 4, 1)


def test_patience_counts_validations_in_a_row_without_a_better_one(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation_module, "validation_loss", lambda *_: 2.5)
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
