"""`aiayn average`: the mean of checkpoints' weights (paper, Section 6.1), written as one model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.average.choice import AverageOptions, Choice, choose
from aiayn_cli.checkpoint.checkpoint import Checkpoint, save_checkpoint
from aiayn_cli.errors import CheckpointError
from aiayn_cli.score.result import text_table


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

    model: Path  # the directory of the averaged model
    checkpoints: tuple[str, ...]  # names of those averaged, in the order of their steps; "NAME/ema" is a moving average
    trials: tuple[Trial, ...] = ()  # of a search
    verdict: str = ""  # of a search, in words

    def __str__(self) -> str:
        line = f"{self.model}: {self.checkpoints[0]}"
        if len(self.checkpoints) > 1:
            names = f"{self.checkpoints[0]} to {self.checkpoints[-1]}"
            line = f"{self.model}: average of {len(self.checkpoints)} checkpoints, {names}"
        if not self.trials:
            return line
        rows = [["average", "checkpoints", "BLEU", "difference", "p"]]
        for trial in self.trials:
            tested = ["-", "-"] if trial.p is None else [f"{trial.difference:+.2f}", f"{trial.p:.4f}"]
            rows.append([trial.name, f"{len(trial.checkpoints)}", f"{trial.bleu:.2f}", *tested])
        return f"{text_table(rows)}\n{self.verdict}\n{line}"


def run_average(paths: Sequence[Path], options: AverageOptions) -> AverageResult:
    """Average the weights of checkpoints or one run (nothing = the newest run), without a search."""
    choice = choose(paths, options)
    if not options.ema:
        known = [each.low_confidence for each in choice.checkpoints if each.low_confidence is not None]
        threshold = fmean(known) if known else None
        return save_average(choice, mean_weights(choice.checkpoints), names_of(choice.checkpoints), threshold)
    newest = choice.checkpoints[-1]
    if not (weights := newest.moving_average()):
        raise CheckpointError(
            f"{newest.path} holds no moving average",
            "train with --set training.ema_decay=0.9999, or average checkpoints with --last",
        )
    return save_average(choice, weights, (f"{newest.path.name}/ema",), newest.low_confidence)


def names_of(checkpoints: Sequence[Checkpoint]) -> tuple[str, ...]:
    return tuple(checkpoint.path.name for checkpoint in checkpoints)


def save_average(
    choice: Choice, weights: dict[str, Tensor], parents: tuple[str, ...], low_confidence: float | None
) -> AverageResult:
    newest = choice.checkpoints[-1]
    result = replace(newest, path=choice.target, parents=parents, low_confidence=low_confidence)
    save_checkpoint(result, weights, newest.vocab_path)
    return AverageResult(result.path, parents)


def mean_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    total = WeightSum()
    with logs.progress("averaging", len(checkpoints), "checkpoints") as progress:
        for checkpoint in checkpoints:
            total.add(checkpoint)
            progress.advance(1)
    return total.mean()


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
            if name in self._total and weight.shape != self._total[name].shape:
                shapes = f"{list(weight.shape)}, not {list(self._total[name].shape)}"
                raise CheckpointError(f"{checkpoint.path}: {name} has shape {shapes}", "the checkpoint is damaged")
            if name in self._total:
                self._total[name] += weight.float()
            else:
                self._total[name] = weight.to(torch.float32, copy=True)
        self.count += 1

    def mean(self) -> dict[str, Tensor]:
        """The mean so far; more may be added after."""
        return {name: total / self.count for name, total in self._total.items()}
