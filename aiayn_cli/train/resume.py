"""Where a run stands, and how it goes on: from its newest whole checkpoint, with the settings that may change."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.run_checkpoints import resumable, set_aside_damaged, update_of
from aiayn_cli.checkpoint.tensor_files import from_json
from aiayn_cli.config import ModelConfig, Recipe, TrainingConfig
from aiayn_cli.data.batches import LEAST_POOL_PAIRS, Position
from aiayn_cli.errors import CheckpointError

_DEFAULTS = {"pool_pairs": LEAST_POOL_PAIRS}  # of states written before they had the field
_AT_MOST_ONCE_A_STEP = ("best_step", "worse_validations", "saves", "skipped", "skipped_in_a_row")
_MOST_DEVICES = 1 << 20  # that an update may be divided for

# A change of these would make another experiment of the run: other weights, or other pairs in an update.
_FIXED = {f"model.{field.name}" for field in fields(ModelConfig) if "dropout" not in field.name}
_FIXED |= {"training.batch_tokens", "training.seed"}


@dataclass(frozen=True)
class TrainingState:
    """Where a run stands; with weights and moments all that an exact continuation needs."""

    step: int = 0  # updates done
    position: Position = field(default_factory=Position)  # in the data
    best_value: float | None = None  # best validation so far by the recipe's metric
    best_step: int | None = None
    worse_validations: int = 0  # in a row, for patience
    tgt_tokens: int = 0  # target tokens learnt from, with end tokens, without padding
    seconds: float = 0.0  # spent in updates, without validation and checkpoints
    saves: int = 0  # regular checkpoints written
    saved_seconds: float = 0.0  # `seconds` at the last of them
    skipped: int = 0  # updates skipped because their gradient was not finite or exploded
    skipped_in_a_row: int = 0  # the newest of them
    usual_norm: float = 0.0  # running mean of the gradient's norm; 0 before the first update
    rollbacks: int = 0  # times that training went back to a checkpoint
    max_tokens: int = 0  # most padded tokens of a micro-batch since memory ran out; 0 = the recipe's
    division: int = 1  # the number of micro-batches in an update is a multiple of this, on which dropout depends
    flops: int = 0  # operations that learning took so far, counted as model/cost.py does
    pool_pairs: int = 0  # sorted by length together, on which the order of pairs depends; 0 = not chosen yet
    validation_due: bool = False  # a signal stopped the validation after this step, which comes before the next update

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: Path) -> "TrainingState":
        """The reverse of to_json(), for what was read from `source`."""
        try:
            state = from_json(cls, {**_DEFAULTS, **content, "position": from_json(Position, content["position"])})
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{source} is not a training state: {error}", "use another checkpoint") from error
        for name, value in [*state.__dict__.items(), *state.position.__dict__.items()]:
            least, most = (1, _MOST_DEVICES) if name == "division" else (0, 1 << 100)
            if isinstance(value, (int, float)) and not least <= value < most:  # NaN is in no range
                raise CheckpointError(f"{source} is not a training state: {name} is {value}", "use another checkpoint")
        for name in _AT_MOST_ONCE_A_STEP:
            if (value := getattr(state, name) or 0) > state.step:
                problem = f"{source} is not a training state: {name} is {value:,} after {state.step:,} updates"
                raise CheckpointError(problem, "use another checkpoint")
        return state

    def for_devices(self, n: int) -> "TrainingState":
        """The same for n devices, which must share the micro-batches of an update evenly.

        Fewer devices than before can divide the micro-batches of more, with the same dropout; otherwise updates are
        divided anew.
        """
        return self if self.division % n == 0 else replace(self, division=n)


def load_newest(
    run: Path, weights: Mapping[str, Tensor], n_pairs: int, *, touch: bool = True
) -> tuple[TrainingState, dict[str, Tensor]] | None:
    """Read a run's newest checkpoint that is whole; damaged ones after it are set aside.

    Args:
        weights: float32, overwritten by the checkpoint's.
        n_pairs: of the training data.
        touch: whether to rename damaged ones.
    Returns:
        The run's state and the optimizer's moments; None if there is no checkpoint yet.
    Raises:
        CheckpointError: all checkpoints are damaged; the newest is named.
    """
    first: CheckpointError | None = None
    damaged = []
    for path in reversed(resumable(run)):
        try:
            found = load_checkpoint(path)
            snapshot = load_training(path)
            state = _state(snapshot.state, path, found.step, n_pairs)
            found.copy_into(weights)
        except CheckpointError as error:
            first = first or error
            damaged.append(path)
            continue
        for bad in damaged:
            instead = f"{path.name} takes its place"
            if touch:
                instead += f", and it is kept as {set_aside_damaged(bad).name}"
            logs.warning(f"the checkpoint {bad.name} is damaged: {instead}")
        return state, dict(snapshot.moments)
    if first is not None:
        raise first
    return None


def _state(content: Mapping[str, Any], checkpoint: Path, step: int, n_pairs: int) -> TrainingState:
    path = checkpoint / "training" / "state.json"
    state = TrainingState.from_json(content, path)
    if state.step != step or step != update_of(checkpoint):
        raise CheckpointError(
            f"{path} is of update {state.step:,}, model.json of {step:,}, and the folder's name says "
            f"{update_of(checkpoint):,}",
            "use another checkpoint",
        )
    if state.position.pairs >= n_pairs:
        raise CheckpointError(
            f"{path} stands at pair {state.position.pairs:,} of an epoch, but there are {n_pairs:,}",
            "use another checkpoint",
        )
    return state


def finished(config: TrainingConfig, state: TrainingState) -> str:
    """Why a run needs no more training, and what would change that; "" if it does."""
    if state.validation_due:
        return ""
    if state.step >= config.max_updates:
        return f"already has its {config.max_updates:,} updates; --set training.max_updates=... adds some"
    if config.patience and state.worse_validations >= config.patience:
        return (
            f"ended at update {state.step:,}, after {state.worse_validations} validations without a better one; "
            "--set training.patience=... goes on"
        )
    return ""


def changed_settings(old: Recipe, new: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, by dotted name: (old, new)."""
    changes = {}
    for section in fields(Recipe):
        before, after = getattr(old, section.name), getattr(new, section.name)
        for setting in fields(before):
            values = getattr(before, setting.name), getattr(after, setting.name)
            if values[0] != values[1]:
                changes[f"{section.name}.{setting.name}"] = values
    return changes


def continued_recipe(old: Recipe, new: Recipe, run: Path) -> tuple[Recipe, list[str]]:
    """The new recipe, if all its changes can be applied to the run, and these, such as "training.patience 0 -> 3"."""
    changes = changed_settings(old, new)
    refused = [f"{key} {before} -> {after}" for key, (before, after) in changes.items() if key in _FIXED]
    if refused:
        raise CheckpointError(
            f"{run} cannot go on with {'; '.join(refused)}",
            "keep the old value, or start anew with another --out or --fresh",
        )
    # What prepare did is in the data already, whose hash is checked.
    applied = [f"{key} {a} -> {b}" for key, (a, b) in changes.items() if not key.startswith("data.")]
    return replace(new, data=old.data), applied
