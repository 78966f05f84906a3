"""What is due after an update does not depend on what else is due."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.config import TrainingConfig
from aiayn_cli.train.schedule import Due, due


def config_of(**changes: Any) -> TrainingConfig:
    values = {"max_updates": 12, "save_every_steps": 4, "validate_every_saves": 2, "log_every_steps": 3}
    return TrainingConfig(**{**values, **changes})  # type: ignore[arg-type]


def due_at(step: int, *, saves: int = 0, time_is_up: bool = False, signal: str = "", **changes: Any) -> Due:
    return due(config_of(**changes), step, saves, time_is_up=time_is_up, signal=signal, has_valid=True)


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
    config = config_of(save_every_steps=every, validate_every_saves=validate_every, save_every_minutes=minutes)
    found, alone = (
        due(config, step, saves, time_is_up=time_is_up, signal=asked, has_valid=True) for asked in (signal, "")
    )
    assert (found.log, found.validate, found.regular) == (alone.log, alone.validate, alone.regular)
    assert found.save == (alone.save or bool(signal))
    assert found.regular or not found.validate  # only what is saved is validated
    if step >= 12:
        assert found.regular
        assert found.log
        assert found.validate
