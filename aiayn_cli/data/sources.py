"""Where pairs come from: files of the user, or the corpus that the package makes itself."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aiayn_cli.data.pairs import CHUNK_PAIRS, Chunk, ReadCounts, hash_file, read_pairs
from aiayn_cli.data.toy import ToyCorpus, generate

PairOfFiles = tuple[Path, Path]  # source sides, target sides


class Source(Protocol):
    """Pairs for training, and perhaps for validation and test."""

    def describe(self) -> list[dict[str, Any]]:
        """Say what is read, with hashes: two sources with the same description give the same pairs."""

    def train(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read the training pairs."""

    def scored(self, split: str, counts: ReadCounts) -> Chunk | None:
        """Read all pairs of "valid" or "test"; None where there are none."""


@dataclass(frozen=True)
class FileSource:
    """Pairs in files, one record a line.

    Attributes:
        files: by split, the pairs of files; those of "train" are read one after the other.
        drop_bad_bytes: drop and count a pair with bad bytes, instead of stopping there.
    """

    files: Mapping[str, Sequence[PairOfFiles]]
    drop_bad_bytes: bool

    def describe(self) -> list[dict[str, Any]]:
        """Give each file's split, side, path, size and SHA-256."""
        return [
            {
                "split": split,
                "side": side,
                "path": str(path),
                "bytes": path.stat().st_size,
                "sha256": sha256,
            }
            for split, pairs in self.files.items()
            for pair in pairs
            for side, path in zip(("src", "tgt"), pair, strict=True)
            for sha256 in [hash_file(path)]
        ]

    def train(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read the training pairs, file after file."""
        for src, tgt in self.files["train"]:
            yield from read_pairs(src, tgt, counts, drop_bad_bytes=self.drop_bad_bytes)

    def scored(self, split: str, counts: ReadCounts) -> Chunk | None:
        """Read all pairs of a split."""
        all_src: list[str] = []
        all_tgt: list[str] = []
        for src, tgt in self.files.get(split, ()):
            for src_chunk, tgt_chunk in read_pairs(src, tgt, counts, drop_bad_bytes=self.drop_bad_bytes):
                all_src += src_chunk
                all_tgt += tgt_chunk
        return (all_src, all_tgt) if split in self.files else None


class DemoSource:
    """The corpus that the package makes itself (data/toy.py).

    Args:
        seed: which sentences.
    """

    def __init__(self, seed: int) -> None:
        self._corpus: ToyCorpus = generate(seed)

    def describe(self) -> list[dict[str, Any]]:
        """Give each split's number of pairs and the SHA-256 of its text."""
        return [
            {
                "split": split,
                "corpus": "demo",
                "pairs": len(self._pairs(split)),
                "sha256": hashlib.sha256("\n".join(f"{s}\n{t}" for s, t in self._pairs(split)).encode()).hexdigest(),
            }
            for split in ("train", "valid", "test")
        ]

    def train(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Give the training pairs."""
        pairs = self._pairs("train")
        for start in range(0, len(pairs), CHUNK_PAIRS):
            chunk = pairs[start : start + CHUNK_PAIRS]
            counts.pairs += len(chunk)
            yield [src for src, _ in chunk], [tgt for _, tgt in chunk]

    def scored(self, split: str, counts: ReadCounts) -> Chunk | None:
        """Give all pairs of a split."""
        pairs = self._pairs(split)
        counts.pairs += len(pairs)
        return [src for src, _ in pairs], [tgt for _, tgt in pairs]

    def _pairs(self, split: str) -> Sequence[tuple[str, str]]:
        splits: dict[str, Sequence[tuple[str, str]]] = {
            "train": self._corpus.train,
            "valid": self._corpus.valid,
            "test": self._corpus.test,
        }
        return splits[split]
