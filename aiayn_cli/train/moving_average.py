"""An exponential moving average of the weights, as an alternative to averaging checkpoints."""

import torch
from torch import Tensor

from aiayn_cli.checkpoint.format import EMA_PREFIX
from aiayn_cli.errors import CheckpointError

_UPDATES = "ema_updates"  # its name in a checkpoint's moments.safetensors


class MovingAverage:
    """average = decay * average + (1 - decay) * weights after each update, in float32.

    While fewer than some 10 / (1 - decay) updates were made, the decay is (1 + n) / (10 + n) of n updates, so that the
    initial weights are soon forgotten (TensorFlow's ExponentialMovingAverage with num_updates).

    Args:
        weights: float32 [parameters] to begin with.
        decay: in (0, 1).
    """

    def __init__(self, weights: Tensor, decay: float) -> None:
        self._decay = decay
        self._values = weights.detach().clone()
        self._updates = 0

    @torch.no_grad()
    def update(self, weights: Tensor) -> None:
        """Take up the weights after an update."""
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        self._values.lerp_(weights, 1 - decay)
        self._updates += 1

    def state(self, named: dict[str, Tensor]) -> dict[str, Tensor]:
        """What a checkpoint keeps: the average by parameter name, and the number of updates.

        Args:
            named: the parameters in the order in which they make up the flat tensor.
        """
        parts = torch.split(self._values, [p.numel() for p in named.values()])
        state = {
            f"{EMA_PREFIX}{name}": part.view(p.shape) for (name, p), part in zip(named.items(), parts, strict=True)
        }
        return {**state, _UPDATES: self._values.new_tensor([float(self._updates)])}

    def load(self, state: dict[str, Tensor], named: dict[str, Tensor]) -> None:
        """Go on from what state() gave; a run that had no average begins one with its present weights.

        Raises:
            CheckpointError: it is of another model.
        """
        if _UPDATES not in state:
            return
        try:
            parts = [state[f"{EMA_PREFIX}{name}"].reshape(p.shape).flatten() for name, p in named.items()]
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"the moving average is of another model: {error}",
                "resume with the recipe that the run was started with",
            ) from error
        self._values.copy_(torch.cat(parts))
        self._updates = int(state[_UPDATES])
