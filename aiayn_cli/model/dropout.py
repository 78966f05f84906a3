"""Dropout (paper, Section 5.4) with masks that are cheap on a CPU.

torch draws one Bernoulli variable per element there, which took a sixth of a training step. Here one 64-bit
random number serves four elements, 16 bits each: the probability is rounded to a multiple of 1 / 65,536, and the
kept elements are scaled by the rounded probability, so that the expectation is exact. On other devices, and where
torch.compile makes kernels of its own (and cannot trace views of another type), it is torch's dropout.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_STEPS = 1 << 16  # values of a 16-bit random number


def dropout(x: Tensor, probability: float) -> Tensor:
    """Set each element to 0 with the given probability and scale the others by 1 / (1 - probability).

    Args:
        x: any shape and floating type.
        probability: of an element's loss; 0 returns x itself.
    """
    if probability == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.dropout(x, probability)
    return _DropoutAdd.apply(x, None, probability)  # type: ignore[no-any-return,no-untyped-call]


def dropout_add(x: Tensor, residual: Tensor, probability: float) -> Tensor:
    """Residual + dropout(x) in fewer passes over memory; x and residual have one shape, and so has the result."""
    if probability == 0:
        return residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return residual + functional.dropout(x, probability)
    return _DropoutAdd.apply(x, residual, probability)  # type: ignore[no-any-return,no-untyped-call]


def rounded_probability(probability: float) -> int:
    """A probability in 65,536ths, neither 0 nor 1."""
    return min(max(round(probability * _STEPS), 1), _STEPS - 1)


def scale_of_kept(rounded: int) -> float:
    """1 / (1 - probability), from rounded_probability(): the expectation stays the same."""
    return _STEPS / (_STEPS - rounded)


def kept_mask(shape: torch.Size, rounded: int) -> Tensor:
    """int16 mask, all bits set where an element is kept, with probability 1 - rounded / 65,536."""
    count = shape.numel()
    # torch's own generator gives the seed, so that torch.manual_seed() fixes this too, but it is half as fast.
    seed = int(torch.empty((), dtype=torch.int64).random_())
    generator = np.random.Generator(np.random.SFC64(seed))
    bits = generator.integers(0, (1 << 64) - 1, size=(count + 3) // 4, dtype=np.uint64, endpoint=True)
    numbers = torch.from_numpy(bits.view(np.int16))[:count]
    # Comparing into the same int16 buffer, and clearing elements by a bitwise and, is vectorised on a CPU;
    # comparing into bool and masked_fill are not, and took ten times as long.
    return torch.ge(numbers, rounded - _STEPS // 2, out=numbers).neg_().view(shape)


def clear(x: Tensor, kept: Tensor) -> Tensor:
    """A copy of x with 0 where the mask is not set."""
    if x.element_size() == 2:
        return torch.bitwise_and(x.view(torch.int16), kept).view(x.dtype)
    return x.masked_fill(kept == 0, 0)


class _DropoutAdd(torch.autograd.Function):
    """residual + scale * (x with some elements set to 0); the residual may be missing."""

    @staticmethod
    def forward(ctx, x: Tensor, residual: Tensor | None, probability: float) -> Tensor:  # type: ignore[no-untyped-def]
        rounded = rounded_probability(probability)
        ctx.scale = scale_of_kept(rounded)
        mask = kept_mask(x.shape, rounded)
        ctx.save_for_backward(mask)
        kept = clear(x, mask)
        return kept.mul_(ctx.scale) if residual is None else torch.add(residual, kept, alpha=ctx.scale)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:  # type: ignore[no-untyped-def]
        (mask,) = ctx.saved_tensors
        return clear(grad, mask).mul_(ctx.scale), grad if ctx.needs_input_grad[1] else None, None
