"""What `aiayn average` does: choose checkpoints, average their weights (paper, Section 6.1), write one model."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints, newest_resumable, newest_run, no_such_run, update_of
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.recipe import load_recipe
from aiayn_cli.score.result import text_table

_STEPS = re.compile(r"(\d*)-(\d*)")
# Dropout can change during a run.
_NO_DROPOUT: dict[str, Any] = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


@dataclass(frozen=True, kw_only=True)
class AverageOptions:
    """Options of `aiayn average`; a UsageError says which contradict each other."""

    last: int | None = None  # how many of a run's newest checkpoints
    steps: str | None = None  # a range of a run's checkpoints, such as "3000-6000"; either end may be missing
    best: int | None = None  # how many of a run's best checkpoints by validation
    ema: bool = False  # the moving average that training kept, of the newest checkpoint
    search: bool = False  # try several averages on the validation set; `last` or `steps` say among which checkpoints
    data: Path | None = None  # for the search; None = what the run was trained on, as its manifest says
    device: str = "auto"  # of the search
    out: Path | None = None  # folder for the result; None = RUN/averaged

    def __post_init__(self) -> None:
        if self.search and (self.ema or self.best is not None):
            raise UsageError("--search tries --best and --ema anyway", "remove --search, or the others")
        if self.ema and self.chosen:
            raise UsageError(f"--ema and {self.chosen[0]} contradict each other", "give only one")
        if self.data is not None and not self.search:
            raise UsageError("--data needs --search", "only a search translates the validation set")
        if len(self.chosen) > 1:
            raise UsageError(f"{' and '.join(self.chosen)} contradict each other", "give only one")

    @property
    def chosen(self) -> list[str]:
        ways = {"--last": self.last, "--steps": self.steps, "--best": self.best}
        return [name for name, value in ways.items() if value is not None]


@dataclass(frozen=True)
class Choice:
    """Checkpoints of one run in the order of their steps, the folder for the result, and the run, if known."""

    checkpoints: list[Checkpoint]
    target: Path
    run: Path | None


@dataclass(frozen=True)
class Trial:
    """One average of a search."""

    name: str  # such as "last 5", "best 3" or "moving average"
    checkpoints: tuple[str, ...]  # in the order of their steps
    bleu: float  # of the whole validation set
    difference: float = 0.0  # to the last checkpoint alone
    p: float | None = None  # of such a difference by chance, paired bootstrap; None for the last checkpoint itself


@dataclass(frozen=True)
class AverageResult:
    """What `aiayn average` prints."""

    model: Path  # the folder of the averaged model
    checkpoints: tuple[str, ...]  # names of those averaged, in the order of their steps; "NAME/ema" is a moving average
    trials: tuple[Trial, ...] = ()  # of a search
    verdict: str = ""  # of a search, in words

    def __str__(self) -> str:
        names = self.checkpoints
        line = f"{self.model}: {names[0]}"
        if len(names) > 1:
            line = f"{self.model}: average of {len(names)} checkpoints, {names[0]} to {names[-1]}"
        if not self.trials:
            return line
        rows = [["average", "checkpoints", "BLEU", "difference", "p"]]
        for trial in self.trials:
            tested = ["-", "-"] if trial.p is None else [f"{trial.difference:+.2f}", f"{trial.p:.4f}"]
            rows.append([trial.name, f"{len(trial.checkpoints)}", f"{trial.bleu:.2f}", *tested])
        legend = "difference: from the last checkpoint alone; p: probability of a difference this large by chance"
        return f"{text_table(rows)}\n{legend}\n{self.verdict}\n{line}"


def run_average(paths: Sequence[Path], options: AverageOptions) -> AverageResult:
    """Average the weights of checkpoints or one run (nothing = the newest run), without a search."""
    choice = choose(paths, options)
    if not options.ema:
        known = [each.low_confidence for each in choice.checkpoints if each.low_confidence is not None]
        total = WeightSum()
        with logs.progress("averaging", len(choice.checkpoints), "checkpoints") as progress:
            for checkpoint in choice.checkpoints:
                total.add(checkpoint)
                progress.advance(1)
        return save_average(choice, total.mean(), names_of(choice.checkpoints), fmean(known) if known else None)
    newest = choice.checkpoints[-1]
    if not (weights := newest.moving_average()):
        raise CheckpointError(
            f"{newest.path} holds no moving average",
            "train with --set training.ema_decay=0.9999, or average checkpoints with --last",
        )
    return save_average(choice, weights, (f"{newest.path.name}/ema",), newest.low_confidence)


def choose(paths: Sequence[Path], options: AverageOptions) -> Choice:
    """Find the checkpoints: those of `paths`, or of the run that it names, or of the newest run of the working folder.

    Without `last`, `steps` and `best` a search takes all, other averages the recipe's average_last newest ones. The
    result replaces nothing but an earlier average.
    """
    if len(paths) > 1 or (paths and (paths[0] / "model.json").is_file()):
        if options.chosen:
            raise UsageError(f"{options.chosen[0]} needs a run, not named checkpoints", "remove one of the two")
        if options.ema and len(paths) > 1:
            raise UsageError(f"--ema takes one checkpoint's moving average, not {len(paths)}", "name one checkpoint")
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
    if (newest := update_of(found[-1])) < training.max_updates:
        logs.notice(f"{run} is at update {newest:,} of {training.max_updates:,}: average it again when it is finished")
    wanted = options.last or training.average_last
    chosen = found[-wanted:]
    if len(chosen) < wanted:
        logs.notice(f"{run} has only {logs.counted(len(chosen), 'checkpoint')}, fewer than {wanted}")
    if len(chosen) > 1 and update_of(chosen[0]) < 2 * training.warmup_steps:
        logs.warning(
            f"{chosen[0].name} is from early training (warm-up: {logs.counted(training.warmup_steps, 'update')}), so "
            f"the average may be worse than the last checkpoint: try `aiayn average {run} --search`"
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
        return no_such_run(run)
    if run.name == "checkpoints" and list_checkpoints(run.parent):
        return CheckpointError(f"{run} is part of a run", f"name the run: {run.parent}")
    if (interrupted := newest_resumable(run)) is not None:
        return CheckpointError(
            f"{run} was stopped before its first checkpoint, so there is nothing to average",
            f"resume it by the same command, or translate with {interrupted.name}: `aiayn translate --model {run}`",
        )
    return CheckpointError(f"{run} has no checkpoints", "train it with `aiayn train`, or name another run")


def best_by_validation(run: Path, found: Sequence[Path], wanted: int) -> list[Path]:
    """The best `wanted` of a run's checkpoints by the recipe's metric, read from metrics.jsonl."""
    metric = load_recipe(str(run / "recipe.yaml")).training.best_metric
    name = metric.replace("bleu", "BLEU")
    records = [each for each in read_metrics(run / "metrics.jsonl") if each["event"] == "validation"]
    # Of a step that was repeated after a crash, the last record counts; null stands for a value that is not finite.
    values = {str(record["step"]): record.get(metric) for record in records}
    # A copy that the user renamed has no update in its name.
    of_checkpoint = {each: values.get(each.name.rpartition("-")[2].lstrip("0")) for each in found}
    validated = {checkpoint: value for checkpoint, value in of_checkpoint.items() if value is not None}
    if not validated:
        raise CheckpointError(
            f"no checkpoint of {run} has a validation {name} in metrics.jsonl", "choose with --last or --steps"
        )
    if len(validated) < wanted:
        checkpoints = logs.counted(len(validated), "checkpoint")
        logs.notice(f"{run} has only {checkpoints} with a validation {name}, fewer than {wanted}")
    sign = -1 if metric == "bleu" else 1
    later_first = reversed(validated)  # the later of equally good ones
    return sorted(later_first, key=lambda checkpoint: sign * validated[checkpoint])[:wanted]


def _named(paths: Sequence[Path], out: Path | None) -> Choice:
    # A checkpoint, a link to it and a copy of it have the same files.
    found = [load_checkpoint(path) for path in paths]
    by_files = {(each.step, *each.files.items()) if each.files else each.path.resolve(): each for each in found}
    unique = list(by_files.values())
    if len(unique) < len(paths):
        logs.notice(f"{len(paths)} checkpoints named, {len(unique)} different; each counts once")
    folder = unique[0].path.resolve().parent
    is_in_run = folder.name == "checkpoints"
    if out is None and not is_in_run:
        raise UsageError(f"{unique[0].path} is not in a run, so the result has no place", "add --out FOLDER")
    return Choice(_related(unique), out or folder.parent / "averaged", folder.parent if is_in_run else None)


def _in_range(run: Path, found: Sequence[Path], steps: str) -> list[Path]:
    match = _STEPS.fullmatch(steps.replace(" ", ""))
    if not match or not any(match.groups()):
        raise UsageError(f"--steps is {steps!r}, but must be a range of updates", "write it like 3000-6000, or 3000-")
    first, last = match.groups()
    inside = [path for path in found if int(first or 0) <= update_of(path) <= int(last or update_of(path))]
    if not inside:
        known = ", ".join(f"{update_of(path):,}" for path in found)
        raise CheckpointError(f"{run} has no checkpoint from updates {steps}", f"it has those from updates {known}")
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


def names_of(checkpoints: Sequence[Checkpoint]) -> tuple[str, ...]:
    return tuple(checkpoint.path.name for checkpoint in checkpoints)


def save_average(
    choice: Choice, weights: dict[str, Tensor], parents: tuple[str, ...], low_confidence: float | None
) -> AverageResult:
    newest = choice.checkpoints[-1]
    result = replace(newest, path=choice.target, parents=parents, low_confidence=low_confidence)
    save_checkpoint(result, weights, newest.vocab_path)
    return AverageResult(result.path, parents)


class WeightSum:
    """A sum of weights in float32, whatever type they are stored in; one checkpoint is in memory at a time.

    Shared matrices are stored once in a checkpoint, so they count once.
    """

    def __init__(self) -> None:
        self._total: dict[str, Tensor] = {}
        self.count = 0  # checkpoints so far

    def add(self, checkpoint: Checkpoint) -> None:
        weights = checkpoint.weights()
        if self.count and weights.keys() != self._total.keys():
            odd = min(weights.keys() ^ self._total.keys())
            raise CheckpointError(
                f"{checkpoint.path} differs from the others in {odd}", "average one run's checkpoints"
            )
        for name, weight in weights.items():
            total = self._total.get(name)
            if total is None:
                self._total[name] = weight.to(torch.float32, copy=True)
            elif total.shape != weight.shape:
                shapes = f"{list(weight.shape)}, not {list(total.shape)}"
                raise CheckpointError(f"{checkpoint.path}: {name} has shape {shapes}", "the checkpoint is damaged")
            else:
                total += weight.float()
        self.count += 1

    def mean(self) -> dict[str, Tensor]:
        """The mean so far; more may be added after."""
        return {name: total / self.count for name, total in self._total.items()}
