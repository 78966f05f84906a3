"""Dropout (paper, Section 5.4) with masks that are cheap on a CPU.

torch draws one Bernoulli variable per element there, which took a sixth of a training step. Here one 64-bit
random number serves four elements, 16 bits each: the probability is rounded to a multiple of 1 / 65,536, and the
kept elements are scaled by the rounded probability, so that the expectation is exact.
"""

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
    if x.device.type != "cpu":
        return functional.dropout(x, probability)
    return _DropoutAdd.apply(x, None, probability)  # type: ignore[no-any-return,no-untyped-call]


def dropout_add(x: Tensor, residual: Tensor, probability: float) -> Tensor:
    """Residual + dropout(x) in fewer passes over memory; x and residual have one shape, and so has the result."""
    if probability == 0:
        return residual + x
    if x.device.type != "cpu":
        return residual + functional.dropout(x, probability)
    return _DropoutAdd.apply(x, residual, probability)  # type: ignore[no-any-return,no-untyped-call]


def _dropped(shape: torch.Size, rounded: int) -> Tensor:
    """Bool mask, True = dropped, with probability rounded / 65,536, from torch's CPU generator."""
    count = shape.numel()
    bits = torch.empty((count + 3) // 4, dtype=torch.int64).random_(torch.iinfo(torch.int64).min, None)
    return (bits.view(torch.int16)[:count] < rounded - _STEPS // 2).view(shape)


class _DropoutAdd(torch.autograd.Function):
    """residual + scale * (x with some elements set to 0); the residual may be missing."""

    @staticmethod
    def forward(ctx, x: Tensor, residual: Tensor | None, probability: float) -> Tensor:  # type: ignore[no-untyped-def]
        rounded = min(max(round(probability * _STEPS), 1), _STEPS - 1)
        ctx.scale = _STEPS / (_STEPS - rounded)
        mask = _dropped(x.shape, rounded)
        ctx.save_for_backward(mask)
        kept = x.masked_fill(mask, 0)
        return kept.mul_(ctx.scale) if residual is None else torch.add(residual, kept, alpha=ctx.scale)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:  # type: ignore[no-untyped-def]
        (mask,) = ctx.saved_tensors
        return grad.masked_fill(mask, 0).mul_(ctx.scale), grad if ctx.needs_input_grad[1] else None, None
