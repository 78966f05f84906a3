"""`aiayn average`: several checkpoints of one run -> one model with the mean of their weights (paper, Section 6.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.average.choice import Choice, choose
from aiayn_cli.average.mean import WeightSum
from aiayn_cli.average.search import Search, Trial
from aiayn_cli.checkpoint.format import Checkpoint, at, load_checkpoint, save_checkpoint
from aiayn_cli.errors import CheckpointError, UsageError


@dataclass(frozen=True)
class AverageResult:
    """What `aiayn average` prints.

    Attributes:
        model: the directory of the averaged model.
        checkpoints: names of what was averaged, in the order of their steps; "NAME/ema" is its moving average.
        trials: what --search tried; empty without it.
        verdict: what came of the search, in words; "" without it.
    """

    model: Path
    checkpoints: tuple[str, ...]
    trials: tuple[Trial, ...] = ()
    verdict: str = ""

    def __str__(self) -> str:
        names = f"{self.checkpoints[0]} to {self.checkpoints[-1]}"
        line = f"{self.model}: average of {len(self.checkpoints)} checkpoints, {names}"
        if len(self.checkpoints) == 1:
            line = f"{self.model}: {self.checkpoints[0]}"
        return "\n".join([*([Trial.table(self.trials), self.verdict] if self.trials else []), line])


def run_average(
    paths: Sequence[Path] = (),
    *,
    last: int | None = None,
    steps: str | None = None,
    best: int | None = None,
    ema: bool = False,
    search: bool = False,
    data: Path | None = None,
    device: str = "auto",
    out: Path | None = None,
) -> AverageResult:
    """Average the weights of checkpoints.

    Args:
        paths: checkpoints, or one run; nothing = the newest run of the working folder.
        last, steps, best: which of a run's checkpoints, as in choose().
        ema: take the moving average that training kept, of the newest of them.
        search: try several averages on the validation set, and keep the best; `last` and `steps` then say among which
            checkpoints, without them among all.
        data: prepared data for the search; None = what the run was trained on, where its manifest says it is.
        device: of the search, as in choose_device().
        out: directory for the result; None = RUN/averaged.
    Raises:
        AiaynError: they are missing, or of different runs, shapes or vocabularies.
    """
    if search and (ema or best is not None):
        raise UsageError("--search tries --best and --ema anyway", "leave out --search, or the others")
    if ema and (best is not None or steps is not None or last is not None):
        raise UsageError("--ema takes one checkpoint's moving average", "name that checkpoint, or leave out the others")
    if data is not None and not search:
        raise UsageError("--data without --search", "only a search translates the validation set")
    if ema and len(paths) > 1:
        raise UsageError(f"--ema takes one checkpoint's moving average, not {len(paths)}", "name that checkpoint")
    if ema and not (paths and (paths[0] / "model.json").is_file()):
        last = 1  # a damaged checkpoint before the newest does not matter
    every = search and last is None and steps is None
    choice = choose(paths, last=last, steps=steps, best=best, every=every, out=out)
    _check_is_free(choice.target)
    if search:
        return _run_search(choice, data, device)
    if ema:
        newest = choice.checkpoints[-1]
        return _save(choice, _moving_average(newest), (f"{newest.path.name}/ema",))
    names = tuple(checkpoint.path.name for checkpoint in choice.checkpoints)
    return _save(choice, mean_weights(choice.checkpoints), names)


def mean_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of each weight, summed in float32 with one checkpoint in memory at a time."""
    total = WeightSum()
    with logs.progress("averaging", len(checkpoints), "checkpoints") as progress:
        for checkpoint in checkpoints:
            total.add(checkpoint)
            progress.advance(1)
    return total.mean()


def _run_search(choice: Choice, data: Path | None, device: str) -> AverageResult:
    search = Search(choice, data, device)
    trials, winner = search.run()
    weights = search.weights(winner)
    saved = _save(choice, weights, winner.checkpoints)
    return AverageResult(saved.model, saved.checkpoints, tuple(trials), search.verdict(winner))


def _moving_average(checkpoint: Checkpoint) -> dict[str, Tensor]:
    weights = checkpoint.moving_average()
    if not weights:
        raise CheckpointError(
            f"{checkpoint.path} holds no moving average",
            "train with --set training.ema_decay=0.9999, or average checkpoints with --last",
        )
    return weights


def _save(choice: Choice, weights: dict[str, Tensor], parents: tuple[str, ...]) -> AverageResult:
    newest = choice.checkpoints[-1]
    result = at(newest, choice.target, parents=parents)
    save_checkpoint(result, weights, newest.vocab_path)
    return AverageResult(result.path, parents)


def _check_is_free(target: Path) -> None:
    """Refuse to replace anything but an earlier average."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        is_average = (target / "model.json").is_file() and bool(load_checkpoint(target).parents)
    except CheckpointError as error:  # perhaps an average, but nothing that cannot be read is thrown away
        raise CheckpointError(error.problem, f"move {target} away, or give another --out") from error
    if not is_average:
        raise CheckpointError(f"{target} exists and is not an averaged model", "give another --out")
