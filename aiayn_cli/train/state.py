"""Where a run stands."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aiayn_cli.checkpoint.tensors import from_json
from aiayn_cli.data.batches import LEAST_POOL_PAIRS, Position
from aiayn_cli.errors import CheckpointError

_BEFORE = {"pool_pairs": LEAST_POOL_PAIRS}  # what was true of every run when states did not say it

_AT_MOST_ONCE_A_STEP = ("best_step", "worse_validations", "saves", "skipped", "skipped_in_a_row")

_MOST_DEVICES = 1 << 20  # that an update may be divided for


@dataclass(frozen=True)
class TrainingState:
    """Where a run stands; with weights and moments all that an exact continuation needs.

    Attributes:
        step: updates done.
        position: in the data.
        best_value, best_step: best validation so far by the recipe's metric; None before the first.
        worse_validations: in a row, for patience.
        tgt_tokens: target tokens learnt from, with end tokens, without padding.
        seconds: spent in updates, without validation and checkpoints.
        saves: regular checkpoints written.
        saved_seconds: `seconds` at the last of them.
        skipped: updates left out because their gradient was not finite or exploded.
        skipped_in_a_row: the newest of them.
        usual_norm: running mean of the gradient's norm; 0 before the first update.
        rollbacks: times that training went back to a checkpoint.
        max_tokens: most padded tokens of a micro-batch since memory ran out; 0 = the recipe's.
        division: the number of micro-batches in an update is a multiple of this; dropout depends on the division.
        flops: operations that learning took so far, counted as model/cost.py does.
        pool_pairs: that are sorted by length together, which the order of pairs depends on; 0 = not chosen yet.
        validation_due: whether a signal stopped the validation after this step, which comes before the next update.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    best_value: float | None = None
    best_step: int | None = None
    worse_validations: int = 0
    tgt_tokens: int = 0
    seconds: float = 0.0
    saves: int = 0
    saved_seconds: float = 0.0
    skipped: int = 0
    skipped_in_a_row: int = 0
    usual_norm: float = 0.0
    rollbacks: int = 0
    max_tokens: int = 0
    division: int = 1
    flops: int = 0
    pool_pairs: int = 0
    validation_due: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: Path) -> "TrainingState":
        """The reverse of to_json().

        Args:
            content: JSON values.
            source: where they were read, for the message.
        Raises:
            CheckpointError: they are no training state.
        """
        try:
            state = from_json(cls, {**_BEFORE, **content, "position": from_json(Position, content["position"])})
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{source} is no training state: {error}", "use another checkpoint") from error
        for name, value in [*state.__dict__.items(), *state.position.__dict__.items()]:
            least, most = (1, _MOST_DEVICES) if name == "division" else (0, 1 << 100)
            if isinstance(value, (int, float)) and not least <= value < most:  # NaN is in no range
                raise CheckpointError(f"{source} is no training state: {name} is {value}", "use another checkpoint")
        for name in _AT_MOST_ONCE_A_STEP:
            if (value := getattr(state, name) or 0) > state.step:
                problem = f"{source} is no training state: {name} is {value:,} after {state.step:,} updates"
                raise CheckpointError(problem, "use another checkpoint")
        return state

    def for_devices(self, n: int) -> "TrainingState":
        """The same for a number of devices, which must share the micro-batches of an update evenly.

        Fewer devices than before can take those of more, with the same dropout; otherwise they are divided anew.
        """
        if self.division % n == 0:
            return self
        return TrainingState(**{**self.__dict__, "division": n})
