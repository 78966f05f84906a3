"""What `aiayn train` prints in the end."""

from dataclasses import dataclass
from pathlib import Path

from aiayn_cli import logs


@dataclass(frozen=True)
class TrainResult:
    """What `aiayn train` prints.

    Attributes:
        run: the run folder.
        stopped_by: "max_updates", "patience", or "already done".
        updates: done in all.
        epochs: times the training data was read whole.
        parameters: of the model.
        train_seconds: in updates, over all calls, without validation and checkpoints.
        tokens_per_second: target tokens without padding, over train_seconds.
        flops: operations of training, counted as model/cost.py does.
        best_metric, best_value, best_step: the best validation; None without validation data.
    """

    run: Path
    stopped_by: str
    updates: int
    epochs: int
    parameters: int
    train_seconds: float
    tokens_per_second: float
    flops: int
    best_metric: str
    best_value: float | None
    best_step: int | None

    def __str__(self) -> str:
        best = ""
        if self.best_value is not None:
            best = f"; best validation {self.best_metric} {self.best_value:.2f} at update {self.best_step:,}"
        return (
            f"{self.run}: {self.updates:,} updates, {self.epochs} epochs, {logs.clock(self.train_seconds)} of "
            f"training, {self.tokens_per_second:,.0f} target tokens/s, {self.flops:.2g} FLOPs{best}"
        )
