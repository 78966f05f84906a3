"""What incremental decoding keeps between two steps.

The hypotheses of one sentence share one pool of keys and values: every token that any of them has read has a slot in
it, and a mask says which slots lie on a hypothesis' own way. A choice among hypotheses then moves rows of the mask
only, never keys and values; all hypotheses of a sentence are the queries of one product; and what no hypothesis
descends from any more makes room for new tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.model.masks import SharedMask, causal_mask, padding_mask

_GROWTH = 16  # slots by which a pool grows, so that most steps copy nothing and few shapes of products occur


@dataclass(frozen=True)
class NewSlots:
    """Where the tokens of one step are put."""

    index: Tensor  # int64 [sentences, new], the slot of each
    size: int  # slots that a pool must have, filled or not
    _rows: dict[int, Tensor] = field(default_factory=dict, compare=False)

    def rows(self, heads: int) -> Tensor:
        """The same places in a pool [sentences, heads, slots, ..] of which the first three dimensions are one."""
        if heads not in self._rows:  # computed once, for the pools of all layers
            sentences = torch.arange(len(self.index) * heads, device=self.index.device).view(-1, heads, 1)
            self._rows[heads] = (sentences * self.size + self.index.unsqueeze(1)).flatten()
        return self._rows[heads]


class LayerCache:
    """Keys and values of one decoder layer.

    Attributes:
        memory_k, memory_v: the projected memory, [sentences, heads, src_len, d_k] and [.., d_v]: once per sentence,
            however many hypotheses read it.
    """

    def __init__(self, memory_k: Tensor, memory_v: Tensor) -> None:
        self.memory_k, self.memory_v = memory_k, memory_v
        # [sentences, heads, slots, d_k] and [.., d_v]; zeros where nothing is: a hidden NaN would spoil the sum.
        self._k = memory_k.new_zeros(*memory_k.shape[:2], 0, memory_k.shape[3])
        self._v = memory_v.new_zeros(*memory_v.shape[:2], 0, memory_v.shape[3])

    def append(self, k: Tensor, v: Tensor, slots: NewSlots) -> tuple[Tensor, Tensor]:
        """Put new tokens into the pool; return all of it.

        Args:
            k: [sentences, heads, new, d_k].
            v: [sentences, heads, new, d_v].
            slots: where they belong.
        Returns:
            [sentences, heads, slots, d_k], [sentences, heads, slots, d_v].
        """
        rows = slots.rows(k.shape[1])
        self._k = _resized(self._k, 2, slots.size)
        self._v = _resized(self._v, 2, slots.size)
        for pool, new in ((self._k, k), (self._v, v)):
            pool.flatten(0, 2).index_copy_(0, rows, contiguous(new, pool.dtype).flatten(0, 2))
        return self._k, self._v

    def select(self, sentences: Tensor) -> None:
        """Keep the given sentences, int64 [new_sentences]."""
        self.memory_k, self.memory_v, self._k, self._v = (
            x.index_select(0, sentences) for x in (self.memory_k, self.memory_v, self._k, self._v)
        )

    def take(self, places: Tensor, other: "LayerCache", chosen: slice) -> None:
        """Put some sentences of another cache in the given places, int64 [taken]."""
        for name in ("memory_k", "memory_v", "_k", "_v"):
            setattr(self, name, put(getattr(self, name), places, getattr(other, name)[chosen], dim=2))


class DecoderCache:
    """The Transformer's DecodingCache: its layers' keys and values, and who sees which of them.

    Attributes:
        layers: one LayerCache for each decoder layer.
        memory_mask: bool [sentences, 1, 1, src_len], True = a real source token; None = no padding.
        lengths: target positions that each sentence's hypotheses have read.
    """

    def __init__(self, layers: list[LayerCache], src_mask: Tensor | None, attention_window: int = 0) -> None:
        """Begin with nothing read.

        Args:
            layers: with the projected memory.
            src_mask: bool [sentences, src_len], True = a real source token; None = no padding.
            attention_window: how far back a position sees; 0 = to the beginning.
        """
        memory = layers[0].memory_k
        self.layers = layers
        self._hide_padding(src_mask)
        self.lengths = [0] * len(memory)
        self._window = attention_window
        # On a GPU the host would wait for the device at each step to know which slots are free: there none is reused.
        self._reuse = memory.device.type == "cpu"
        self._used = [0] * len(memory)  # slots of each sentence, where none is reused
        self._seen = torch.zeros(len(memory), 1, 0, dtype=torch.bool, device=memory.device)  # [sentences, beams, slots]
        self._position = torch.zeros(len(memory), 0, dtype=torch.int64, device=memory.device)  # of each slot's token

    def take_up(self, beams: int, new_len: int) -> tuple[NewSlots, SharedMask]:
        """Find slots for the tokens of a step.

        Args:
            beams: hypotheses of each sentence, those of the last step or choice; any number before the first step.
            new_len: tokens that each of them reads.
        Returns:
            The slots, and what the new tokens see: bool [sentences, 1, beams * new_len, slots].
        """
        new, device = beams * new_len, self._seen.device
        slots = self._free_slots(new)
        index = slots.index.unsqueeze(1)  # [sentences, 1, new]
        seen = _resized(self._seen, 2, slots.size)
        if seen.shape[1] == 1 < beams:  # before the first step
            seen = seen.repeat(1, beams, 1)
        own = torch.eye(beams, dtype=torch.bool, device=device).repeat_interleave(new_len, dim=1)  # [beams, new]
        self._seen = seen.scatter_(2, index.expand(-1, beams, -1), own.expand(len(seen), -1, -1))
        visible = self._seen
        if new_len > 1:
            earlier = causal_mask(new_len, device)[0, 0].repeat(beams, beams)
            among_new = own.repeat_interleave(new_len, dim=0) & earlier  # [new, new]
            visible = self._seen.repeat_interleave(new_len, dim=1)
            visible.scatter_(2, index.expand(-1, new, -1), among_new.expand(len(seen), -1, -1))
        if self._window:
            steps = torch.arange(new_len, device=device).repeat(beams)
            positions = torch.tensor(self.lengths, device=device)[:, None] + steps  # [sentences, new]
            self._position = _resized(self._position, 1, slots.size).scatter_(1, slots.index, positions)
            visible = visible & (positions[:, :, None] - self._position[:, None, :] <= self._window)
            # No hypothesis needs what its next token cannot reach: the slot may be reused.
            self._seen = self._seen & (positions[:, None, -1:] + 1 - self._position[:, None, :] <= self._window)
        self.lengths = [length + new_len for length in self.lengths]
        return slots, SharedMask(visible[:, None])

    def _free_slots(self, new: int) -> NewSlots:
        device, size = self._seen.device, self._seen.shape[2]
        taken = self._seen.any(1)  # [sentences, slots]
        needed = new + (max(self._used) if not self._reuse else int(taken.sum(1).max()) if size else 0)
        if needed > size:
            size = -(-needed // _GROWTH) * _GROWTH
        if self._reuse:
            order = torch.arange(size, device=device)  # the first free ones, whatever follows them
            taken = _resized(taken, 1, size)
            return NewSlots((taken.int() * size + order).topk(new, dim=1, largest=False).indices, size)
        index = torch.tensor(self._used, device=device)[:, None] + torch.arange(new, device=device)
        self._used = [used + new for used in self._used]
        return NewSlots(index, size)

    def _hide_padding(self, src_mask: Tensor | None) -> None:
        self._src_mask = src_mask
        self.memory_mask = None if src_mask is None else SharedMask(padding_mask(src_mask))

    def reorder(self, rows: Tensor) -> None:
        sentences, _, size = self._seen.shape
        if size:
            self._seen = self._seen.flatten(0, 1).index_select(0, rows).view(sentences, -1, size)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        if self._src_mask is not None:
            self._hide_padding(self._src_mask.index_select(0, sentences))
        kept = sentences.tolist()
        self._used = [self._used[sentence] for sentence in kept]
        self.lengths = [self.lengths[sentence] for sentence in kept]
        self._position = self._position.index_select(0, sentences)
        size = self._seen.shape[2]
        if size:
            self._seen = self._seen.flatten(0, 1).index_select(0, rows).view(len(kept), -1, size)
        else:
            self._seen = self._seen.index_select(0, sentences)
        for layer in self.layers:
            layer.select(sentences)

    def take(self, places: Tensor, other: "DecoderCache", chosen: slice) -> None:
        held, new = self.layers[0].memory_k[:, 0], other.layers[0].memory_k[chosen, 0]
        new_mask = None if other._src_mask is None else other._src_mask[chosen]
        self._hide_padding(put_mask(held, self._src_mask, places, new, new_mask))
        for layer, added in zip(self.layers, other.layers, strict=True):
            layer.take(places, added, chosen)
        self._seen = put(self._seen, places, other._seen[chosen], dim=2)
        if self._window:
            self._position = put(self._position, places, other._position[chosen])
        for place, sentence in zip(places.tolist(), range(chosen.start, chosen.stop), strict=True):
            self._used[place], self.lengths[place] = other._used[sentence], other.lengths[sentence]


def contiguous(x: Tensor, dtype: torch.dtype) -> Tensor:
    """In another type and contiguous, in one pass; the tensor itself where it is both already."""
    return x.to(dtype, memory_format=torch.contiguous_format)


def _resized(x: Tensor, dim: int, size: int) -> Tensor:
    """The tensor itself, or a copy with zeros after its end in one dimension."""
    missing = size - x.shape[dim]
    return x if missing == 0 else functional.pad(x, [0, 0] * (x.dim() - 1 - dim) + [0, missing])


def starts(lengths: Sequence[int], n_beams: int) -> int | list[int]:
    """The position of each row's next token: one number where it is the same for all."""
    if min(lengths) == max(lengths):
        return lengths[0]
    return [length for length in lengths for _ in range(n_beams)]


def put(held: Tensor, places: Tensor, new: Tensor, dim: int = 1) -> Tensor:
    """Write the entries of `new` into some places of the first dimension of `held`, perhaps in place.

    The shorter of the two in another dimension is filled up with zeros.
    """
    size = max(held.shape[dim], new.shape[dim])
    return _resized(held, dim, size).index_copy_(0, places, _resized(new, dim, size))


def rows_of(sentences: Tensor, n_beams: int) -> Tensor:
    """The rows of some sentences, int64 [sentences] -> [sentences * n_beams]."""
    return (sentences[:, None] * n_beams + torch.arange(n_beams, device=sentences.device)).flatten()


def put_mask(
    held: Tensor, held_mask: Tensor | None, places: Tensor, new: Tensor, new_mask: Tensor | None
) -> Tensor | None:
    """What put() is for the memory, for its mask.

    Args:
        held, new: memory, [sentences, src_len, ..].
        held_mask, new_mask: theirs, bool [sentences, src_len]; None = no padding.
        places: as in put().
    """
    if held_mask is None and new_mask is None and held.shape[1] == new.shape[1]:
        return None
    size = max(held.shape[1], new.shape[1])
    all_held, all_new = (
        _resized(memory.new_ones(memory.shape[:2], dtype=torch.bool) if mask is None else mask, 1, size)
        for memory, mask in ((held, held_mask), (new, new_mask))
    )
    return all_held.index_copy(0, places, all_new)
