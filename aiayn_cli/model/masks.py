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


def window_mask(length: int, reach: int, device: torch.device) -> Tensor:
    """Let each position see its neighbourhood only: restricted self-attention (paper, Section 4).

    Args:
        length: positions.
        reach: how many positions to each side are seen, at least 1.
    Returns:
        bool [1, 1, length, length].
    """
    positions = torch.arange(length, device=device)
    return ((positions[:, None] - positions).abs() <= reach)[None, None]


def combine(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """What both masks allow; None allows everything."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The same mask as numbers to be added to attention scores: 0 = may attend, -inf = hidden (Section 3.2.3)."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
