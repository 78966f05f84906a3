"""The mean of checkpoints' weights."""

import torch
from torch import Tensor

from aiayn_cli.checkpoint.format import Checkpoint
from aiayn_cli.errors import CheckpointError


class WeightSum:
    """A sum of weights in float32, whatever type they are stored in; one checkpoint is in memory at a time.

    Shared matrices are stored once in a checkpoint, so they count once. What is no floating-point number, such as a
    counter, has no mean: it is taken from the checkpoint of the latest update.

    Attributes:
        count: checkpoints so far.
    """

    def __init__(self) -> None:
        self._total: dict[str, Tensor] = {}
        self._latest = -1
        self.count = 0

    def add(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint's weights.

        Raises:
            CheckpointError: it is damaged, has weights that are not finite, or has others than those before.
        """
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
            if not weight.is_floating_point():
                if checkpoint.step > self._latest or name not in self._total:
                    self._total[name] = weight.clone()
            elif name in self._total:
                self._total[name] += weight.float()
            else:
                self._total[name] = weight.to(torch.float32, copy=True)
        self._latest = max(self._latest, checkpoint.step)
        self.count += 1

    def mean(self) -> dict[str, Tensor]:
        """The mean so far; more may be added after."""
        return {
            name: total / self.count if total.is_floating_point() else total.clone()
            for name, total in self._total.items()
        }
