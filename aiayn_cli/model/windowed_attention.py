"""Restricted self-attention (paper, Section 4) in blocks: n * r products of vectors, not n^2 with most of them hidden.

The sequence is cut into blocks of r positions. The queries of a block see the keys of their own block and of the one
before it, and of the one after it where they may look ahead: at most 3 r keys each, however long the sequence is.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_SMALLEST_BLOCK = 16  # positions; products of smaller matrices take as long


@dataclass(frozen=True, eq=False)
class Window:
    """What self-attention may see, where it reaches only so far: stands in the place of a mask.

    Attributes:
        reach: positions to each side, at least 1.
        causal: whether what comes later is hidden.
        is_token: bool [batch, length], True = a real token, False = padding, which is hidden; None = no padding.
    """

    reach: int
    causal: bool
    is_token: Tensor | None = None

    @property
    def block(self) -> int:
        """Positions that are computed together."""
        return max(self.reach, _SMALLEST_BLOCK)

    def pays(self, length: int) -> bool:
        """Whether blocks take fewer products than the whole square does."""
        return length > (2 if self.causal else 3) * self.block

    def mask(self, length: int, device: torch.device) -> Tensor:
        """The same as a mask: bool [batch or 1, 1, length, length], True = may attend; each sees itself."""
        positions = torch.arange(length, device=device)
        seen = self._within(positions - positions[:, None])[None, None]
        if self.is_token is not None:
            seen = seen & self.is_token[:, None, None, :]
        return seen | torch.eye(length, dtype=torch.bool, device=device)

    def block_mask(self, length: int, device: torch.device) -> Tensor:
        """Mask of each block: bool [batch or 1, blocks, block, keys], True = may attend; each query sees itself."""
        block, n_blocks = self.block, -(-length // self.block)
        keys = torch.arange((2 if self.causal else 3) * block, device=device) - block  # from the block's first position
        distance = keys - torch.arange(block, device=device)[:, None]
        places = torch.arange(n_blocks, device=device)[:, None] * block + keys  # [blocks, keys]
        real = ((places >= 0) & (places < length))[None]
        if self.is_token is not None:
            real = real & self.is_token[:, places.clamp(0, length - 1)]
        return (self._within(distance) & real[:, :, None, :]) | (distance == 0)

    def _within(self, distance: Tensor) -> Tensor:
        """Whether a key so far after (or, negative, before) its query is seen."""
        return (distance >= -self.reach) & (distance <= (0 if self.causal else self.reach))


def to_blocks(q: Tensor, k: Tensor, v: Tensor, window: Window) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Arrange self-attention as many small ones, one for each block.

    Args:
        q, k: [batch, heads, length, d_k].
        v: [batch, heads, length, d_v].
        window: what is seen.
    Returns:
        Queries [batch * blocks, heads, block, d_k], keys [.., keys, d_k], values [.., keys, d_v], and their mask, bool
        [batch * blocks, 1, block, keys].
    """
    length, block = q.shape[2], window.block
    n_blocks = -(-length // block)
    rest = n_blocks * block - length
    mask = window.block_mask(length, q.device)
    mask = mask.expand(len(q), -1, -1, -1).flatten(0, 1).unsqueeze(1)
    queries = functional.pad(q, (0, 0, 0, rest)).view(*q.shape[:2], n_blocks, block, -1)
    keys, values = (_batched(_neighbours(x, n_blocks, rest, window)) for x in (k, v))
    return _batched(queries), keys, values, mask


def from_blocks(heads: Tensor, batch: int, length: int) -> Tensor:
    """[batch * blocks, heads, block, d_v] -> [batch, heads, length, d_v]."""
    return heads.view(batch, -1, *heads.shape[1:]).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _neighbours(x: Tensor, n_blocks: int, rest: int, window: Window) -> Tensor:
    """[batch, heads, length, width] -> [batch, heads, blocks, keys, width], what each block may see any of."""
    block, after = window.block, 0 if window.causal else 1
    padded = functional.pad(x, (0, 0, block, rest + after * block))
    blocks = padded.view(*x.shape[:2], n_blocks + 1 + after, block, -1)
    return torch.cat([blocks[:, :, i : i + n_blocks] for i in range(2 + after)], dim=3)


def _batched(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(0, 1)  # [batch * blocks, heads, positions, width]
