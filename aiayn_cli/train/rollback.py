"""Back to the last checkpoint, where update after update has no usable gradient."""

from collections.abc import Callable
from dataclasses import replace

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError
from aiayn_cli.train.state import TrainingState

_MOST_SKIPPED_IN_A_ROW = 10  # updates left out before training goes back to a checkpoint
_MOST_RETURNS = 3  # to one checkpoint, before training stops


class Rollback:
    """Returns to the newest checkpoint, and counts how often.

    Args:
        go_back: puts weights and moments of the newest checkpoint into the optimizer, and gives its state; None where
            there is no checkpoint.
    """

    def __init__(self, go_back: Callable[[], TrainingState | None]) -> None:
        self._go_back = go_back
        self._returns: dict[int, int] = {}  # to the checkpoint of an update

    def is_due(self, state: TrainingState) -> bool:
        """Whether too many updates in a row were left out."""
        return state.skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW

    def from_state(self, now: TrainingState, *, weights_are_finite: bool = True) -> TrainingState:
        """Return to the weights of the newest checkpoint, to go on with the data that comes next.

        Args:
            now: where the run stands.
            weights_are_finite: False where they are why.
        Returns:
            Where the run then stands: the checkpoint's state, but at today's place in the data, with what has been
            spent so far.
        Raises:
            AiaynError: there is none, or training has returned to it too often.
        """
        problem = (
            f"{now.skipped_in_a_row} updates in a row up to {now.step} had no finite gradient, or an exploding one"
        )
        if not weights_are_finite:
            problem = f"the weights are not finite after update {now.step}"
        hint = "lower training.learning_rate_scale or raise warmup_steps; the checkpoints so far are whole"
        earlier = self._go_back()
        if earlier is None:
            raise AiaynError(problem, hint)
        self._returns[earlier.step] = returns = self._returns.get(earlier.step, 0) + 1
        if returns > _MOST_RETURNS:
            raise AiaynError(f"{problem}, and again after {_MOST_RETURNS} returns to update {earlier.step}", hint)
        logs.warning(f"{problem}; back to the weights of update {earlier.step:,}, and on with other pairs")
        return replace(
            earlier,
            position=now.position,
            rollbacks=now.rollbacks + 1,
            max_tokens=now.max_tokens,
            division=now.division,
            pool_pairs=now.pool_pairs,
            tgt_tokens=now.tgt_tokens,
            seconds=now.seconds,
            flops=now.flops,
        )
