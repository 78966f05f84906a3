"""Which keys each query may attend to: a bool mask, True = may attend (as in torch), or an object that yields one.

Restricted self-attention (paper, Section 4) is computed in blocks of r positions, so that it takes n * r products of
vectors, not n^2. Queries see the keys of their own block, of the one before and, unless causal, of the one after it.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

_SMALLEST_BLOCK = 16  # positions; products of smaller matrices take as long


@dataclass(frozen=True)
class Causal:
    """Each position sees itself and what comes before it (paper, Section 3.2.3)."""

    def mask(self, length: int, device: torch.device | None = None) -> Tensor:
        """Bool [1, 1, length, length]."""
        return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


@dataclass(frozen=True, eq=False)
class Window:
    """Self-attention restricted to a neighbourhood (paper, Section 4)."""

    reach: int  # positions to each side, at least 1
    causal: bool  # whether later positions are hidden
    is_token: Tensor | None = None  # bool [batch, length], False = padding, which is hidden; None = no padding

    @property
    def block(self) -> int:
        """Positions in a block."""
        return max(self.reach, _SMALLEST_BLOCK)

    def pays(self, length: int) -> bool:
        """Whether blocks take fewer products than the whole square."""
        return length > (2 if self.causal else 3) * self.block

    def mask(self, length: int, device: torch.device) -> Tensor:
        """Bool [batch or 1, 1, length, length]; each position sees itself."""
        positions = torch.arange(length, device=device)
        seen = self._within(positions - positions[:, None])[None, None]
        if self.is_token is not None:
            seen = seen & padding_mask(self.is_token)
        return seen | torch.eye(length, dtype=torch.bool, device=device)

    def to_blocks(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Split self-attention of [batch, heads, length, d_k or d_v] into one small attention for each block.

        Returns queries [batch * blocks, heads, block, d_k], keys [.., keys, d_k], values [.., keys, d_v], and their
        mask, bool [batch * blocks, 1, block, keys].
        """
        length, block = q.shape[2], self.block
        n_blocks = -(-length // block)
        rest = n_blocks * block - length
        mask = self._block_mask(length, q.device).expand(len(q), -1, -1, -1).flatten(0, 1).unsqueeze(1)
        queries = functional.pad(q, (0, 0, 0, rest)).view(*q.shape[:2], n_blocks, block, -1)
        keys, values = (_batched(self._neighbours(x, n_blocks, rest)) for x in (k, v))
        return _batched(queries), keys, values, mask

    def _block_mask(self, length: int, device: torch.device) -> Tensor:
        """Bool [batch or 1, blocks, block, keys]; each query sees itself."""
        block, n_blocks = self.block, -(-length // self.block)
        keys = torch.arange((2 if self.causal else 3) * block, device=device) - block  # from the block's first position
        distance = keys - torch.arange(block, device=device)[:, None]
        places = torch.arange(n_blocks, device=device)[:, None] * block + keys  # [blocks, keys]
        real = ((places >= 0) & (places < length))[None]
        if self.is_token is not None:
            real = real & self.is_token[:, places.clamp(0, length - 1)]
        return (self._within(distance) & real[:, :, None, :]) | (distance == 0)

    def _neighbours(self, x: Tensor, n_blocks: int, rest: int) -> Tensor:
        """[batch, heads, length, width] -> [batch, heads, blocks, keys, width]: each block and those next to it."""
        block, after = self.block, 0 if self.causal else 1
        padded = functional.pad(x, (0, 0, block, rest + after * block))
        blocks = padded.view(*x.shape[:2], n_blocks + 1 + after, block, -1)
        return torch.cat([blocks[:, :, i : i + n_blocks] for i in range(2 + after)], dim=3)

    def _within(self, distance: Tensor) -> Tensor:
        """Whether a key is seen, by its distance after its query (before it if negative)."""
        return (distance >= -self.reach) & (distance <= (0 if self.causal else self.reach))


@dataclass(frozen=True, eq=False)
class SharedMask:
    """A bool mask [batch or 1, 1, tgt_len or 1, src_len] for several layers, which it is converted for once."""

    shown: Tensor
    _added: dict[tuple[int, torch.dtype], Tensor] = field(default_factory=dict, repr=False)

    def added(self, heads: int, dtype: torch.dtype) -> Tensor:
        """What is added to the scores (Section 3.2.3): 0 = may attend, -inf = hidden.

        [batch * heads or 1, tgt_len or 1, src_len], for scores [batch * heads, tgt_len, src_len]; for 0 heads, the
        shape of the mask, for scores [batch, heads, tgt_len, src_len].
        """
        if (heads, dtype) not in self._added:
            numbers = torch.zeros(self.shown.shape, dtype=dtype, device=self.shown.device)
            numbers.masked_fill_(~self.shown, -torch.inf)
            if heads and len(numbers) > 1:
                numbers = numbers.expand(-1, heads, -1, -1)
            self._added[heads, dtype] = numbers.reshape(-1, *numbers.shape[2:]) if heads else numbers
        return self._added[heads, dtype]


# Bool [batch or 1, 1, tgt_len or 1, src_len] with no row all False, or an object that yields it; None = all see all.
Mask = Tensor | SharedMask | Causal | Window | None


def padding_mask(is_token: Tensor) -> Tensor:
    """Every query sees the real tokens of its sentence: bool [batch, src_len] -> [batch, 1, 1, src_len]."""
    return is_token[:, None, None, :]


def from_blocks(heads: Tensor, batch: int, length: int) -> Tensor:
    """[batch * blocks, heads, block, d_v] -> [batch, heads, length, d_v]: undoes Window.to_blocks()."""
    return heads.view(batch, -1, *heads.shape[1:]).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _batched(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(0, 1)  # [batch * blocks, heads, positions, width]
