"""Which pairs make up which update, and how they become padded tensors.

An update is a fixed set of pairs that depends on (seed, epoch, position) alone. Devices and micro-batches only divide
it, so that a run gives the same result on any number of them. Planning sorts one pool of pairs at a time by their
lengths, and never holds a permutation of the corpus in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiayn_cli.data.store import Side, TokenStore
from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID

_POOL_PAIRS = 1 << 16  # pairs sorted by length together; the order of pairs depends on it, so it never changes

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Position:
    """How far training has read: whole epochs, and pairs of the present one."""

    epoch: int = 0
    pairs: int = 0


@dataclass(frozen=True)
class Update:
    """The pairs of one update, and the position after it.

    Attributes:
        pairs: int64 [pairs], indices into the store, sorted by length.
        tgt_tokens: target tokens with their end tokens, over all pairs.
        after: where the next update begins.
    """

    pairs: Indices
    tgt_tokens: int
    after: Position


@dataclass(frozen=True)
class Batch:
    """Padded tensors of some pairs.

    Attributes:
        src: int64 [batch, src_len], each row ended by EOS_ID.
        src_mask: bool [batch, src_len], True = a real token; None where nothing is padded.
        tgt_in: int64 [batch, tgt_len], BOS_ID first.
        tgt_out: int64 [batch, tgt_len], what follows each token of tgt_in: EOS_ID last, then PAD_ID.
        tgt_tokens: tokens of tgt_out that are not padding.
    """

    src: Tensor
    src_mask: Tensor | None
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_tokens: int

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; a GPU copies it when it gets there, and the host goes on meanwhile."""

        def moved(x: Tensor) -> Tensor:
            # Only from page-locked memory can a GPU copy by itself; torch keeps such memory for the next batch.
            return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)

        mask = None if self.src_mask is None else moved(self.src_mask)
        src, tgt_in, tgt_out = (moved(x) for x in (self.src, self.tgt_in, self.tgt_out))
        return Batch(src, mask, tgt_in, tgt_out, self.tgt_tokens)


@dataclass(frozen=True)
class FlatBatch:
    """Some pairs without padding, one after the other.

    Attributes:
        src: int64 [source tokens], each sentence ended by EOS_ID.
        src_lengths: int64 [pairs], with EOS_ID.
        tgt_in: int64 [target tokens], each sentence with BOS_ID first.
        tgt_out: int64 [target tokens], what follows each token of tgt_in: EOS_ID last.
        tgt_lengths: int64 [pairs], with EOS_ID.
    """

    src: Tensor
    src_lengths: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_lengths: Tensor


def plan_updates(store: TokenStore, batch_tokens: int, seed: int, start: Position) -> Iterator[Update]:
    """All updates from a position on, epoch after epoch, without end.

    Every epoch reads the corpus in a new order. A pool of 65,536 pairs is sorted by length, cut into updates of equal
    token counts, and these are shuffled, so that an update holds pairs of similar length (paper, Section 5.1).

    Args:
        store: the training pairs.
        batch_tokens: tokens in an update, counting each pair's longer side with its end token; an update may have more
            by less than one pair, and a pair that is longer by itself is an update of its own.
        seed: of the order.
        start: where to begin, from an earlier Update.after with the same arguments.
    Raises:
        DataError: there are no pairs.
    """
    if len(store) == 0:
        raise DataError("there are no training pairs", "look at the drops that prepare printed")
    epoch, skip = start.epoch, start.pairs
    while True:
        for first in range(skip // _POOL_PAIRS * _POOL_PAIRS, len(store), _POOL_PAIRS):
            done = first
            for pairs in _pool_updates(store, batch_tokens, seed, epoch, first):
                done += len(pairs)
                if done <= skip:
                    continue
                tgt_tokens = int(store.tgt_lengths[pairs].sum()) + len(pairs)
                after = Position(epoch, done) if done < len(store) else Position(epoch + 1, 0)
                yield Update(pairs, tgt_tokens, after)
        epoch, skip = epoch + 1, 0


def split_update(store: TokenStore, pairs: Indices, max_tokens: int, multiple_of: int = 1) -> list[Indices]:
    """Divide an update's pairs into micro-batches of about equal size.

    Args:
        store: of the pairs.
        pairs: sorted by length.
        max_tokens: padded tokens of one side in a micro-batch: at most 1/16 more, so that padding does not cut an
            update of max_tokens into two halves; a single longer pair is one by itself.
        multiple_of: their number is a multiple of this, so that so many devices have as many each.
    Returns:
        Micro-batches; some are empty where pairs are few.
    """
    lengths = _lengths(store, pairs)
    most = _with_slack(max_tokens)
    rounds = max(1, -(-int(lengths.sum()) // (most * multiple_of)))  # fewer cannot do
    while True:
        bounds = np.concatenate(([0], _cut_evenly(lengths, rounds * multiple_of), [len(pairs)]))
        parts = [pairs[a:b] for a, b in pairwise(bounds)]
        if all(len(part) <= 1 or _padded(store, part) <= most for part in parts):
            return parts
        rounds += 1


def largest_batch(store: TokenStore, max_tokens: int) -> Indices:
    """A micro-batch that takes as much memory as any may: as many of the longest pairs as fit in max_tokens."""
    lengths = np.maximum(store.src_lengths, store.tgt_lengths).astype(np.int64) + 1
    most = min(len(store), max(1, _with_slack(max_tokens) // int(lengths.max())))
    return _sorted_by_length(store, np.argpartition(lengths, len(store) - most)[len(store) - most :].astype(np.int64))


def collate(store: TokenStore, pairs: Indices) -> Batch:
    """Read pairs from the store into padded tensors."""
    src, src_is_token = _rows(store, pairs, "src")
    tgt, tgt_is_token = _rows(store, pairs, "tgt")
    return Batch(
        src=torch.from_numpy(src),
        src_mask=None if src_is_token.all() else torch.from_numpy(src_is_token),
        tgt_in=torch.from_numpy(_shifted_right(tgt)),
        tgt_out=torch.from_numpy(tgt),
        tgt_tokens=int(np.count_nonzero(tgt_is_token)),
    )


def flatten(store: TokenStore, pairs: Indices) -> FlatBatch:
    """Read pairs from the store as they stand, one after the other."""
    src, src_lengths = _with_ends(store, pairs, "src")
    tgt, tgt_lengths = _with_ends(store, pairs, "tgt")
    tgt_in = np.empty_like(tgt)
    tgt_in[1:] = tgt[:-1]
    tgt_in[np.cumsum(tgt_lengths) - tgt_lengths] = BOS_ID
    return FlatBatch(*(torch.from_numpy(x) for x in (src, src_lengths, tgt_in, tgt, tgt_lengths)))


def in_order(store: TokenStore, max_tokens: int, longest: int = 1 << 30) -> Iterator[Indices]:
    """All pairs of a store once, sorted by length, in batches of at most max_tokens padded tokens a side.

    A single longer pair is a batch by itself; one with a side of more than `longest` tokens, its end token included,
    is left out.
    """
    pairs = _sorted_by_length(store, np.arange(len(store), dtype=np.int64))
    lengths = _lengths(store, pairs)
    pairs, lengths = pairs[lengths <= longest], lengths[lengths <= longest]
    first = 0
    while first < len(pairs):
        some = lengths[first : first + max_tokens]  # no batch has more pairs, and the last is the longest of any first
        padded = some * np.arange(1, len(some) + 1)
        after = first + max(1, int(np.searchsorted(padded, max_tokens, side="right")))
        yield pairs[first:after]
        first = after


def _rows(store: TokenStore, pairs: Indices, side: Side) -> tuple[Indices, NDArray[np.bool_]]:
    """One side of some pairs, each row ended by EOS_ID and padded: int64 [batch, length], and which are tokens."""
    flat, lengths = store.gather(pairs, side)
    columns = np.arange(lengths.max() + 1)
    is_text = columns < lengths[:, None]
    rows = np.full(is_text.shape, PAD_ID, dtype=np.int64)
    rows[is_text] = flat
    rows[np.arange(len(rows)), lengths] = EOS_ID
    return rows, columns <= lengths[:, None]


def _with_ends(store: TokenStore, pairs: Indices, side: Side) -> tuple[Indices, Indices]:
    """One side of some pairs, each ended by EOS_ID: int64 [tokens], and lengths with it, int64 [pairs]."""
    flat, lengths = store.gather(pairs, side)
    with_end = lengths.astype(np.int64) + 1
    ends = np.cumsum(with_end)
    tokens = np.empty(ends[-1], dtype=np.int64)
    is_text = np.ones(len(tokens), dtype=bool)
    is_text[ends - 1] = False
    tokens[is_text] = flat
    tokens[ends - 1] = EOS_ID
    return tokens, with_end


def _shifted_right(tgt: Indices) -> Indices:
    """What the decoder reads: BOS_ID, then the target without the last place; an end token inside becomes padding."""
    tgt_in = np.empty_like(tgt)
    tgt_in[:, 0] = BOS_ID
    tgt_in[:, 1:] = np.where(tgt[:, :-1] == EOS_ID, PAD_ID, tgt[:, :-1])
    return tgt_in


def _pool_updates(store: TokenStore, batch_tokens: int, seed: int, epoch: int, first: int) -> list[Indices]:
    """The updates of the pool that begins at place `first` of the epoch's order, shuffled."""
    places = np.arange(first, min(first + _POOL_PAIRS, len(store)), dtype=np.uint64)
    pairs = _sorted_by_length(store, _shuffled(places, len(store), mixed_seed(seed, epoch)))
    lengths = _lengths(store, pairs)
    count = -(-int(lengths.sum()) // batch_tokens)
    updates = np.split(pairs, _cut_evenly(lengths, count))
    order = _shuffled(np.arange(len(updates), dtype=np.uint64), len(updates), mixed_seed(seed, epoch, first + 1))
    return [updates[i] for i in order.tolist() if len(updates[i])]


def _sorted_by_length(store: TokenStore, pairs: Indices) -> Indices:
    """Sort by the longer side, then by the difference of the sides, upwards and downwards in turn.

    Neighbours then differ little in either side, so that cutting the sequence anywhere leaves little padding in both.
    """
    src, tgt = store.src_lengths[pairs], store.tgt_lengths[pairs]
    longer = np.maximum(src, tgt)
    return pairs[np.lexsort((pairs, np.where(longer % 2, src - tgt, tgt - src), longer))]


def _lengths(store: TokenStore, pairs: Indices) -> Indices:
    """Tokens that each pair counts for: its longer side with its end token."""
    return np.maximum(store.src_lengths[pairs], store.tgt_lengths[pairs]).astype(np.int64) + 1


def _with_slack(max_tokens: int) -> int:
    return max_tokens + max_tokens // 16


def _padded(store: TokenStore, pairs: Indices) -> int:
    return int(_lengths(store, pairs).max()) * len(pairs)


def _cut_evenly(lengths: Indices, parts: int) -> Indices:
    """Where to cut a sequence of lengths into parts of about equal sums: the first index of each later part."""
    ends = np.cumsum(lengths)
    targets = ends[-1] * np.arange(1, parts, dtype=np.int64) / parts
    cuts: Indices = np.searchsorted(ends, targets, side="right").astype(np.int64)
    return cuts


def _shuffled(places: NDArray[np.uint64], size: int, key: int) -> Indices:
    """Where a pseudo-random permutation of 0 .. size - 1 sends the given places.

    A four-round Feistel network over the next power of four; what falls outside the range is sent on until it falls
    inside. Any part of the permutation costs only its own length, and it is the same on every machine.
    """
    half = np.uint64(max(1, (max(size - 1, 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    x = places.copy()
    outside = np.ones(len(x), dtype=bool)
    while outside.any():
        left, right = x[outside] >> half, x[outside] & mask
        for number in range(4):
            left, right = right, left ^ (_mix(right ^ np.uint64(mixed_seed(key, number))) & mask)
        x[outside] = left << half | right
        outside = x >= np.uint64(size)
    return x.astype(np.int64)


def mixed_seed(*numbers: int) -> int:
    """One 64-bit seed from several numbers, the same on every machine; each number changes all of it."""
    seed = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        seed = _mix(seed ^ np.uint64(number & 0xFFFFFFFFFFFFFFFF))
    return int(seed[0])


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): each bit of the result depends on all of x."""
    x = x + np.uint64(0x9E3779B97F4A7C15)  # arrays wrap around without a warning
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
