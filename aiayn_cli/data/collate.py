"""Pairs of a store as tensors: padded to one length, or one after the other."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aiayn_cli.data.store import SIDES, Side, TokenStore
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID

Indices = NDArray[np.int64]


class Shape(NamedTuple):
    """Rows of a padded batch, and the tokens in a row of each side."""

    pairs: int
    src_length: int
    tgt_length: int


@dataclass(frozen=True)
class Batch:
    """Padded tensors of some pairs."""

    src: Tensor  # int64 [batch, src_len], each row ended by EOS_ID, then PAD_ID
    src_mask: Tensor | None  # bool [batch, src_len], True = a real token; None where nothing is padded
    tgt_in: Tensor  # int64 [batch, tgt_len], BOS_ID first
    tgt_out: Tensor  # int64 [batch, tgt_len], what follows each token of tgt_in: EOS_ID last, then PAD_ID
    tgt_tokens: int  # of tgt_out, without padding

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device; a GPU copies asynchronously."""

        def moved(x: Tensor) -> Tensor:
            # Only from page-locked memory can a GPU copy by itself; torch keeps such memory for the next batch.
            return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)

        mask = None if self.src_mask is None else moved(self.src_mask)
        src, tgt_in, tgt_out = (moved(x) for x in (self.src, self.tgt_in, self.tgt_out))
        return Batch(src, mask, tgt_in, tgt_out, self.tgt_tokens)


@dataclass(frozen=True)
class FlatBatch:
    """Pairs without padding, one after the other."""

    src: Tensor  # int64 [source tokens], each sentence ended by EOS_ID
    src_lengths: Tensor  # int64 [pairs], with EOS_ID
    tgt_in: Tensor  # int64 [target tokens], each sentence with BOS_ID first
    tgt_out: Tensor  # int64 [target tokens], what follows each token of tgt_in: EOS_ID last
    tgt_lengths: Tensor  # int64 [pairs], with EOS_ID


def shape_of(store: TokenStore, pairs: Indices) -> Shape:
    """The smallest shape that holds some pairs."""
    src, tgt = (int(store.lengths(pairs, side).max()) + 1 for side in SIDES)
    return Shape(len(pairs), src, tgt)


def collate(store: TokenStore, pairs: Indices, shape: Shape | None = None) -> Batch:
    """Read pairs from the store into padded tensors.

    With a shape, they are padded to it, always with a mask; rows after the pairs have </s> as their only source token.
    """
    size = shape or shape_of(store, pairs)
    src, src_is_token = _rows(store, pairs, "src", size.pairs, size.src_length)
    tgt, tgt_is_token = _rows(store, pairs, "tgt", size.pairs, size.tgt_length)
    tgt_in = np.empty_like(tgt)  # without the last place; an end token inside becomes padding
    tgt_in[:, 0] = BOS_ID
    tgt_in[:, 1:] = np.where(tgt[:, :-1] == EOS_ID, PAD_ID, tgt[:, :-1])
    src[len(pairs) :, 0], src_is_token[len(pairs) :, 0] = EOS_ID, True
    return Batch(
        src=torch.from_numpy(src),
        src_mask=None if shape is None and src_is_token.all() else torch.from_numpy(src_is_token),
        tgt_in=torch.from_numpy(tgt_in),
        tgt_out=torch.from_numpy(tgt),
        tgt_tokens=int(np.count_nonzero(tgt_is_token)),
    )


def flatten(store: TokenStore, pairs: Indices) -> FlatBatch:
    """Read pairs from the store without padding."""
    src, src_lengths = _with_ends(store, pairs, "src")
    tgt, tgt_lengths = _with_ends(store, pairs, "tgt")
    tgt_in = np.empty_like(tgt)
    tgt_in[1:] = tgt[:-1]
    tgt_in[np.cumsum(tgt_lengths) - tgt_lengths] = BOS_ID
    return FlatBatch(*(torch.from_numpy(x) for x in (src, src_lengths, tgt_in, tgt, tgt_lengths)))


def _rows(store: TokenStore, pairs: Indices, side: Side, n_rows: int, length: int) -> tuple[Indices, NDArray[np.bool_]]:
    """One side of some pairs, each row ended by EOS_ID and padded: int64 [rows, length], and which are tokens."""
    flat, lengths = store.gather(pairs, side)
    columns, used = np.arange(length), len(pairs)
    rows = np.full((n_rows, length), PAD_ID, dtype=np.int64)
    rows[:used][columns < lengths[:, None]] = flat
    rows[np.arange(used), lengths] = EOS_ID
    is_token = np.zeros((n_rows, length), dtype=bool)
    is_token[:used] = columns <= lengths[:, None]
    return rows, is_token


def _with_ends(store: TokenStore, pairs: Indices, side: Side) -> tuple[Indices, Indices]:
    """One side of some pairs, each ending with EOS_ID: int64 [tokens], and the lengths, int64 [pairs]."""
    flat, lengths = store.gather(pairs, side)
    with_end = lengths.astype(np.int64) + 1
    ends = np.cumsum(with_end)
    tokens = np.empty(ends[-1], dtype=np.int64)
    is_text = np.ones(len(tokens), dtype=bool)
    is_text[ends - 1] = False
    tokens[is_text] = flat
    tokens[ends - 1] = EOS_ID
    return tokens, with_end
