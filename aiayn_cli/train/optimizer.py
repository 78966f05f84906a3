"""Adam (paper, Section 5.3) on one flat float32 copy of all weights.

The network may compute in bf16, whose steps are too coarse to add small updates to; the float32 copy (the master
weights) receives them. Being flat, it is updated by one kernel, its gradient is one tensor to reduce over devices, and
its norm is one operation.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from aiayn_cli.checkpoint.checkpoint import EMA_PREFIX
from aiayn_cli.config import TrainingConfig
from aiayn_cli.errors import CheckpointError
from aiayn_cli.train.distributed import Worker

_EMA_UPDATES = "ema_updates"  # its name in a checkpoint's moments.safetensors
_NEW_IN_MEAN = 0.05  # share of the newest gradient's norm in the running mean


class MasterAdam:
    """Adam for a model whose weights it keeps in step with its own float32 ones.

    Attributes:
        usual_norm: running mean of the norms of gradients that were applied; a float32 scalar, 0 before the first.

    Args:
        model: its parameters become views of one flat tensor; call after moving it to its device and dtype.
        weights: float32 values to start from, by parameter name; None takes the model's own.
        config: beta1, beta2 and eps, and the decay of a moving average of the weights.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, weights: dict[str, Tensor] | None = None) -> None:
        named = dict(model.named_parameters())  # shared parameters once
        device, self._dtype = next((p.device, p.dtype) for p in named.values())
        self._sizes = [p.numel() for p in named.values()]
        source = {name: p.detach() for name, p in named.items()} if weights is None else weights
        flat = torch.cat([source[name].to(device, torch.float32).flatten() for name in named])
        self._master = nn.Parameter(flat)
        self._master.grad = torch.zeros_like(flat)
        self._outdated = False  # whether the gradient is that of an earlier step, to be overwritten
        self._computed = self._master.detach() if self._dtype is torch.float32 else flat.to(self._dtype)
        self._named = named
        for p, value in zip(named.values(), torch.split(self._computed, self._sizes), strict=True):
            p.data = value.view(p.shape)
        self._beta1, self._beta2, self._eps = config.adam_beta1, config.adam_beta2, config.adam_eps
        self._mean, self._mean_of_squares = torch.zeros_like(flat), torch.zeros_like(flat)
        self._steps = torch.zeros((), device=device if device.type == "cuda" else "cpu")  # where the kernel wants it
        self._skipped: Tensor | None = None  # 1 or 0 for the step at hand; None = not asked
        self._average = MovingAverage(self._master.detach(), config.ema_decay) if config.ema_decay else None
        self.usual_norm = torch.zeros((), device=device)
        if self._dtype is torch.float32:
            for p, part in zip(named.values(), torch.split(self.gradient, self._sizes), strict=True):
                p.grad = part.view(p.shape)

    @property
    def gradient(self) -> Tensor:
        """Float32 [parameters]: the sum of what backward passes left since the last step."""
        assert self._master.grad is not None
        if self._outdated:
            self._master.grad.zero_()
            self._outdated = False
        return self._master.grad

    def accumulate(self) -> None:
        """Take up the gradients of a backward pass; call after each one."""
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
        # What torch.optim.Adam calls; to make one takes more than a second, since it loads torch.compile's parts.
        adam(
            [self._master.detach()],
            [self.gradient],
            [self._mean],
            [self._mean_of_squares],
            [],
            [self._steps],
            fused=True,
            found_inf=self._skipped,  # how torch's GradScaler tells a fused optimizer to skip a step
            amsgrad=False,
            beta1=self._beta1,
            beta2=self._beta2,
            lr=learning_rate,
            weight_decay=0.0,
            eps=self._eps,
            maximize=False,
        )
        self._skipped = None
        if self._average is not None:
            self._average.update(self._master.detach())
        if self._dtype is not torch.float32:
            self._computed.copy_(self._master.detach())
        self.clear()

    def is_finite(self) -> bool:
        """Whether all weights and moments are finite; waits for the device."""
        return all(bool(t.detach().isfinite().all()) for t in (self._master, self._mean, self._mean_of_squares))

    def clear(self) -> None:
        if self._dtype is torch.float32:
            self.gradient.zero_()  # now, since backward passes add to it
            return
        self._outdated = True
        for p in self._named.values():
            p.grad = None

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, mine in self.weights().items():
            mine.copy_(weights[name])
        self._computed.copy_(self._master.detach())

    def spread(self, worker: Worker, step: int) -> None:
        """Take rank 0's weights and moments, which are of so many updates; its disk alone need have them."""
        moments = self.moments()
        for tensor in (self._master.detach(), *moments.values()):
            worker.spread(tensor)
        self._computed.copy_(self._master.detach())
        self.load_moments(moments, step)

    def weights(self) -> dict[str, Tensor]:
        """The float32 weights by parameter name, as views."""
        parts = torch.split(self._master.detach(), self._sizes)
        return {name: part.view(p.shape) for (name, p), part in zip(self._named.items(), parts, strict=True)}

    def moments(self) -> dict[str, Tensor]:
        """Adam's running means of the gradient and of its square, float32 [parameters] each; and the moving average."""
        average = {} if self._average is None else self._average.state(self.weights())
        return {"exp_avg": self._mean, "exp_avg_sq": self._mean_of_squares, **average}

    def load_moments(self, moments: dict[str, Tensor], step: int) -> None:
        """Restore moments() after the given number of updates; CheckpointError if they are of another model."""
        for name, mine in (("exp_avg", self._mean), ("exp_avg_sq", self._mean_of_squares)):
            if name not in moments or moments[name].shape != mine.shape:
                raise CheckpointError(
                    f"the optimizer state has no {name} of {mine.numel()} numbers",
                    "resume with the recipe that the run was started with",
                )
            if moments[name].dtype != torch.float32:
                kind = str(moments[name].dtype).removeprefix("torch.")
                raise CheckpointError(f"{name} of the optimizer state is {kind}, not float32", "use another checkpoint")
            mine.copy_(moments[name])
        if (least := float(self._mean_of_squares.min())) < 0:
            raise CheckpointError(
                f"exp_avg_sq of the optimizer state holds {least:g}, but no square is negative",
                "use another checkpoint",
            )
        self._steps.fill_(step)
        if self._average is not None:
            self._average.load(moments, self.weights())


class MovingAverage:
    """An exponential moving average of float32 [parameters], as an alternative to averaging checkpoints.

    average = decay * average + (1 - decay) * weights after each update. While fewer than some 10 / (1 - decay) updates
    were made, the decay is (1 + n) / (10 + n) of n updates, so that the initial weights are soon forgotten
    (TensorFlow's ExponentialMovingAverage with num_updates).
    """

    def __init__(self, weights: Tensor, decay: float) -> None:
        self._decay = decay
        self._values = weights.detach().clone()
        self._updates = 0

    @torch.no_grad()
    def update(self, weights: Tensor) -> None:
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        self._values.lerp_(weights, 1 - decay)
        self._updates += 1

    def state(self, named: dict[str, Tensor]) -> dict[str, Tensor]:
        """What a checkpoint keeps: the average by parameter name, in the order of the flat tensor, and updates."""
        parts = torch.split(self._values, [p.numel() for p in named.values()])
        state = {
            f"{EMA_PREFIX}{name}": part.view(p.shape) for (name, p), part in zip(named.items(), parts, strict=True)
        }
        return {**state, _EMA_UPDATES: self._values.new_tensor([float(self._updates)])}

    def load(self, state: dict[str, Tensor], named: dict[str, Tensor]) -> None:
        """Restore state(); a run that had no average begins one with its present weights."""
        if _EMA_UPDATES not in state:
            return
        try:
            parts = [state[f"{EMA_PREFIX}{name}"].reshape(p.shape).flatten() for name, p in named.items()]
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(
                f"the moving average is of another model: {error}",
                "resume with the recipe that the run was started with",
            ) from error
        self._values.copy_(torch.cat(parts))
        self._updates = int(state[_EMA_UPDATES])
