"""Dropout (paper, Section 5.4) with masks that are cheap on a CPU.

torch draws one Bernoulli variable per element, which took a sixth of a training step on a CPU. Here 16 random bits
decide: the probability is rounded to a multiple of 1 / 65,536, and kept elements are scaled by the rounded one, so that
the expectation is exact. The bits are the XOR of two slices, at random offsets, of two pools that are drawn for each
seed of torch's generator (training seeds it for every micro-batch). Any two elements of all masks are dropped
independently, unless two pairs of slices happen to have the same relative offset; a mask takes a quarter of the time of
drawing all its numbers.

Other devices, and torch.compile, which cannot trace numpy's generator, use torch's dropout.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

_STEPS = 1 << 16  # values of a 16-bit random number
_POOL = 1 << 19  # numbers in each pool: 1 MB, so that both stay in a core's cache
_STRETCH = _POOL // 2  # most numbers used from one place on


def dropout(x: Tensor, probability: float) -> Tensor:
    """Set each element to 0 with the given probability and scale the others by 1 / (1 - probability)."""
    if probability == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.dropout(x, probability)
    return _DropoutAdd.apply(x, None, probability)  # type: ignore[no-any-return,no-untyped-call]


def dropout_add(x: Tensor, residual: Tensor, probability: float) -> Tensor:
    """Residual + dropout(x), both of one shape, in fewer passes over memory."""
    if probability == 0:
        return residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return residual + functional.dropout(x, probability)
    return _DropoutAdd.apply(x, residual, probability)  # type: ignore[no-any-return,no-untyped-call]


def rounded_probability(probability: float) -> int:
    """In 65,536ths, neither 0 nor 1."""
    return min(max(round(probability * _STEPS), 1), _STEPS - 1)


def scale_of_kept(rounded: int) -> float:
    """1 / (1 - probability), from rounded_probability(): the expectation stays the same."""
    return _STEPS / (_STEPS - rounded)


def kept_mask(shape: torch.Size, rounded: int, dtype: torch.dtype) -> Tensor:
    """1 where an element is kept, with probability 1 - rounded / 65,536, else 0."""
    kept = torch.empty(shape, dtype=dtype)
    parts = torch.split(kept.view(-1), _STRETCH)
    one, other = _pools(torch.initial_seed())
    places = torch.randint(_POOL - _STRETCH + 1, (len(parts), 2)).tolist()
    for part, (i, j) in zip(parts, places, strict=True):
        numbers = one[i : i + len(part)] ^ other[j : j + len(part)]
        torch.ge(numbers, rounded - _STEPS // 2, out=part)  # int16, from -32,768 on
    return kept


def lose(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    """scale * x where the mask is 1, else 0, in one pass."""
    return torch.addcmul(x.new_zeros(()), x, kept, value=scale)


@lru_cache(maxsize=1)
def _pools(seed: int) -> Tensor:
    """Random 16-bit numbers, all values equally likely: int16 [2, _POOL]."""
    generator = np.random.Generator(np.random.SFC64(seed))
    bits = generator.integers(0, (1 << 64) - 1, size=2 * _POOL // 4, dtype=np.uint64, endpoint=True)
    return torch.from_numpy(bits.view(np.int16)).view(2, _POOL)


class _DropoutAdd(torch.autograd.Function):
    """residual + scale * (x with some elements set to 0); the residual may be missing."""

    @staticmethod
    def forward(ctx, x: Tensor, residual: Tensor | None, probability: float) -> Tensor:  # type: ignore[no-untyped-def]
        rounded = rounded_probability(probability)
        ctx.scale = scale_of_kept(rounded)
        kept = kept_mask(x.shape, rounded, x.dtype)
        ctx.save_for_backward(kept)
        return lose(x, kept, ctx.scale) if residual is None else torch.addcmul(residual, x, kept, value=ctx.scale)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:  # type: ignore[no-untyped-def]
        (kept,) = ctx.saved_tensors
        return lose(grad, kept, ctx.scale), grad if ctx.needs_input_grad[1] else None, None
