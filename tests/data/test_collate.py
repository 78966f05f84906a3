"""Batches hold the pairs that they are made of, token by token."""

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_pairs import read_pair

from aiayn_cli.data.collate import Shape, collate, flatten, shape_of
from aiayn_cli.data.store import TokenStore
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID

Lengths = list[tuple[int, int]]
some_lengths = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=40)


@settings(max_examples=50)
@given(lengths=some_lengths, data=st.data())
def test_collate_equals_a_loop_over_pairs(
    store_of: Callable[[Lengths], TokenStore], lengths: Lengths, data: st.DataObject
) -> None:
    store = store_of(lengths)
    pairs = np.array(data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=9)))
    batch = collate(store, pairs)
    src_width, tgt_width = (
        int(x[pairs].max()) + 1
        for x in (store.lengths(range(len(store)), "src"), store.lengths(range(len(store)), "tgt"))
    )
    for row, pair in enumerate(pairs.tolist()):
        src, tgt = (ids.tolist() for ids in read_pair(store, pair))
        assert batch.src[row].tolist() == [*src, EOS_ID] + [PAD_ID] * (src_width - len(src) - 1)
        assert batch.tgt_in[row].tolist() == [BOS_ID, *tgt] + [PAD_ID] * (tgt_width - len(tgt) - 1)
        assert batch.tgt_out[row].tolist() == [*tgt, EOS_ID] + [PAD_ID] * (tgt_width - len(tgt) - 1)
    if len(set(store.lengths(range(len(store)), "src")[pairs].tolist())) == 1:
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
    store_of: Callable[[Lengths], TokenStore], lengths: Lengths, data: st.DataObject, more: tuple[int, int, int]
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
def test_flatten_is_the_pairs_one_after_the_other(
    store_of: Callable[[Lengths], TokenStore], lengths: Lengths, data: st.DataObject
) -> None:
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
