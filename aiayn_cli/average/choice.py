"""Which checkpoints `aiayn average` averages, and where the result goes."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.checkpoint.format import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.metrics import read_metrics
from aiayn_cli.checkpoint.run import list_checkpoints, newest_resumable, newest_run
from aiayn_cli.config import ModelConfig
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.recipe import load_recipe

_STEPS = re.compile(r"(\d*)-(\d*)")


@dataclass(frozen=True)
class Choice:
    """What is averaged.

    Attributes:
        checkpoints: in the order of their steps; one or more, of one run.
        target: directory for the result.
        run: where they are; None where they were named outside of a run.
    """

    checkpoints: list[Checkpoint]
    target: Path
    run: Path | None


def choose(
    paths: Sequence[Path],
    *,
    last: int | None = None,
    steps: str | None = None,
    best: int | None = None,
    every: bool = False,
    out: Path | None = None,
) -> Choice:
    """Find the checkpoints.

    Args:
        paths: checkpoints, or one run; nothing = the newest run of the working folder.
        last: how many of a run's newest checkpoints.
        steps: a range of a run's checkpoints, such as "3000-6000"; either end may be left out.
        best: how many of a run's best checkpoints by validation.
        every: all of a run's checkpoints. Without any of these, the recipe's average_last newest ones.
        out: directory for the result; None = RUN/averaged.
    Raises:
        CheckpointError: they are missing, or of different runs, shapes or vocabularies.
        UsageError: two ways of choosing contradict each other.
    """
    ways = {"--last": last is not None, "--steps": steps is not None, "--best": best is not None}
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} contradict each other", "give one of them")
    if len(paths) > 1 or (paths and (paths[0] / "model.json").is_file()):
        if chosen:
            raise UsageError(f"{chosen[0]} goes with a run, not with named checkpoints", "leave out one of the two")
        return _named(paths, out)
    run = paths[0] if paths else newest_run()
    if not paths:
        logs.notice(f"averaging the newest run, {run}")
    found = list_checkpoints(run)
    if not found:
        raise _nothing_to_average(run)
    if steps is not None:
        found = _in_range(run, found, steps)
    elif best is not None:
        found = best_by_validation(run, found, best)
    elif not every:
        wanted = last if last is not None else load_recipe(str(run / "recipe.yaml")).training.average_last
        if len(found) < wanted:
            logs.notice(f"{run} has {len(found)} checkpoints, fewer than the {wanted} asked for; all are averaged")
        found = found[-wanted:]
    return Choice(_related(found), out or run / "averaged", run)


def _nothing_to_average(run: Path) -> CheckpointError:
    if not run.exists():
        return CheckpointError(f"there is no {run}", "name a run, such as runs/base")
    if run.name == "checkpoints" and list_checkpoints(run.parent):
        return CheckpointError(f"{run} is a part of a run", f"name the run: {run.parent}")
    if (interrupted := newest_resumable(run)) is not None:
        return CheckpointError(
            f"{run} was stopped before its first checkpoint, and there is nothing to average",
            f"the command that began it goes on; `aiayn translate --model {run}` takes {interrupted.name} as it is",
        )
    return CheckpointError(f"{run} has no checkpoints", "train it with `aiayn train`, or name another run")


def best_by_validation(run: Path, found: Sequence[Path], wanted: int) -> list[Path]:
    """The best of a run's checkpoints by the recipe's metric, as metrics.jsonl has it.

    Args:
        run: its folder.
        found: its checkpoints.
        wanted: how many.
    Raises:
        CheckpointError: none of them was validated.
    """
    metric = load_recipe(str(run / "recipe.yaml")).training.best_metric
    path = run / "metrics.jsonl"
    values = {}
    for record in read_metrics(path) if path.is_file() else ():
        if record.get("event") == "validation" and isinstance(record.get("step"), int):
            value = record.get(metric)
            # A step that was done again after a crash has its last record; null stands for what is not finite.
            values[record["step"]] = value if isinstance(value, int | float) else math.nan
    # A copy with a name of the user's has no update in it: what is not known counts as not validated.
    steps = {checkpoint: checkpoint.name.rpartition("-")[2] for checkpoint in found}
    validated = {checkpoint: values.get(int(step), math.nan) for checkpoint, step in steps.items() if step.isdecimal()}
    validated = {checkpoint: value for checkpoint, value in validated.items() if math.isfinite(value)}
    if not validated:
        raise CheckpointError(
            f"no checkpoint of {run} has a validation {metric} in metrics.jsonl", "choose with --last or --steps"
        )
    if len(validated) < wanted:
        logs.notice(f"{run} has {len(validated)} checkpoints with a validation {metric}, fewer than {wanted}")
    sign = -1 if metric == "bleu" else 1
    later_first = list(reversed(validated))  # of equal ones, the later ones
    return sorted(later_first, key=lambda checkpoint: sign * validated[checkpoint])[:wanted]


def _named(paths: Sequence[Path], out: Path | None) -> Choice:
    unique = list({_identity(path): path for path in paths}.values())
    if len(unique) < len(paths):
        logs.notice(f"{len(paths)} checkpoints were named, of which {len(unique)} differ; each counts once")
    folder = unique[0].resolve().parent
    is_in_run = folder.name == "checkpoints"
    if out is None and not is_in_run:
        raise UsageError(f"{unique[0]} is in no run, so the result has no place", "add --out FOLDER")
    run = folder.parent if is_in_run else None
    return Choice(_related(unique), out or folder.parent / "averaged", run)


def _identity(path: Path) -> object:
    """What tells a checkpoint from others: a link to one, or a copy of it, is that checkpoint."""
    checkpoint = load_checkpoint(path)
    return (checkpoint.step, *checkpoint.files.items()) if checkpoint.files else path.resolve()


def _in_range(run: Path, found: Sequence[Path], steps: str) -> list[Path]:
    match = _STEPS.fullmatch(steps.replace(" ", ""))
    if not match or not any(match.groups()):
        raise UsageError(f"--steps is {steps!r}, but must be a range of updates", "write it like 3000-6000, or 3000-")
    first, last = (int(end) if end else None for end in match.groups())
    numbers = {path: int(path.name.partition("-")[2]) for path in found}
    inside = [
        path
        for path, number in numbers.items()
        if (first is None or number >= first) and (last is None or number <= last)
    ]
    if not inside:
        there = ", ".join(f"{number:,}" for number in numbers.values())
        raise CheckpointError(f"{run} has no checkpoint of the updates {steps}", f"there are those of {there}")
    return inside


def _related(paths: Sequence[Path]) -> list[Checkpoint]:
    """Load descriptions, in the order of their steps, and check that they are of one run."""
    checkpoints = sorted((load_checkpoint(path) for path in paths), key=lambda checkpoint: checkpoint.step)
    first = checkpoints[0]
    for other in checkpoints[1:]:
        for what, mine, theirs in (
            ("runs", first.run_id, other.run_id),
            ("vocabularies", first.vocab_sha256, other.vocab_sha256),
            ("model shapes", _shape(first), _shape(other)),
        ):
            if mine != theirs:
                raise CheckpointError(
                    f"{first.path} and {other.path} are of different {what}", "average checkpoints of one run"
                )
    return checkpoints


def _shape(checkpoint: Checkpoint) -> ModelConfig:
    """The model without its dropout, which may change during a run."""
    return replace(checkpoint.model, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
