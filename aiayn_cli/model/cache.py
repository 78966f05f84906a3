"""What incremental decoding keeps between two steps.

The hypotheses of one sentence share one pool of keys and values: every token that any of them ever read has a slot
in it, and a mask says which slots lie on a hypothesis' own way. A choice among hypotheses then moves rows of the
mask only, never keys and values, and all hypotheses of a sentence are the queries of one product.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.model.masks import additive, causal_mask, padding_mask

_GROWTH = 32  # slots by which a pool grows, so that most steps copy nothing and few shapes of products occur


@dataclass(frozen=True)
class NewSlots:
    """Where the tokens of one step are put.

    Attributes:
        first: the slot of the first one, where it is the same for all sentences; else None.
        index: int64 [sentences, new], the slot of each.
        size: slots that a pool must have, filled or not.
    """

    first: int | None
    index: Tensor
    size: int


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
        self._k = _put(_resized(self._k, 2, slots.size), k, slots)
        self._v = _put(_resized(self._v, 2, slots.size), v, slots)
        return self._k, self._v

    def select(self, sentences: Tensor) -> None:
        """Keep the given sentences, int64 [new_sentences]."""
        self.memory_k, self.memory_v, self._k, self._v = (
            x.index_select(0, sentences) for x in (self.memory_k, self.memory_v, self._k, self._v)
        )

    def replace(self, sentences: Tensor, other: "LayerCache", chosen: slice) -> None:
        """Put the memory of some sentences of another cache in the place of the given ones, int64 [replaced].

        What they leave in the pool is hidden by the mask, and zeroed too: a NaN there would spoil the sum.
        """
        self._k.index_fill_(0, sentences, 0)
        self._v.index_fill_(0, sentences, 0)
        width = max(self.memory_k.shape[2], other.memory_k.shape[2])
        for name in ("memory_k", "memory_v"):
            held = _resized(getattr(self, name), 2, width)
            setattr(self, name, held.index_copy_(0, sentences, _resized(getattr(other, name)[chosen], 2, width)))


class DecoderCache:
    """The state of a batch of hypotheses: an argument of each step, never hidden in the model.

    Row r of the hypotheses belongs to sentence r // (rows / sentences). Sentences may have read different numbers
    of tokens; all hypotheses of one sentence have read equally many.

    Attributes:
        layers: one LayerCache for each decoder layer.
        memory_mask: [sentences, 1, 1, src_len] or None (no padding), added to attention scores: -inf = padding.
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
        self.memory_mask = None if src_mask is None else additive(padding_mask(src_mask), memory.dtype)
        self.lengths = [0] * len(memory)
        self._window = attention_window
        self._used = [0] * len(memory)  # slots of each sentence
        self._seen = torch.zeros(len(memory), 1, 0, dtype=torch.bool, device=memory.device)  # [sentences, beams, slots]
        self._position = torch.zeros(len(memory), 0, dtype=torch.int64, device=memory.device)  # of each slot's token

    def take_up(self, beams: int, new_len: int) -> tuple[NewSlots, Tensor]:
        """Reserve the slots of a step.

        Args:
            beams: hypotheses of each sentence, those of the last step or choice; any number before the first step.
            new_len: tokens that each of them reads.
        Returns:
            The slots, and what the new tokens see: [sentences, 1, beams * new_len, slots], added to attention
            scores, 0 or -inf.
        """
        sentences, new = len(self._used), beams * new_len
        device = self._seen.device
        needed = max(self._used) + new
        size = self._seen.shape[2] if needed <= self._seen.shape[2] else -(-needed // _GROWTH) * _GROWTH
        same = min(self._used) == max(self._used)
        index = torch.tensor(self._used, device=device)[:, None] + torch.arange(new, device=device)
        slots = NewSlots(self._used[0] if same else None, index, size)
        seen = _resized(self._seen, 2, size)
        if seen.shape[1] == 1 < beams:  # before the first step
            seen = seen.repeat(1, beams, 1)
        own = torch.eye(beams, dtype=torch.bool, device=device).repeat_interleave(new_len, dim=1)  # [beams, new]
        self._seen = _put(seen, own.expand(sentences, -1, -1), slots, dim=2)
        visible = self._seen
        if new_len > 1:
            earlier = causal_mask(new_len, device)[0, 0].repeat(beams, beams)
            among_new = own.repeat_interleave(new_len, dim=0) & earlier  # [new, new]
            visible = self._seen.repeat_interleave(new_len, dim=1)
            visible = _put(visible, among_new.expand(sentences, -1, -1), slots, dim=2)
        if self._window:
            steps = torch.arange(new_len, device=device).repeat(beams)
            positions = torch.tensor(self.lengths, device=device)[:, None] + steps  # [sentences, new]
            self._position = _put(_resized(self._position, 1, size), positions, slots, dim=1)
            visible = visible & (positions[:, :, None] - self._position[:, None, :] <= self._window)
        self._used = [used + new for used in self._used]
        self.lengths = [length + new_len for length in self.lengths]
        return slots, additive(visible[:, None], self.layers[0].memory_k.dtype)

    def reorder(self, rows: Tensor) -> None:
        """Replace the hypotheses by copies of the given rows; their sentences stay.

        Args:
            rows: int64 [new_rows], a multiple of the number of sentences; each row's parent is of its own sentence.
        """
        sentences, _, size = self._seen.shape
        if size:
            self._seen = self._seen.flatten(0, 1).index_select(0, rows).view(sentences, -1, size)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all but some sentences, and all but some rows.

        Args:
            sentences: int64 [new_sentences], indices into the present ones.
            rows: int64 [new_rows], indices into the present rows, grouped by sentence in the new order.
        """
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)
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

    def replace(self, sentences: Tensor, other: "DecoderCache", chosen: slice) -> None:
        """Put sentences of another cache, which has read nothing, in the place of some.

        Args:
            sentences: int64 [replaced], indices into the present ones; their rows are those of the new ones.
            other: a cache of the same model.
            chosen: which of its sentences, as many.
        """
        widths = self.layers[0].memory_k.shape[2], other.layers[0].memory_k.shape[2]
        if widths[0] != widths[1] or self.memory_mask is not None or other.memory_mask is not None:
            held, new = (_padded_mask(cache, max(widths)) for cache in (self, other))
            self.memory_mask = held.index_copy_(0, sentences, new[chosen])
        for layer, added in zip(self.layers, other.layers, strict=True):
            layer.replace(sentences, added, chosen)
        self._seen.index_fill_(0, sentences, False)
        for sentence in sentences.tolist():
            self._used[sentence] = self.lengths[sentence] = 0


def _padded_mask(cache: DecoderCache, width: int) -> Tensor:
    """The memory mask of a cache, or what stands for none, with -inf up to a width."""
    memory = cache.layers[0].memory_k
    mask = memory.new_zeros(len(memory), 1, 1, memory.shape[2]) if cache.memory_mask is None else cache.memory_mask
    return functional.pad(mask, (0, width - mask.shape[3]), value=-torch.inf)


def _resized(x: Tensor, dim: int, size: int) -> Tensor:
    """The tensor itself, or a copy with zeros after its end in one dimension."""
    missing = size - x.shape[dim]
    return x if missing == 0 else functional.pad(x, [0, 0] * (x.dim() - 1 - dim) + [0, missing])


def _put(pool: Tensor, new: Tensor, slots: NewSlots, dim: int = 2) -> Tensor:
    """Write new entries into their slots of a dimension, in place, and return the pool."""
    if slots.first is not None:
        pool.narrow(dim, slots.first, new.shape[dim]).copy_(new)
        return pool
    shape = [1] * pool.dim()
    shape[0], shape[dim] = slots.index.shape
    return pool.scatter_(dim, slots.index.view(shape).expand_as(new), new)


def equal_lengths(lengths: Sequence[int]) -> int | None:
    """The one length that all have; None where they differ."""
    return lengths[0] if min(lengths) == max(lengths) else None
