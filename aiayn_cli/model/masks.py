"""Masks of attention: bool, True = may attend (torch's own convention)."""

import torch
from torch import Tensor


def padding_mask(is_token: Tensor) -> Tensor:
    """Let every query see the real tokens of its sentence.

    Args:
        is_token: bool [batch, src_len], True = a real token, False = padding.
    Returns:
        bool [batch, 1, 1, src_len], to be broadcast over heads and queries.
    """
    return is_token[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Let each position see itself and what comes before it (paper, Section 3.2.3).

    Returns:
        bool [1, 1, length, length].
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


class Causal:
    """Stands in the place of causal_mask() where queries and keys are as many.

    A kernel that is told so need not read a mask; torch's flash attention takes none.
    """


def contiguous(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Bring numbers into another type and in order, in one pass; the tensor itself where it is both already."""
    return x.to(dtype, memory_format=torch.contiguous_format)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The same mask as numbers to be added to attention scores: 0 = may attend, -inf = hidden (Section 3.2.3)."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
