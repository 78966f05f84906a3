"""`aiayn average`: several checkpoints of one run -> one model with the mean of their weights (paper, Section 6.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint import Checkpoint, at, load_checkpoint, save_checkpoint
from aiayn_cli.config import ModelConfig
from aiayn_cli.errors import CheckpointError, UsageError
from aiayn_cli.recipe import load_recipe
from aiayn_cli.run_checkpoints import list_checkpoints, newest_run


@dataclass(frozen=True)
class AverageResult:
    """What `aiayn average` prints.

    Attributes:
        model: the directory of the averaged model.
        checkpoints: names of what was averaged, in the order of their steps.
    """

    model: Path
    checkpoints: tuple[str, ...]

    def __str__(self) -> str:
        names = f"{self.checkpoints[0]} to {self.checkpoints[-1]}"
        return f"{self.model}: average of {len(self.checkpoints)} checkpoints, {names}"


def run_average(paths: Sequence[Path] = (), *, last: int | None = None, out: Path | None = None) -> AverageResult:
    """Average the weights of checkpoints.

    Args:
        paths: checkpoints, or one run; nothing = the newest run of the working folder.
        last: how many of a run's newest checkpoints; None = the recipe's average_last.
        out: directory for the result; None = RUN/averaged.
    Raises:
        AiaynError: they are missing, or of different runs, shapes or vocabularies.
    """
    target, chosen = _choose(paths, last, out)
    _check_is_free(target)
    checkpoints = sorted((load_checkpoint(path) for path in chosen), key=lambda c: c.step)
    _check_related(checkpoints)
    weights = mean_weights(checkpoints)
    newest = checkpoints[-1]
    names = tuple(checkpoint.path.name for checkpoint in checkpoints)
    result = at(newest, target, parents=names)
    save_checkpoint(result, weights, newest.vocab_path)
    return AverageResult(result.path, names)


def mean_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of each weight, summed in float32 with one checkpoint in memory at a time.

    Shared matrices are stored once in a checkpoint, so they count once.
    """
    total: dict[str, Tensor] = {}
    with logs.progress("averaging", len(checkpoints), "checkpoints") as progress:
        for checkpoint in checkpoints:
            weights = checkpoint.weights()
            if total and weights.keys() != total.keys():
                odd = min(weights.keys() ^ total.keys())
                raise CheckpointError(
                    f"{checkpoint.path} differs from the others in {odd}", "average one run's checkpoints"
                )
            for name, weight in weights.items():
                if name in total:
                    total[name] += weight.float()
                else:
                    total[name] = weight.to(torch.float32, copy=True)
            del weights, weight  # before the next checkpoint is opened
            progress.advance(1)
    return {name: weight.div_(len(checkpoints)) for name, weight in total.items()}


def _choose(paths: Sequence[Path], last: int | None, out: Path | None) -> tuple[Path, list[Path]]:
    """Where the result goes, and the checkpoints to average."""
    if len(paths) > 1 or (paths and (paths[0] / "model.json").is_file()):
        if last is not None:
            raise UsageError("--last goes with a run, not with named checkpoints", "leave out one of the two")
        unique = list({path.resolve(): path for path in paths}.values())  # a link to a checkpoint is that checkpoint
        if len(unique) < len(paths):
            logs.notice(f"{len(paths) - len(unique)} checkpoints were named twice and count once")
        folder = unique[0].resolve().parent
        if out is None and folder.name != "checkpoints":
            raise UsageError(f"{unique[0]} is in no run, so the result has no place", "add --out FOLDER")
        return out or folder.parent / "averaged", unique
    run = paths[0] if paths else newest_run()
    if not paths:
        logs.notice(f"averaging the newest run, {run}")
    found = list_checkpoints(run)
    if not found:
        raise CheckpointError(f"{run} has no checkpoints" if run.exists() else f"there is no {run}", "name a run")
    wanted = last if last is not None else load_recipe(str(run / "recipe.yaml")).training.average_last
    if len(found) < wanted:
        logs.notice(f"{run} has {len(found)} checkpoints, fewer than the {wanted} asked for; all are averaged")
    return out or run / "averaged", found[-wanted:]


def _check_is_free(target: Path) -> None:
    """Refuse to replace anything but an earlier average."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / "model.json").is_file() or not load_checkpoint(target).parents:
        raise CheckpointError(f"{target} exists and is not an averaged model", "give another --out")


def _check_related(checkpoints: Sequence[Checkpoint]) -> None:
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


def _shape(checkpoint: Checkpoint) -> ModelConfig:
    """The model without its dropout, which may change during a run."""
    return replace(checkpoint.model, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
