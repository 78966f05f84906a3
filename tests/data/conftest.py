"""A store of pairs of given lengths."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aiayn_cli.data.store import TokenStore, TokenStoreWriter

Lengths = list[tuple[int, int]]


def make_store(folder: Path, lengths: Lengths, split: str = "train") -> TokenStore:
    """Pairs of the given lengths (source, target); no two tokens next to each other are the same."""
    writer = TokenStoreWriter(folder, split, np.dtype("<u2"))
    src_lengths, tgt_lengths = (np.array([pair[side] for pair in lengths], np.int32) for side in (0, 1))
    src, tgt = ((np.arange(x.sum()) * 7 % 60_000 + 4).astype(np.uint16) for x in (src_lengths, tgt_lengths))
    writer.add(src, src_lengths, tgt, tgt_lengths)
    writer.close()
    return TokenStore(folder, split)


@pytest.fixture(scope="module")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Lengths], TokenStore]:
    return lambda lengths: make_store(tmp_path_factory.mktemp("store"), lengths)
