"""Sentence pairs for measurements of speed: any number of them, made in a moment and without a network."""

import math
from pathlib import Path

import numpy as np

from aiayn_cli.data.store import TokenStore, TokenStoreWriter


def sentences_like_wmt(folder: Path, pairs: int, vocab_size: int) -> TokenStore:
    """Pairs whose lengths are like WMT14 English-German's in sub-words: about 28 a side, a log-normal's long tail.

    Words are as frequent as Zipf's law says; each target is its source, word by word in other ids, so that there is
    something to learn.
    """
    random = np.random.default_rng(7)
    src_lengths = np.clip(random.lognormal(3.15, 0.6, pairs).astype(np.int32), 1, 250)
    tgt_lengths = np.clip((src_lengths * random.lognormal(0.03, 0.17, pairs)).astype(np.int32), 1, 250)
    ranks = np.exp(random.random(int(src_lengths.sum())) * math.log(vocab_size - 4)).astype(np.int64)
    src = (4 + np.minimum(ranks, vocab_size - 5)).astype(np.uint16)
    starts = np.cumsum(src_lengths) - src_lengths
    places = np.arange(int(tgt_lengths.sum())) - np.repeat(np.cumsum(tgt_lengths) - tgt_lengths, tgt_lengths)
    words = src[np.repeat(starts, tgt_lengths) + places % np.repeat(src_lengths, tgt_lengths)]
    tgt = (4 + (words.astype(np.int64) * 7 + 11) % (vocab_size - 4)).astype(np.uint16)
    folder.mkdir(parents=True)
    writer = TokenStoreWriter(folder, "train", np.dtype("<u2"))
    writer.add(src, src_lengths, tgt, tgt_lengths)
    writer.close()
    return TokenStore(folder, "train")
