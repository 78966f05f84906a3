"""What happens at which update: the learning rate, records, validations, checkpoints, and returns to one."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from aiayn_cli import logs
from aiayn_cli.config import TrainingConfig
from aiayn_cli.errors import AiaynError
from aiayn_cli.train.resume import TrainingState

_MOST_SKIPPED_IN_A_ROW = 10  # updates before training goes back to a checkpoint
_MOST_RETURNS = 3  # to one checkpoint, before training stops


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (paper, Section 5.3); steps count from 1."""
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


@dataclass(frozen=True)
class Due:
    """What to do after an update."""

    log: bool  # write a record of the updates since the last one
    validate: bool  # measure loss and BLEU before saving
    save: bool
    regular: bool  # the checkpoint counts for averages; otherwise it only keeps the place of a stopped run


def due(config: TrainingConfig, step: int, saves: int, *, time_is_up: bool, signal: str, has_valid: bool) -> Due:
    """What is due after an update, with so many regular checkpoints (`saves`) before it.

    A checkpoint is due every save_every_steps updates or, if save_every_minutes is set, after so much training (when
    time_is_up); and after the last update. A signal at any other update saves the place.
    """
    last = step >= config.max_updates
    if config.save_every_minutes:
        regular, number = last or time_is_up, saves + 1
    else:
        regular, number = last or step % config.save_every_steps == 0, -(-step // config.save_every_steps)
    return Due(
        log=last or step % config.log_every_steps == 0,
        validate=regular and has_valid and (last or number % config.validate_every_saves == 0),
        save=regular or bool(signal),
        regular=regular,
    )


class Rollback:
    """Returns to the newest checkpoint when update after update has no usable gradient, and counts how often.

    load_newest puts weights and moments of the newest checkpoint into the optimizer, and gives its state; None if there
    is no checkpoint.
    """

    def __init__(self, load_newest: Callable[[], TrainingState | None]) -> None:
        self._load_newest = load_newest
        self._returns: dict[int, int] = {}  # to the checkpoint of an update

    def is_due(self, state: TrainingState) -> bool:
        return state.skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW

    def from_state(self, now: TrainingState, *, weights_are_finite: bool = True) -> TrainingState:
        """Return to the weights of the newest checkpoint, to go on with the data that comes next.

        Returns:
            The checkpoint's state, but at the present position in the data, with the present counts of tokens, seconds
            and operations.
        Raises:
            AiaynError: there is none, or training has returned to it too often.
        """
        problem = (
            f"{now.skipped_in_a_row} updates in a row up to {now.step} had no finite gradient, or an exploding one"
        )
        if not weights_are_finite:
            problem = f"the weights are not finite after update {now.step}"
        hint = "lower training.learning_rate_scale or raise warmup_steps; the checkpoints so far are whole"
        earlier = self._load_newest()
        if earlier is None:
            raise AiaynError(problem, hint)
        self._returns[earlier.step] = returns = self._returns.get(earlier.step, 0) + 1
        if returns > _MOST_RETURNS:
            raise AiaynError(f"{problem}, and again after {_MOST_RETURNS} returns to update {earlier.step}", hint)
        logs.warning(f"{problem}; back to the weights of update {earlier.step:,}, and on with other pairs")
        kept = ("position", "max_tokens", "division", "pool_pairs", "tgt_tokens", "seconds", "flops")
        return replace(earlier, rollbacks=now.rollbacks + 1, **{name: getattr(now, name) for name in kept})
