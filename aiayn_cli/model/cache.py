"""What incremental decoding keeps between two steps.

In the Transformer's cache the hypotheses of a sentence share one pool of keys and values. Every token that one of them
has read has a slot there, and a mask says which slots each hypothesis sees. Choosing among hypotheses moves rows of
the mask, never keys and values; all hypotheses of a sentence are the queries of one product; and slots that no
hypothesis sees any longer are reused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.model.masks import Causal, SharedMask, padding_mask

_GROWTH = 16  # slots by which a pool grows, so that most steps copy nothing and products have few shapes


@dataclass(frozen=True)
class NewSlots:
    """Where the tokens of one step go in the pool [sentences, heads, slots, ..] of every layer."""

    rows: Tensor  # int64 [sentences * heads * new], indices into the pool with its first three dimensions flattened
    size: int  # slots that the pool must have


class LayerCache:
    """Keys and values of one decoder layer, and of the memory: [sentences, heads, src_len, d_k] and [.., d_v]."""

    def __init__(self, memory_k: Tensor, memory_v: Tensor) -> None:
        self.memory_k, self.memory_v = memory_k, memory_v
        # [sentences, heads, slots, d_k] and [.., d_v]; zeros in unused slots, since even a hidden NaN spoils the sum.
        self._k, self._v = memory_k[:, :, :0], memory_v[:, :, :0]

    def append(self, k: Tensor, v: Tensor, slots: NewSlots) -> tuple[Tensor, Tensor]:
        """Add the keys [sentences, heads, new, d_k] and values [.., d_v] of new tokens; return the whole pool."""
        self._k, self._v = _resized(self._k, 2, slots.size), _resized(self._v, 2, slots.size)
        for pool, new in ((self._k, k), (self._v, v)):
            pool.flatten(0, 2).index_copy_(0, slots.rows, contiguous(new, pool.dtype).flatten(0, 2))
        return self._k, self._v

    def select(self, sentences: Tensor) -> None:
        """Keep the given sentences, int64 [new_sentences]."""
        self.memory_k, self.memory_v, self._k, self._v = (
            x.index_select(0, sentences) for x in (self.memory_k, self.memory_v, self._k, self._v)
        )

    def take(self, places: Tensor, other: "LayerCache", chosen: slice) -> None:
        """Replace the sentences at these places, int64 [taken], by some of another cache."""
        for name in ("memory_k", "memory_v", "_k", "_v"):
            setattr(self, name, _put(getattr(self, name), places, getattr(other, name)[chosen], dim=2))


class DecoderCache:
    """The Transformer's DecodingCache: keys and values of its layers, and which of them each hypothesis sees.

    Args:
        layers: one for each decoder layer, with the projected memory.
        src_mask: bool [sentences, src_len], True = a real source token; None = no padding.
        attention_window: positions that a token sees before its own; 0 = all.
    """

    def __init__(self, layers: list[LayerCache], src_mask: Tensor | None, attention_window: int = 0) -> None:
        memory = layers[0].memory_k
        self.layers = layers
        self._set_src_mask(src_mask)
        self.lengths = [0] * len(memory)  # target positions that each sentence's hypotheses have read
        self._window = attention_window
        # On a GPU, counting the free slots would make the host wait for the device at each step.
        self._counts_slots = memory.device.type == "cpu"
        self._seen = torch.zeros(len(memory), 1, 0, dtype=torch.bool, device=memory.device)  # [sentences, beams, slots]
        self._position = torch.zeros(len(memory), 0, dtype=torch.int64, device=memory.device)  # of each slot's token

    def allocate(self, beams: int, new_len: int) -> tuple[NewSlots, SharedMask]:
        """Find slots for the tokens of a step.

        Args:
            beams: hypotheses of each sentence, as many as after the last step or choice; any number at first.
            new_len: tokens that each of them reads.
        Returns:
            The slots, and what the new tokens see: bool [sentences, 1, beams * new_len, slots].
        """
        new, device = beams * new_len, self._seen.device
        index, size = self._free_slots(beams, new)
        seen = _resized(self._seen, 2, size)
        if seen.shape[1] == 1 < beams:  # before the first step
            seen = seen.repeat(1, beams, 1)
        own = torch.eye(beams, dtype=torch.bool, device=device).repeat_interleave(new_len, dim=1)  # [beams, new]
        places = index.unsqueeze(1)  # [sentences, 1, new]
        visible = self._seen = seen.scatter_(2, places.expand(-1, beams, -1), own.expand(len(seen), -1, -1))
        if new_len > 1:
            earlier = Causal().mask(new_len, device)[0, 0].repeat(beams, beams)
            among_new = own.repeat_interleave(new_len, dim=0) & earlier  # [new, new]
            visible = self._seen.repeat_interleave(new_len, dim=1)
            visible.scatter_(2, places.expand(-1, new, -1), among_new.expand(len(seen), -1, -1))
        if self._window:
            steps = torch.arange(new_len, device=device).repeat(beams)
            positions = torch.tensor(self.lengths, device=device)[:, None] + steps  # [sentences, new]
            self._position = _resized(self._position, 1, size).scatter_(1, index, positions)
            distance = positions[:, :, None] - self._position[:, None, :]
            visible = visible & (distance <= self._window)
            self._seen = self._seen & (distance[:, -1:] + 1 <= self._window)  # what the next token can reach
        self.lengths = [length + new_len for length in self.lengths]
        heads = self.layers[0].memory_k.shape[1]
        pools = torch.arange(len(index) * heads, device=device).view(-1, heads, 1)
        return NewSlots((pools * size + places).flatten(), size), SharedMask(visible[:, None])

    def _free_slots(self, beams: int, new: int) -> tuple[Tensor, int]:
        """The first unused slots of each sentence, int64 [sentences, new], and the slots that the pool must have."""
        taken = self._seen.any(1)  # [sentences, slots]
        size = taken.shape[1]
        if self._counts_slots:
            most_taken = int(taken.sum(1).max()) if size else 0
        else:  # each hypothesis sees one slot for each position that it can reach
            longest = max(self.lengths)
            most_taken = beams * (min(longest, self._window) if self._window else longest)
        if most_taken + new > size:
            size = -(-(most_taken + new) // _GROWTH) * _GROWTH
        order = torch.arange(size, device=taken.device)
        return (_resized(taken, 1, size).int() * size + order).topk(new, dim=1, largest=False).indices, size

    def _set_src_mask(self, src_mask: Tensor | None) -> None:
        self._src_mask = src_mask
        self.memory_mask = None if src_mask is None else SharedMask(padding_mask(src_mask))

    def reorder(self, rows: Tensor) -> None:
        sentences, _, size = self._seen.shape
        self._seen = self._seen.flatten(0, 1).index_select(0, rows).view(sentences, -1, size)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        if self._src_mask is not None:
            self._set_src_mask(self._src_mask.index_select(0, sentences))
        self.lengths = [self.lengths[sentence] for sentence in sentences.tolist()]
        self._position = self._position.index_select(0, sentences)
        self._seen = self._seen.flatten(0, 1).index_select(0, rows).view(len(sentences), -1, self._seen.shape[2])
        for layer in self.layers:
            layer.select(sentences)

    def take(self, places: Tensor, other: "DecoderCache", chosen: slice) -> None:
        held, new = self.layers[0].memory_k[:, 0], other.layers[0].memory_k[:, 0]
        self._set_src_mask(_put_mask((held, self._src_mask), places, (new, other._src_mask), chosen))
        for layer, added in zip(self.layers, other.layers, strict=True):
            layer.take(places, added, chosen)
        self._seen = _put(self._seen, places, other._seen[chosen], dim=2)
        if self._window:
            self._position = _put(self._position, places, other._position[chosen])
        for place, length in zip(places.tolist(), other.lengths[chosen], strict=True):
            self.lengths[place] = length


class RowCache:
    """A DecodingCache of tensors with one row for each hypothesis, for models without a pool of keys and values.

    Args:
        memory: tensors [sentences, src_len, ..], the encoder's output and what follows from it alone.
        src_mask: bool [sentences, src_len], True = a real source token; None = no padding.
        rows: tensors [rows, ..]; one row for each sentence before the first step.
    """

    def __init__(self, memory: Sequence[Tensor], src_mask: Tensor | None, rows: Sequence[Tensor]) -> None:
        self.memory, self.src_mask, self.rows = list(memory), src_mask, list(rows)
        self.lengths = [0] * len(self.memory[0])

    def expand(self, n_rows: int) -> None:
        """Before the first step, give every sentence the same number of hypotheses."""
        if n_rows > len(self.rows[0]):
            self.rows = [x.repeat_interleave(n_rows // len(x), dim=0) for x in self.rows]

    def reorder(self, rows: Tensor) -> None:
        self.rows = [x[rows] for x in self.rows]

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        self.reorder(rows)
        self.memory = [x[sentences] for x in self.memory]
        self.src_mask = None if self.src_mask is None else self.src_mask[sentences]
        self.lengths = [self.lengths[sentence] for sentence in sentences.tolist()]

    def take(self, places: Tensor, other: Self, chosen: slice) -> None:
        self.src_mask = _put_mask((self.memory[0], self.src_mask), places, (other.memory[0], other.src_mask), chosen)
        n_beams = len(self.rows[0]) // len(self.lengths)
        rows = (places[:, None] * n_beams + torch.arange(n_beams, device=places.device)).flatten()
        for held, new in zip(self.rows, other.rows, strict=True):
            held[rows] = new[chosen.start * n_beams : chosen.stop * n_beams]
        self.memory = [_put(x, places, new[chosen]) for x, new in zip(self.memory, other.memory, strict=True)]
        for place, length in zip(places.tolist(), other.lengths[chosen], strict=True):
            self.lengths[place] = length


def starts(lengths: Sequence[int], n_beams: int) -> int | list[int]:
    """The position of each row's next token: one number if all are the same."""
    if min(lengths) == max(lengths):
        return lengths[0]
    return [length for length in lengths for _ in range(n_beams)]


def contiguous(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another type and contiguous, copied at most once."""
    return x.to(dtype, memory_format=torch.contiguous_format)


def _resized(x: Tensor, dim: int, size: int) -> Tensor:
    """The tensor itself, or a copy filled up with zeros to a size in one dimension."""
    missing = size - x.shape[dim]
    return x if missing == 0 else functional.pad(x, [0, 0] * (x.dim() - 1 - dim) + [0, missing])


def _put(held: Tensor, places: Tensor, new: Tensor, dim: int = 1) -> Tensor:
    """Write `new` to some places of held's first dimension, perhaps in place; the shorter in `dim` is zero-padded."""
    size = max(held.shape[dim], new.shape[dim])
    return _resized(held, dim, size).index_copy_(0, places, _resized(new, dim, size))


def _put_mask(
    held: tuple[Tensor, Tensor | None], places: Tensor, other: tuple[Tensor, Tensor | None], chosen: slice
) -> Tensor | None:
    """As _put(), the source mask of some sentences of another cache; `held`, `other`: memory and mask or None."""
    width = max(held[0].shape[1], other[0].shape[1])
    if held[1] is None and other[1] is None and held[0].shape[1] == other[0].shape[1]:
        return None
    mask, new = (
        _resized(memory.new_ones(memory.shape[:2], dtype=torch.bool) if mask is None else mask, 1, width)
        for memory, mask in (held, other)
    )
    return mask.index_copy(0, places, new[chosen])
