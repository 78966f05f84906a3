"""Pairs of made-up words for tests of `prepare`, as files and read back from prepared data."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import Tokens, TokenStore, TokenStoreWriter
from aiayn_cli.text.vocab import Vocab

Pair = tuple[str, str]


def make_pairs(n: int, seed: int) -> list[Pair]:
    """Different pairs whose sides have as many words."""
    rng = random.Random(seed)

    def sentence(mark: str, n_words: int) -> str:
        words = ["".join(rng.choices("abcdefghij", k=rng.randint(1, 4))) for _ in range(n_words)]
        return " ".join([*words, mark])

    lengths = [rng.randint(3, 9) for _ in range(n)]
    return [(sentence(f"s{i}x{seed}", k), sentence(f"t{i}x{seed}", k)) for i, k in enumerate(lengths)]


def lines(records: Iterable[str]) -> bytes:
    return "".join(f"{record}\n" for record in records).encode()


def src(pairs: Sequence[Pair]) -> list[str]:
    return [pair[0] for pair in pairs]


def tgt(pairs: Sequence[Pair]) -> list[str]:
    return [pair[1] for pair in pairs]


def write_pairs(folder: Path, name: str, pairs: Sequence[Pair]) -> tuple[Path, Path]:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, side in zip(paths, (src(pairs), tgt(pairs)), strict=True):
        path.write_bytes(lines(side))
    return paths


def decoded(data: PreparedData, split: str) -> list[Pair]:
    store = getattr(data, split)
    vocab = Vocab.load(data.vocab_path)
    sides = [[read_pair(store, i)[side].tolist() for i in range(len(store))] for side in (0, 1)]
    return list(zip(*map(vocab.decode, sides), strict=True))


def read_pair(store: TokenStore, i: int) -> tuple[Tokens, Tokens]:
    """The ids of one pair, source and target."""
    return store.gather([i], "src")[0], store.gather([i], "tgt")[0]


def write_store(folder: Path, split: str, *sides: Any, shard: int = 0) -> TokenStore:
    """Write ids and lengths of the sources, then those of the targets, and open them."""
    writer = TokenStoreWriter(folder, split, np.dtype("<u2"), shard)
    writer.add(*sides)
    writer.close()
    return TokenStore(folder, split)
