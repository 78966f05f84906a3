"""The learning rate is the paper's, and each update saves and validates what is due."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.config import TrainingConfig
from aiayn_cli.train.gradient import Agreement
from aiayn_cli.train.optimizer import learning_rate
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Due, due


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_base_and_big_peak_where_the_paper_has_it(d_model: int, peak: float) -> None:
    rates = [learning_rate(step, d_model, 4_000) for step in range(1, 12_001)]
    assert max(rates) == pytest.approx(peak, rel=1e-3)
    assert rates.index(max(rates)) + 1 == 4_000


@pytest.mark.parametrize("step", [1, 2, 399, 400, 401, 1_600, 100_000])
def test_rate_is_the_papers_equation(step: int) -> None:
    expected = 1 / math.sqrt(512) * min(1 / math.sqrt(step), step / 400**1.5)
    assert learning_rate(step, 512, 400) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(step, 512, 400, scale=2.5) == pytest.approx(2.5 * expected, rel=1e-12)


def config_of(**changes: Any) -> TrainingConfig:
    values = {"max_updates": 12, "save_every_steps": 4, "validate_every_saves": 2, "log_every_steps": 3}
    return TrainingConfig(**{**values, **changes})  # type: ignore[arg-type]


def due_at(step: int, *, saves: int = 0, time_is_up: bool = False, signal: str = "", **changes: Any) -> Due:
    state, agreement = TrainingState(step=step, saves=saves), Agreement(False, signal, time_is_up)
    return due(config_of(**changes), state, agreement, has_valid=True)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, Due(log=False, validate=False, save=False, regular=False)),
        (3, Due(log=True, validate=False, save=False, regular=False)),
        (4, Due(log=False, validate=False, save=True, regular=True)),
        (8, Due(log=False, validate=True, save=True, regular=True)),
        (12, Due(log=True, validate=True, save=True, regular=True)),
    ],
)
def test_checkpoints_come_by_updates(step: int, expected: Due) -> None:
    assert due_at(step) == expected


def test_a_checkpoint_at_the_end_of_an_interval_that_is_also_the_last_update_is_one() -> None:
    assert due_at(12) == due_at(12, save_every_steps=5) == due_at(12, signal="SIGTERM")


def test_a_signal_at_a_regular_checkpoint_leaves_it_regular() -> None:
    for step in (4, 8):
        assert due_at(step, signal="SIGTERM") == due_at(step)
    assert due_at(5, signal="SIGINT") == Due(log=False, validate=False, save=True, regular=False)
    assert due_at(6, signal="SIGINT").log


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
