"""Adam and its learning rate (paper, Section 5.3), on one flat float32 copy of all weights.

The network may compute in bf16, whose steps are too coarse to add small updates to; the float32 copy (the master
weights) receives them. Being flat, it is updated by one kernel, its gradient is one tensor to reduce over devices, and
its norm is one operation.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from aiayn_cli.checkpoint.checkpoint import EMA_PREFIX
from aiayn_cli.errors import CheckpointError
from aiayn_cli.recipe_keys import TrainingConfig
from aiayn_cli.train.distributed import Worker

_EMA_UPDATES = "ema_updates"  # its name in a checkpoint's moments.safetensors
_NEW_IN_MEAN = 0.05  # share of the newest gradient's norm in the running mean
_OTHER_RECIPE = "resume with the recipe that the run was started with"


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5); steps count from 1."""
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


class MasterAdam:
    """Adam for a model on its device, whose parameters become views of one flat tensor.

    With ema_decay it keeps a moving average too: average = decay * average + (1 - decay) * weights. After
    n updates the decay is at most (1 + n) / (10 + n) (TensorFlow's ExponentialMovingAverage with num_updates).
    `weights` are float32 values to start from, by parameter name; None takes the model's own.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, weights: dict[str, Tensor] | None = None) -> None:
        named = dict(model.named_parameters())  # shared parameters once
        device, self._dtype = next((p.device, p.dtype) for p in named.values())
        self._named, self._sizes = named, [p.numel() for p in named.values()]
        source = named if weights is None else weights
        flat = torch.cat([source[name].detach().to(device, torch.float32).flatten() for name in named])
        self._master, self._gradient = flat, torch.zeros_like(flat)
        self._outdated = False  # whether the gradient is that of an earlier step, to be overwritten
        self._computed = flat.to(self._dtype)  # in float32 the master weights themselves
        for name, value in self._by_name(self._computed).items():
            named[name].data = value
        self._config = config
        self._mean, self._mean_of_squares = torch.zeros_like(flat), torch.zeros_like(flat)
        self._steps = torch.zeros((), device=device if device.type == "cuda" else "cpu")  # where the kernel wants it
        self._skipped: Tensor | None = None  # 1 or 0 for the next step; None = always take it
        self._average = flat.clone() if config.ema_decay else None
        self._average_updates = 0
        self.usual_norm = torch.zeros((), device=device)  # running mean of those that were applied; 0 before the first
        if self._dtype is torch.float32:
            for name, part in self._by_name(self.gradient).items():
                named[name].grad = part

    def _by_name(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat tensor, in the parameters' shapes."""
        parts = torch.split(flat, self._sizes)
        return {name: part.view(p.shape) for (name, p), part in zip(self._named.items(), parts, strict=True)}

    @property
    def gradient(self) -> Tensor:
        """Float32 [parameters]: the sum of the gradients of all backward passes since the last step."""
        if self._outdated:
            self._gradient.zero_()
            self._outdated = False
        return self._gradient

    def accumulate(self) -> None:
        """Add the gradients of a backward pass; call after each one."""
        if self._dtype is torch.float32:
            return  # backward passes add to views of the flat gradient
        # The first pass overwrites, which saves filling with zeros and adding to them.
        first, self._outdated = self._outdated, False
        for p, total in zip(self._named.values(), torch.split(self.gradient, self._sizes), strict=True):
            if p.grad is None:
                if first:
                    total.zero_()
            elif first:
                total.copy_(p.grad.flatten())
            else:
                total.add_(p.grad.flatten())
            p.grad = None

    def limit_norm(self, most: float, exploding: float = 0.0) -> tuple[Tensor, Tensor]:
        """Scale the gradient down to a norm; the next step is skipped if the gradient is not finite or explodes.

        All is decided on the device, so that the host need not wait for it.

        Args:
            most: largest norm; 0 = no limit.
            exploding: how many times the usual norm is too much; 0 = no limit.
        Returns:
            The norm before scaling, and whether the step will be skipped (1 or 0): float32 scalars on the device.
        """
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        if most:
            self.gradient.mul_((most / norm).clamp(max=1.0))
        good, usual = norm.isfinite(), self.usual_norm
        if exploding:
            good = good & ((norm <= exploding * usual) | (usual == 0))
        mean = torch.where(usual == 0, norm, torch.lerp(usual, norm, _NEW_IN_MEAN))
        self.usual_norm = torch.where(good, mean, usual)
        self._skipped = good.logical_not().float()
        return norm, self._skipped

    def step(self, learning_rate: float) -> None:
        # What torch.optim.Adam calls; creating one takes more than a second, since it loads parts of torch.compile.
        # found_inf is how torch's GradScaler tells a fused optimizer to skip a step.
        adam(
            [self._master], [self.gradient], [self._mean], [self._mean_of_squares], [], [self._steps],
            lr=learning_rate, beta1=self._config.adam_beta1, beta2=self._config.adam_beta2, eps=self._config.adam_eps,
            weight_decay=0.0, amsgrad=False, maximize=False, fused=True, found_inf=self._skipped,
        )  # fmt: skip
        self._skipped = None
        if self._average is not None:
            decay = min(self._config.ema_decay, (1 + self._average_updates) / (10 + self._average_updates))
            self._average.lerp_(self._master, 1 - decay)
            self._average_updates += 1
        if self._dtype is not torch.float32:
            self._computed.copy_(self._master)
        self.clear()

    def is_finite(self) -> bool:
        """Whether all weights and moments are finite; waits for the device."""
        return all(bool(t.isfinite().all()) for t in (self._master, self._mean, self._mean_of_squares))

    def clear(self) -> None:
        if self._dtype is torch.float32:
            self.gradient.zero_()  # now, since backward passes add to it
            return
        self._outdated = True
        for p in self._named.values():
            p.grad = None

    def spread(self, worker: Worker, step: int) -> None:
        """Take rank 0's weights and moments after `step` updates; only its disk needs the run's folder."""
        moments = self.moments()
        for tensor in (self._master, *moments.values()):
            worker.spread(tensor)
        self._computed.copy_(self._master)
        self.load_moments(moments, step)

    def weights(self) -> dict[str, Tensor]:
        """The float32 weights by parameter name, as views."""
        return self._by_name(self._master)

    def moments(self) -> dict[str, Tensor]:
        """Adam's running means of the gradient and of its square, float32 [parameters] each; and the moving average."""
        moments = {"exp_avg": self._mean, "exp_avg_sq": self._mean_of_squares}
        if self._average is not None:
            moments |= {f"{EMA_PREFIX}{name}": part for name, part in self._by_name(self._average).items()}
            moments[_EMA_UPDATES] = self._average.new_tensor([float(self._average_updates)])
        return moments

    def load_moments(self, moments: Mapping[str, Tensor], step: int) -> None:
        """Restore moments() after `step` updates; CheckpointError if they are of another model."""
        for name, mine in (("exp_avg", self._mean), ("exp_avg_sq", self._mean_of_squares)):
            if name not in moments or moments[name].shape != mine.shape:
                raise CheckpointError(f"the optimizer state has no {name} of {mine.numel()} numbers", _OTHER_RECIPE)
            if moments[name].dtype != torch.float32:
                kind = str(moments[name].dtype).removeprefix("torch.")
                raise CheckpointError(f"{name} of the optimizer state is {kind}, not float32", "use another checkpoint")
            mine.copy_(moments[name])
        if (least := float(self._mean_of_squares.min())) < 0:
            problem = f"exp_avg_sq of the optimizer state holds {least:g}, but no square is negative"
            raise CheckpointError(problem, "use another checkpoint")
        self._steps.fill_(step)
        if self._average is None or _EMA_UPDATES not in moments:
            return
        try:
            parts = [moments[f"{EMA_PREFIX}{name}"].reshape(p.shape).flatten() for name, p in self._named.items()]
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"the moving average is of another model: {error}", _OTHER_RECIPE) from error
        self._average.copy_(torch.cat(parts))
        self._average_updates = int(moments[_EMA_UPDATES])
