"""What is due after an update, decided in one place, so that no reason for a checkpoint stands in another's way."""

from dataclasses import dataclass

from aiayn_cli.config import TrainingConfig


@dataclass(frozen=True)
class Due:
    """What to do after an update.

    Attributes:
        log: write a record of the updates since the last one.
        validate: measure loss and BLEU before saving.
        save: write a checkpoint.
        regular: it is one of the run's checkpoints, and counts for averages; otherwise it keeps the place of a run that
            is stopped.
    """

    log: bool
    validate: bool
    save: bool
    regular: bool


def due(config: TrainingConfig, step: int, saves: int, *, time_is_up: bool, signal: str, has_valid: bool) -> Due:
    """What is due after an update.

    A checkpoint comes every save_every_steps updates or, where save_every_minutes is set, after so much training; and
    after the last update. A signal at any other update saves the place.

    Args:
        config: the recipe's training section.
        step: updates done.
        saves: regular checkpoints before this update.
        time_is_up: whether save_every_minutes of training have passed since the last of them.
        signal: that asks for an end, or "".
        has_valid: whether there is something to validate on.
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
