"""Which pairs make up which update.

An update is a fixed set of pairs that depends on (seed, epoch, position) alone. Devices and micro-batches only divide
it, so that a run gives the same result on any number of them. Planning sorts one pool of pairs at a time by their
lengths, and never holds a permutation of the corpus in memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from aiayn_cli.data.store import TokenStore
from aiayn_cli.errors import DataError

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64's increment
LEAST_POOL_PAIRS, _MOST_POOL_PAIRS = 1 << 16, 1 << 19  # pairs sorted by length together
_POOL_PAIRS_PER_TOKEN = 16  # of an update: pairs in it are of so similar length that padding them costs 2 to 3 %

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Position:
    """How far training has read: whole epochs, and pairs of the current one."""

    epoch: int = 0
    pairs: int = 0


@dataclass(frozen=True)
class Update:
    """The pairs of one update, and the position after it."""

    pairs: Indices  # [pairs], indices into the store, sorted by length
    tgt_tokens: int  # with their end tokens, over all pairs
    after: Position  # where the next update begins


def pool_pairs_for(batch_tokens: int) -> int:
    """How many pairs a new run sorts together, by the size of its updates; a resumed run keeps its number."""
    pool = LEAST_POOL_PAIRS
    while pool < min(_POOL_PAIRS_PER_TOKEN * batch_tokens, _MOST_POOL_PAIRS):
        pool *= 2
    return pool


def plan_updates(
    store: TokenStore, batch_tokens: int, seed: int, start: Position, pool_pairs: int = LEAST_POOL_PAIRS
) -> Iterator[Update]:
    """All updates from a position on (the `after` of an earlier one), epoch after epoch, without end.

    Each epoch reads the corpus in a new order, given by the seed. `pool_pairs` pairs are sorted by length, cut into
    updates of `batch_tokens`, and these shuffled: an update has pairs of similar length (paper, Section 5.1). A pair
    counts with its longer side and the end token; an update may have more tokens by less than one pair.
    """
    if len(store) == 0:
        raise DataError("there are no training pairs", "prepare's result table says what was dropped")
    epoch, skip = start.epoch, start.pairs
    while True:
        for first in range(skip // pool_pairs * pool_pairs, len(store), pool_pairs):
            done = first
            for pairs in _pool_updates(store, batch_tokens, seed, epoch, first, pool_pairs):
                done += len(pairs)
                if done <= skip:
                    continue
                tgt_tokens = int(store.lengths(pairs, "tgt").sum()) + len(pairs)
                after = Position(epoch, done) if done < len(store) else Position(epoch + 1, 0)
                yield Update(pairs, tgt_tokens, after)
        epoch, skip = epoch + 1, 0


def split_update(store: TokenStore, pairs: Indices, max_tokens: int, multiple_of: int = 1) -> list[Indices]:
    """Divide an update's pairs, sorted by length, into micro-batches of about equal size.

    One side has max_tokens padded tokens at most, and 1/16 more so that padding does not halve an update of max_tokens;
    a longer pair is alone. Their number is a `multiple_of` that of the devices; if pairs are few, some are empty.
    """
    lengths = _lengths(store, pairs)
    most = _with_slack(max_tokens)
    rounds = max(1, -(-int(lengths.sum()) // (most * multiple_of)))  # fewer cannot do
    while True:
        bounds = np.concatenate(([0], _cut_evenly(lengths, rounds * multiple_of), [len(pairs)]))
        parts = list(pairwise(bounds.tolist()))
        if all(b - a <= 1 or int(lengths[a:b].max()) * (b - a) <= most for a, b in parts):
            return [pairs[a:b] for a, b in parts]
        rounds += 1


def largest_batch(store: TokenStore, max_tokens: int) -> Indices:
    """The micro-batch that takes the most memory: as many of the longest pairs as fit in max_tokens."""
    most = min(len(store), max(1, _with_slack(max_tokens) // (max(store.longest) + 1)))
    longest, lengths = np.zeros(0, np.int64), np.zeros(0, np.int32)
    first = 0
    for src, tgt in store.length_chunks():
        longest = np.concatenate((longest, np.arange(first, first + len(src))))
        lengths = np.concatenate((lengths, np.maximum(src, tgt)))
        if (surplus := len(lengths) - most) > 0:
            kept = np.argpartition(lengths, surplus)[surplus:]
            longest, lengths = longest[kept], lengths[kept]
        first += len(src)
    return _sorted_by_length(store, longest)[0]


def in_order(store: TokenStore, max_tokens: int, longest: int = 1 << 30) -> Iterator[Indices]:
    """All pairs of a store once, sorted by length, in batches of at most max_tokens padded tokens per side.

    A longer pair is alone; those with a side of more than `longest` tokens, its end token included, are skipped.
    """
    pairs, lengths = _sorted_by_length(store, np.arange(len(store), dtype=np.int64))
    pairs, lengths = pairs[lengths <= longest], lengths[lengths <= longest]
    first = 0
    while first < len(pairs):
        some = lengths[first : first + max_tokens]  # no batch has more pairs, and the last is the longest of any first
        padded = some * np.arange(1, len(some) + 1)
        after = first + max(1, int(np.searchsorted(padded, max_tokens, side="right")))
        yield pairs[first:after]
        first = after


def _pool_updates(
    store: TokenStore, batch_tokens: int, seed: int, epoch: int, first: int, pool_pairs: int
) -> list[Indices]:
    """The updates of the pool that begins at place `first` of the epoch's order, shuffled."""
    places = np.arange(first, min(first + pool_pairs, len(store)), dtype=np.uint64)
    pairs, lengths = _sorted_by_length(store, _shuffled(places, len(store), mixed_seed(seed, epoch)))
    count = -(-int(lengths.sum()) // batch_tokens)
    updates = np.split(pairs, _cut_evenly(lengths, count))
    order = _shuffled(np.arange(len(updates), dtype=np.uint64), len(updates), mixed_seed(seed, epoch, first + 1))
    return [updates[i] for i in order.tolist() if len(updates[i])]


def _sorted_by_length(store: TokenStore, pairs: Indices) -> tuple[Indices, Indices]:
    """Sort by the longer side, then by the difference of the sides, up and down in turn, and add _lengths()."""
    src, tgt = store.lengths(pairs, "src"), store.lengths(pairs, "tgt")
    longer = np.maximum(src, tgt)
    order = np.lexsort((pairs, np.where(longer % 2, src - tgt, tgt - src), longer))
    return pairs[order], longer[order].astype(np.int64) + 1


def _lengths(store: TokenStore, pairs: Indices) -> Indices:
    """Tokens that each pair counts for: its longer side with its end token."""
    return np.maximum(store.lengths(pairs, "src"), store.lengths(pairs, "tgt")).astype(np.int64) + 1


def _with_slack(max_tokens: int) -> int:
    return max_tokens + max_tokens // 16


def _cut_evenly(lengths: Indices, parts: int) -> Indices:
    """Where to cut a sequence of lengths into parts of about equal sums: the first index of each later part."""
    ends = np.cumsum(lengths)
    targets = ends[-1] * np.arange(1, parts, dtype=np.int64) / parts
    cuts: Indices = np.searchsorted(ends, targets, side="right").astype(np.int64)
    return cuts


def _shuffled(places: NDArray[np.uint64], size: int, key: int) -> Indices:
    """Where a pseudo-random permutation of 0 .. size - 1 sends some places, at a cost of their number alone.

    A four-round Feistel network over the next power of four; places outside of the range are sent on until inside.
    """
    half = np.uint64(max(1, (max(size - 1, 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    x = places.copy()
    outside = np.ones(len(x), dtype=bool)
    while outside.any():
        left, right = x[outside] >> half, x[outside] & mask
        for number in range(4):
            left, right = right, left ^ (splitmix64(right ^ np.uint64(mixed_seed(key, number))) & mask)
        x[outside] = left << half | right
        outside = x >= np.uint64(size)
    return x.astype(np.int64)


def mixed_seed(*numbers: int) -> int:
    """One 64-bit seed from several numbers, the same on every machine; each number changes all of it."""
    seed = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        seed = splitmix64(seed ^ np.uint64(number & 0xFFFFFFFFFFFFFFFF))
    return int(seed[0])


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood 2014): each bit of x changes half the bits of the result."""
    x = x + GOLDEN_GAMMA  # arrays wrap around without a warning
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
