"""Which checkpoints `aiayn average` averages, and where the result goes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints, newest_resumable, newest_run, update_of
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.recipe import load_recipe

_STEPS = re.compile(r"(\d*)-(\d*)")
# Dropout can change during a run.
_NO_DROPOUT: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


@dataclass(frozen=True, kw_only=True)
class AverageOptions:
    """What `aiayn average` was told; UsageError where options contradict each other."""

    last: int | None = None  # how many of a run's newest checkpoints
    steps: str | None = None  # a range of a run's checkpoints, such as "3000-6000"; either end may be missing
    best: int | None = None  # how many of a run's best checkpoints by validation
    ema: bool = False  # the moving average that training kept, of the newest checkpoint
    search: bool = False  # try several averages on the validation set; `last` or `steps` say among which checkpoints
    data: Path | None = None  # for the search; None = what the run was trained on, as its manifest says
    device: str = "auto"  # of the search
    out: Path | None = None  # directory for the result; None = RUN/averaged

    def __post_init__(self) -> None:
        if self.search and (self.ema or self.best is not None):
            raise UsageError("--search tries --best and --ema anyway", "remove --search, or the others")
        if self.ema and self.chosen:
            hint = "name that checkpoint, or remove the others"
            raise UsageError("--ema takes one checkpoint's moving average", hint)
        if self.data is not None and not self.search:
            raise UsageError("--data without --search", "only a search translates the validation set")
        if len(self.chosen) > 1:
            raise UsageError(f"{' and '.join(self.chosen)} contradict each other", "give only one")

    @property
    def chosen(self) -> list[str]:
        ways = {"--last": self.last, "--steps": self.steps, "--best": self.best}
        return [name for name, value in ways.items() if value is not None]


@dataclass(frozen=True)
class Choice:
    """Checkpoints of one run in the order of their steps, the directory for the result, and the run, if known."""

    checkpoints: list[Checkpoint]
    target: Path
    run: Path | None


def choose(paths: Sequence[Path], options: AverageOptions) -> Choice:
    """Find the checkpoints: those of `paths`, or of the run that it names, or of the newest run of the working folder.

    Without `last`, `steps` and `best` a search takes all, other averages the recipe's average_last newest ones. The
    result replaces nothing but an earlier average.
    """
    if len(paths) > 1 or (paths and (paths[0] / "model.json").is_file()):
        if options.chosen:
            raise UsageError(f"{options.chosen[0]} needs a run, not named checkpoints", "remove one of the two")
        if options.ema and len(paths) > 1:
            raise UsageError(f"--ema takes one checkpoint's moving average, not {len(paths)}", "name that checkpoint")
        choice = _named(paths, options.out)
    else:
        run = paths[0] if paths else newest_run()
        if not paths:
            logs.notice(f"averaging the newest run, {run}")
        choice = Choice(_related(map(load_checkpoint, _of_run(run, options))), options.out or run / "averaged", run)
    _check_target(choice.target)
    return choice


def _of_run(run: Path, options: AverageOptions) -> list[Path]:
    found = list_checkpoints(run)
    if not found:
        raise _nothing_to_average(run)
    if options.steps is not None:
        return _in_range(run, found, options.steps)
    if options.best is not None:
        return best_by_validation(run, found, options.best)
    if options.search and options.last is None:
        return found
    if options.ema:
        return found[-1:]
    recipe = run / "recipe.yaml"
    if options.last and not recipe.is_file():  # a run put together by hand
        return found[-options.last :]
    training = load_recipe(str(recipe)).training
    wanted = options.last or training.average_last
    chosen = found[-wanted:]
    if len(chosen) < wanted:
        logs.notice(f"{run} has only {len(chosen)} of {wanted} checkpoints; all are averaged")
    if len(chosen) > 1 and update_of(chosen[0]) < 2 * training.warmup_steps:
        logs.warning(
            f"{chosen[0].name} is from the steepest part of training (warm-up: {training.warmup_steps:,} updates), so "
            f"that the average may be worse than the last checkpoint: try `aiayn average {run} --search`"
        )
    return chosen


def _check_target(target: Path) -> None:
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        is_average = (target / "model.json").is_file() and bool(load_checkpoint(target).parents)
    except CheckpointError as error:  # perhaps an average, but a folder that cannot be read is not thrown away
        raise CheckpointError(error.problem, f"move {target} away, or give another --out") from error
    if not is_average:
        raise CheckpointError(f"{target} exists and is not an averaged model", "give another --out")


def _nothing_to_average(run: Path) -> CheckpointError:
    if not run.exists():
        return CheckpointError(f"there is no {run}", "name a run, such as runs/base")
    if run.name == "checkpoints" and list_checkpoints(run.parent):
        return CheckpointError(f"{run} is part of a run", f"name the run: {run.parent}")
    if (interrupted := newest_resumable(run)) is not None:
        return CheckpointError(
            f"{run} was stopped before its first checkpoint, and there is nothing to average",
            f"the command that began it resumes it; `aiayn translate --model {run}` takes {interrupted.name} as it is",
        )
    return CheckpointError(f"{run} has no checkpoints", "train it with `aiayn train`, or name another run")


def best_by_validation(run: Path, found: Sequence[Path], wanted: int) -> list[Path]:
    """The best `wanted` of a run's checkpoints by the recipe's metric, read from metrics.jsonl."""
    metric = load_recipe(str(run / "recipe.yaml")).training.best_metric
    records = [each for each in read_metrics(run / "metrics.jsonl") if each["event"] == "validation"]
    # Of a step that was repeated after a crash, the last record counts; null stands for a value that is not finite.
    values = {str(record["step"]): record.get(metric) for record in records}
    # A copy that the user renamed has no update in its name.
    of_checkpoint = {each: values.get(each.name.rpartition("-")[2].lstrip("0")) for each in found}
    validated = {checkpoint: value for checkpoint, value in of_checkpoint.items() if value is not None}
    if not validated:
        raise CheckpointError(
            f"no checkpoint of {run} has a validation {metric} in metrics.jsonl", "choose with --last or --steps"
        )
    if len(validated) < wanted:
        logs.notice(f"{run} has {len(validated)} checkpoints with a validation {metric}, fewer than {wanted}")
    sign = -1 if metric == "bleu" else 1
    later_first = reversed(validated)  # the later of equally good ones
    return sorted(later_first, key=lambda checkpoint: sign * validated[checkpoint])[:wanted]


def _named(paths: Sequence[Path], out: Path | None) -> Choice:
    # A checkpoint, a link to it and a copy of it have the same files.
    found = [load_checkpoint(path) for path in paths]
    by_files = {(each.step, *each.files.items()) if each.files else each.path.resolve(): each for each in found}
    unique = list(by_files.values())
    if len(unique) < len(paths):
        logs.notice(f"{len(paths)} checkpoints were named, of which {len(unique)} differ; each counts once")
    folder = unique[0].path.resolve().parent
    is_in_run = folder.name == "checkpoints"
    if out is None and not is_in_run:
        raise UsageError(f"{unique[0].path} is not in a run, so the result has no place", "add --out FOLDER")
    run = folder.parent if is_in_run else None
    return Choice(_related(unique), out or folder.parent / "averaged", run)


def _in_range(run: Path, found: Sequence[Path], steps: str) -> list[Path]:
    match = _STEPS.fullmatch(steps.replace(" ", ""))
    if not match or not any(match.groups()):
        raise UsageError(f"--steps is {steps!r}, but must be a range of updates", "write it like 3000-6000, or 3000-")
    first, last = match.groups()
    numbers = {path: int(path.name.partition("-")[2]) for path in found}
    inside = [path for path, n in numbers.items() if int(first or 0) <= n <= int(last or n)]
    if not inside:
        known = ", ".join(map("{:,}".format, numbers.values()))
        raise CheckpointError(f"{run} has no checkpoint of the updates {steps}", f"its checkpoints are of {known}")
    return inside


def _related(found: Iterable[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints in the order of their steps; they must be of one run."""
    checkpoints = sorted(found, key=lambda checkpoint: checkpoint.step)
    first = checkpoints[0]
    for other in checkpoints[1:]:
        same = {
            "runs": first.run_id == other.run_id,
            "vocabularies": first.vocab_sha256 == other.vocab_sha256,
            "model shapes": replace(first.model, **_NO_DROPOUT) == replace(other.model, **_NO_DROPOUT),
        }
        if different := [what for what, is_same in same.items() if not is_same]:
            problem = f"{first.path} and {other.path} are of different {different[0]}"
            raise CheckpointError(problem, "average checkpoints of one run")
    return checkpoints
