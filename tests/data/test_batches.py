"""Every pair once in an epoch, in updates that depend on seed and place alone; batches hold their pairs exactly."""

import tracemalloc
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_pairs import read_pair, write_store
from numpy.typing import NDArray

from aiayn_cli.data import batches
from aiayn_cli.data.batches import (
    LEAST_POOL_PAIRS,
    Indices,
    Position,
    Update,
    in_order,
    largest_batch,
    mixed_seed,
    plan_updates,
    pool_pairs_for,
    split_update,
)
from aiayn_cli.data.collate import Shape, collate, flatten, shape_of
from aiayn_cli.data.store import SIDES, TokenStore
from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID

Lengths = list[tuple[int, int]]
StoreOf = Callable[[Lengths], TokenStore]
some_lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> StoreOf:
    """A store of pairs of the given lengths (source, target); no two tokens next to each other are the same."""

    def make(lengths: Lengths) -> TokenStore:
        src_lengths, tgt_lengths = (np.array([pair[side] for pair in lengths], np.int32) for side in (0, 1))
        src, tgt = ((np.arange(x.sum()) * 7 % 60_000 + 4).astype(np.uint16) for x in (src_lengths, tgt_lengths))
        return write_store(tmp_path_factory.mktemp("store"), "train", src, src_lengths, tgt, tgt_lengths)

    return make


def longer_sides(store: TokenStore) -> NDArray[np.int32]:
    """Tokens of the longer side of each pair, with its end token."""
    return np.maximum(*(store.lengths(range(len(store)), side) for side in SIDES)) + 1


@pytest.fixture(scope="module")
def multilingual_lengths() -> Lengths:
    """One pool of lengths as cleaned corpora have them: log-normal, the target correlated with the source."""
    random = np.random.default_rng(3)
    src = np.clip(random.lognormal(3.1, 0.6, 70_000), 1, 250)
    tgt = np.clip(src * random.lognormal(0.05, 0.2, len(src)), 1, 250)
    kept = np.flatnonzero(np.maximum(src, tgt) / np.minimum(src, tgt) < 1.5)[:65_000]
    return list(zip(src[kept].astype(int).tolist(), tgt[kept].astype(int).tolist(), strict=True))


def epoch(
    store: TokenStore, batch_tokens: int, seed: int, number: int = 0, pool: int = LEAST_POOL_PAIRS
) -> list[Update]:
    found = []
    for update in plan_updates(store, batch_tokens, seed, Position(number), pool):
        found.append(update)
        if update.after.epoch > number:
            break
    return found


def order(updates: list[Update]) -> list[int]:
    return [int(pair) for update in updates for pair in update.pairs]


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 15, 16, 17, 41])
def test_an_epoch_has_each_pair_once(size: int, store_of: StoreOf) -> None:
    updates = epoch(store_of([(i % 5, i % 3) for i in range(size)]), batch_tokens=11, seed=4, pool=8)
    assert sorted(order(updates)) == list(range(size))
    assert [update.after.pairs for update in updates] == [*np.cumsum([len(u.pairs) for u in updates])[:-1], 0]
    assert [update.after.epoch for update in updates] == [0] * (len(updates) - 1) + [1]


def test_epochs_and_seeds_have_orders_of_their_own_and_keep_them(
    store_of: StoreOf,
) -> None:
    store = store_of([(3 + i % 4, 5) for i in range(60)])
    seen = {(seed, number): order(epoch(store, 40, seed, number, pool=16)) for seed in (1, 2) for number in (0, 1, 2)}
    assert len({tuple(each) for each in seen.values()}) == len(seen)
    assert seen[2, 1] == order(epoch(store, 40, 2, 1, pool=16))
    # The second pool is not the first one's neighbours: pairs of all places of the corpus are in it.
    pool = seen[1, 0][16:32]
    assert min(pool) < 16
    assert max(pool) >= 44


@settings(max_examples=50)
@given(lengths=some_lengths, batch_tokens=st.integers(1, 60), seed=st.integers(0, 2**63), data=st.data())
def test_from_every_position_the_rest_follows_exactly(
    store_of: StoreOf, lengths: Lengths, batch_tokens: int, seed: int, data: st.DataObject
) -> None:
    pool = data.draw(st.integers(1, 50), label="pool")
    store = store_of(lengths)
    updates = [*epoch(store, batch_tokens, seed, 0, pool), *epoch(store, batch_tokens, seed, 1, pool)]
    stop = data.draw(st.integers(0, len(updates) - 1), label="stop")
    start = updates[stop - 1].after if stop else Position()
    rest = list(islice(plan_updates(store, batch_tokens, seed, start, pool), len(updates) - stop))
    for one, other in zip(rest, updates[stop:], strict=True):
        assert one.pairs.tolist() == other.pairs.tolist()
        assert (one.tgt_tokens, one.after) == (other.tgt_tokens, other.after)


@settings(max_examples=50)
@given(lengths=some_lengths, batch_tokens=st.integers(1, 60))
def test_an_update_is_not_longer_than_asked_for_by_a_whole_pair(
    store_of: StoreOf, lengths: Lengths, batch_tokens: int
) -> None:
    store = store_of(lengths)
    updates = epoch(store, batch_tokens, seed=5)
    longer = longer_sides(store)
    for update in updates:
        assert longer[update.pairs].sum() < batch_tokens + longer[update.pairs].max()
        assert update.tgt_tokens == store.lengths(update.pairs, "tgt").sum() + len(update.pairs)
    assert len(updates) <= -(-longer.sum() // batch_tokens)


def test_a_pair_longer_than_an_update_is_one_by_itself(store_of: StoreOf) -> None:
    store = store_of([(4, 6), (90, 80), (5, 5), (100, 99), (6, 6), (2, 1)])
    sizes = {tuple(update.pairs.tolist()) for update in epoch(store, batch_tokens=30, seed=1)}
    assert {(1,), (3,)} < sizes


@pytest.mark.parametrize("batch_tokens", [4_096, 25_000])
def test_padding_is_below_5_percent_of_either_side_in_batches_of_4096_tokens(
    batch_tokens: int, store_of: StoreOf, multilingual_lengths: Lengths
) -> None:
    store = store_of(multilingual_lengths)
    for side in SIDES:
        lengths = store.lengths(range(len(store)), side)
        tokens = padded = 0
        for update in epoch(store, batch_tokens, seed=1):
            for pairs in split_update(store, update.pairs, max_tokens=4_096):
                tokens += int(lengths[pairs].sum()) + len(pairs)
                padded += (int(lengths[pairs].max()) + 1) * len(pairs)
        assert 1 - tokens / padded < 0.05


@pytest.mark.parametrize(
    ("batch_tokens", "pool"), [(1, 65_536), (4_096, 65_536), (4_097, 131_072), (25_000, 524_288), (10**6, 524_288)]
)
def test_larger_updates_are_taken_from_larger_pools(batch_tokens: int, pool: int) -> None:
    assert pool_pairs_for(batch_tokens) == pool


def test_an_empty_store_is_refused_and_says_where_to_look(store_of: StoreOf) -> None:
    with pytest.raises(DataError, match="no training pairs") as error:
        next(plan_updates(store_of([]), 100, 1, Position()))
    assert "dropped" in error.value.hint


def test_memory_of_planning_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    def peak(n: int) -> int:
        folder = tmp_path / str(n)
        folder.mkdir()
        lengths = (np.arange(n) % 3).astype(np.int32)
        tokens = np.full(lengths.sum(), 7, np.uint16)
        for shard in range(n // 200_000):
            here = lengths[shard * 200_000 : (shard + 1) * 200_000]
            write_store(folder, "train", tokens[: here.sum()], here, tokens[: here.sum()], here, shard=shard)
        tracemalloc.start()
        store = TokenStore(folder, "train")
        updates = list(islice(plan_updates(store, 4_096, 1, Position(0, n - 70_000)), 40))
        assert len(largest_batch(store, 4_096)) == 4_352 // 3
        assert store.n_tokens("src") == sum(int(src.sum()) for src, _ in store.length_chunks()) == len(tokens)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert updates[-1].after.epoch == 1
        return found

    fewer, more = 200_000, 2_000_000
    assert peak(more) - peak(fewer) < 2 * (more - fewer)  # bytes; lengths in memory would take 8 for a pair


def test_shuffling_leaves_no_pattern() -> None:
    size, rounds = 1_000, 40
    places = np.stack([batches._shuffled(np.arange(size, dtype=np.uint64), size, key) for key in range(rounds)])
    steps = np.abs(np.diff(places, axis=1))
    assert abs(steps.mean() - size / 3) < size / 30  # the mean distance of two random places
    correlation = np.corrcoef(places.ravel(), np.tile(np.arange(size), rounds))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(size * rounds)


def test_each_number_changes_the_whole_mixed_seed() -> None:
    seeds = [mixed_seed(1, 2, 3), mixed_seed(1, 2, 4), mixed_seed(1, 3, 3), mixed_seed(2, 2, 3), mixed_seed(1, 2)]
    seeds += [mixed_seed(3, 2, 1), mixed_seed(0), mixed_seed(0, 0), mixed_seed(2**64 - 1)]
    flipped = [(one ^ other).bit_count() for i, one in enumerate(seeds) for other in seeds[:i]]
    assert min(flipped) > 10
    assert max(flipped) < 54
    assert torch.manual_seed(max(seeds)) is not None  # torch takes all 64 bits


@settings(max_examples=50)
@given(
    lengths=some_lengths,
    max_tokens=st.integers(1, 120),
    n_ranks=st.integers(1, 5),
)
def test_an_update_is_divided_without_loss_and_no_part_is_too_large(
    store_of: StoreOf, lengths: Lengths, max_tokens: int, n_ranks: int
) -> None:
    store = store_of(lengths)
    pairs = epoch(store, batch_tokens=10_000, seed=2)[0].pairs
    chunks = split_update(store, pairs, max_tokens, n_ranks)
    assert len(chunks) % n_ranks == 0
    assert sorted(pair for chunk in chunks for pair in chunk.tolist()) == list(range(len(lengths)))
    longer = longer_sides(store)
    for chunk in chunks:
        assert len(chunk) <= 1 or longer[chunk].max() * len(chunk) <= max_tokens * 17 / 16


@pytest.mark.parametrize("batch_tokens", [4_096, 25_000])
def test_an_update_as_large_as_a_micro_batch_is_one(
    batch_tokens: int, store_of: StoreOf, multilingual_lengths: Lengths
) -> None:
    store = store_of(multilingual_lengths)
    updates = epoch(store, batch_tokens, seed=1)
    divided = [len(split_update(store, update.pairs, batch_tokens)) for update in updates]
    assert divided.count(1) >= 0.93 * len(updates)  # not where a token more or less is much, or pairs are few


@pytest.mark.parametrize("n_ranks", [1, 2, 3, 8])
def test_parts_of_an_update_are_about_equal(n_ranks: int, store_of: StoreOf, multilingual_lengths: Lengths) -> None:
    store = store_of(multilingual_lengths)
    longer = longer_sides(store)
    for update in islice(plan_updates(store, 25_000, 1, Position()), 6):
        sizes = [longer[chunk].sum() for chunk in split_update(store, update.pairs, 4_096, n_ranks)]
        assert len(sizes) <= 12 + n_ranks  # few more than 25,000 / 4,096, for padding
        assert max(sizes) - min(sizes) <= 2 * longer[update.pairs].max()


@settings(max_examples=50)
@given(lengths=some_lengths, max_tokens=st.integers(1, 120), seed=st.integers(0, 9))
def test_no_micro_batch_takes_more_than_the_largest_one(
    store_of: StoreOf, lengths: Lengths, max_tokens: int, seed: int
) -> None:
    def area(pairs: Indices) -> int:  # of one side's attention weights, what grows fastest
        return int(longer[pairs].max()) ** 2 * len(pairs)

    store = store_of(lengths)
    longer = longer_sides(store).astype(np.int64)
    largest = largest_batch(store, max_tokens)
    assert len(largest) == 1 or longer[largest].max() * len(largest) <= max_tokens + max_tokens // 16
    for update in epoch(store, 70, seed):
        for chunk in split_update(store, update.pairs, max_tokens):
            # A batch of shorter pairs may fill max_tokens better, by less than one pair of the largest.
            assert len(chunk) == 0 or area(chunk) <= area(largest) + int(longer.max()) ** 2


def test_validation_leaves_out_what_is_too_long(store_of: StoreOf) -> None:
    store = store_of([(3, 4), (9, 2), (2, 10), (10, 10), (1, 1)])
    assert sorted(np.concatenate(list(in_order(store, 20, longest=11))).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(np.concatenate(list(in_order(store, 20, longest=10))).tolist()) == [0, 1, 4]
    assert list(in_order(store, 20, longest=1)) == []
    assert list(in_order(store_of([]), 100)) == []


@settings(max_examples=50)
@given(lengths=some_lengths, max_tokens=st.integers(1, 80))
def test_in_order_has_each_pair_once_in_batches_that_fit(store_of: StoreOf, lengths: Lengths, max_tokens: int) -> None:
    store = store_of(lengths)
    chunks = [chunk.tolist() for chunk in in_order(store, max_tokens)]
    pairs = [pair for chunk in chunks for pair in chunk]
    assert sorted(pairs) == list(range(len(lengths)))
    longer = longer_sides(store)
    assert longer[pairs].tolist() == sorted(longer.tolist())
    for chunk, following in zip(chunks, [*chunks[1:], None], strict=True):
        assert len(chunk) == 1 or longer[chunk].max() * len(chunk) <= max_tokens
        if following is not None:  # no batch could have taken one more
            assert longer[following[0]] * (len(chunk) + 1) > max_tokens


def test_one_pair_of_odd_lengths_does_not_make_all_batches_small(store_of: StoreOf) -> None:
    # Validation text is not cleaned, so a line of 400 tokens may stand beside a translation of 3.
    store = store_of([(20, 21)] * 2_000 + [(400, 3)])
    assert sum(1 for _ in in_order(store, max_tokens=4_096)) <= 2_000 * 22 // 4_096 + 2


@settings(max_examples=50)
@given(lengths=some_lengths, data=st.data())
def test_collate_equals_a_loop_over_pairs(store_of: StoreOf, lengths: Lengths, data: st.DataObject) -> None:
    store = store_of(lengths)
    pairs = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=9)))
    batch = collate(store, pairs)
    src_width, tgt_width = (int(store.lengths(pairs, side).max()) + 1 for side in SIDES)
    for row, pair in enumerate(pairs.tolist()):
        src, tgt = (ids.tolist() for ids in read_pair(store, pair))
        assert batch.src[row].tolist() == [*src, EOS_ID] + [PAD_ID] * (src_width - len(src) - 1)
        assert batch.tgt_in[row].tolist() == [BOS_ID, *tgt] + [PAD_ID] * (tgt_width - len(tgt) - 1)
        assert batch.tgt_out[row].tolist() == [*tgt, EOS_ID] + [PAD_ID] * (tgt_width - len(tgt) - 1)
    if len(set(store.lengths(pairs, "src").tolist())) == 1:
        assert batch.src_mask is None
    else:
        assert batch.src_mask is not None
        assert batch.src_mask.dtype is torch.bool
        assert torch.equal(batch.src_mask, batch.src != PAD_ID)
    assert batch.tgt_tokens == int((batch.tgt_out != PAD_ID).sum())
    assert {x.dtype for x in (batch.src, batch.tgt_in, batch.tgt_out)} == {torch.int64}


@settings(max_examples=50)
@given(lengths=some_lengths, data=st.data(), more=st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)))
def test_a_larger_shape_adds_places_without_tokens_and_rows_of_one_source_token(
    store_of: StoreOf, lengths: Lengths, data: st.DataObject, more: tuple[int, int, int]
) -> None:
    store = store_of(lengths)
    pairs = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=9)))
    exact, size = collate(store, pairs), shape_of(store, pairs)
    assert size == (len(pairs), exact.src.shape[1], exact.tgt_in.shape[1])
    larger = collate(store, pairs, Shape(*(a + b for a, b in zip(size, more, strict=True))))
    assert larger.src.shape == (size.pairs + more[0], size.src_length + more[1])
    assert larger.tgt_in.shape == larger.tgt_out.shape == (size.pairs + more[0], size.tgt_length + more[2])
    for name in ("src", "tgt_in", "tgt_out"):
        whole, part = getattr(larger, name), getattr(exact, name)
        assert torch.equal(whole[: size.pairs, : part.shape[1]], part)
        assert bool((whole[: size.pairs, part.shape[1] :] == PAD_ID).all())
    first = (EOS_ID, BOS_ID, PAD_ID)
    for rows, token in zip((larger.src, larger.tgt_in, larger.tgt_out), first, strict=True):
        assert bool((rows[size.pairs :, 0] == token).all())
        assert bool((rows[size.pairs :, 1:] == PAD_ID).all())
    assert larger.src_mask is not None
    assert torch.equal(larger.src_mask, larger.src != PAD_ID)
    assert larger.tgt_tokens == exact.tgt_tokens


@settings(max_examples=50)
@given(lengths=some_lengths, data=st.data())
def test_flatten_is_the_pairs_one_after_the_other(store_of: StoreOf, lengths: Lengths, data: st.DataObject) -> None:
    store = store_of(lengths)
    pairs = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=9))
    batch = flatten(store, np.array(pairs))
    texts = [[ids.tolist() for ids in read_pair(store, pair)] for pair in pairs]
    assert batch.src.tolist() == [token for src, _ in texts for token in [*src, EOS_ID]]
    assert batch.tgt_in.tolist() == [token for _, tgt in texts for token in [BOS_ID, *tgt]]
    assert batch.tgt_out.tolist() == [token for _, tgt in texts for token in [*tgt, EOS_ID]]
    assert batch.src_lengths.tolist() == [len(src) + 1 for src, _ in texts]
    assert batch.tgt_lengths.tolist() == [len(tgt) + 1 for _, tgt in texts]
    assert {x.dtype for x in (batch.src, batch.src_lengths, batch.tgt_in, batch.tgt_lengths)} == {torch.int64}
