"""A state that was saved says where a run stands, also one that was saved before all of it was said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aiayn_cli.data.batches import Position
from aiayn_cli.errors import CheckpointError
from aiayn_cli.train.resume import TrainingState

STATE = TrainingState(step=3, position=Position(1, 70), best_value=2.5, best_step=2, pool_pairs=131_072)


def test_a_state_comes_back_as_it_was_saved() -> None:
    assert TrainingState.from_json(STATE.to_json(), Path("state.json")) == STATE


def test_as_many_operations_as_the_papers_big_model_takes_are_no_damage() -> None:
    state = replace(STATE, flops=23 * 10**18)
    assert TrainingState.from_json(state.to_json(), Path("state.json")) == state


def test_a_run_from_before_pools_had_sizes_keeps_its_order_of_pairs() -> None:
    content = STATE.to_json()
    del content["pool_pairs"]
    assert TrainingState.from_json(content, Path("state.json")) == replace(STATE, pool_pairs=65_536)


@pytest.mark.parametrize(
    "change",
    [
        {"pool_pairs": -1}, {"step": -1}, {"division": 0}, {"step": "3"}, {"steps": 4}, {"division": 10**9},
        {"saves": -3}, {"seconds": float("nan")}, {"usual_norm": -1.0}, {"best_step": 10**40},
        {"best_value": float("nan")},
        {"best_step": 4}, {"saves": 4}, {"skipped": 4}, {"skipped_in_a_row": 4}, {"worse_validations": 4},
        {"position": {"epoch": -1, "pairs": 0}}, {"position": {"epoch": 0, "pairs": 10**40}},
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"state\.json is no training state"):
        TrainingState.from_json({**STATE.to_json(), **change}, Path("state.json"))


def test_a_new_run_takes_the_pool_of_its_updates_and_one_that_goes_on_keeps_its_own(watched: Any) -> None:
    assert watched(batch_tokens=120).trainer.state.pool_pairs == 65_536
    assert watched(batch_tokens=25_000).trainer.state.pool_pairs == 524_288
    assert watched(batch_tokens=25_000, state=STATE).trainer.state.pool_pairs == 131_072
