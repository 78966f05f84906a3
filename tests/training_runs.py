"""Runs of the small recipe: ended on the way, and compared in the end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aiayn_cli.average.session import AverageOptions, run_average
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.train import session as session_module
from aiayn_cli.train.gradient import GradientOfUpdates

Train = Callable[..., Any]  # a TrainResult, or of a dry run its own


class Killed(BaseException):
    """Ends a run at once, as kill -9 does; nothing catches it."""


@contextmanager
def ending_after(updates: int, how: str) -> Iterator[None]:
    """Within it, a call of run_train gets a signal, or dies, when it has done so many updates."""
    done, learn = iter(range(1, 1_000)), GradientOfUpdates.of
    received: list[str] = []

    def counted(*args: Any) -> Any:
        if next(done) >= updates:
            if how == "kill":
                raise Killed
            received.append(how)
        return learn(*args)

    @contextmanager
    def signals() -> Iterator[Callable[[], str]]:
        yield lambda: received[0] if received else ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradientOfUpdates, "of", counted)
        patch.setattr(session_module, "signals", signals)
        yield


def tensors_of(run: Path) -> dict[str, bytes]:
    """Weights and moments of the newest checkpoint."""
    newest = list_checkpoints(run)[-1]
    tensors = {**load_checkpoint(newest).weights(), **load_training(newest).moments}
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def state_of(run: Path) -> dict[str, Any]:
    """The state in the newest checkpoint, without the times, which no two runs share."""
    state = load_training(list_checkpoints(run)[-1]).state
    return {name: value for name, value in state.items() if name not in ("seconds", "saved_seconds")}


def result_of(run: Path) -> dict[str, Any]:
    """All that two runs should have in common, in the end, to the last bit."""
    # Of what was done twice, after a kill, the last counts.
    events = {(r["event"], r["step"]): r for r in read_metrics(run / "metrics.jsonl")}
    average = load_checkpoint(run_average([run], AverageOptions()).model).weights()
    return {
        "checkpoints": [path.name for path in list_checkpoints(run)],
        "in the folder": sorted(path.name for path in (run / "checkpoints").iterdir()),
        "best": (run / "checkpoints" / "best").readlink(),
        "tensors": tensors_of(run),
        "state": state_of(run),
        "validations": {
            key: (record["loss"], record["bleu"], record["best"])
            for key, record in events.items()
            if key[0] == "validation"
        },
        "gradient norms": {key: r["gradient_norm"] for key, r in events.items() if key[0] == "train"},
        "average": {name: tensor.numpy().tobytes() for name, tensor in average.items()},
    }


def updates_logged(run: Path) -> int:
    """How many updates a run has recorded, those done twice counted twice."""
    path = run / "metrics.jsonl"
    return sum(record["event"] == "train" for record in read_metrics(path)) if path.exists() else 0


def flip_a_bit(path: Path) -> None:
    """Damage a file near its end."""
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
