"""Where the pairs of one `prepare` come from: any number of origins for training, and some for validation and test."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.corpora.corpus import Amount, Archive, Split
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.formats import Pairs
from aiayn_cli.prepare.pairs import ArchiveMember, Chunk, ReadCounts

# Bytes of text in a byte of a compressed file, for European languages; about.
_EXPANSION = {".gz": 3.2, ".tgz": 3.2, ".zip": 3.2, ".zst": 3.5, ".xz": 4.0, ".bz2": 4.0}
# An archive may hold far more than what is read of it. Where the number of pairs is known, this is the most that they
# take: bytes of both sides, on the average; UN and 10^9 of WMT14 have the longest, with some 400.
_PAIR_BYTES = 500
# For each byte of text: clean text and hashes; the raw text where that is kept beside the processed one; token ids, as
# often as the weight says.
_TEXT, _RAW_TEXT, _IDS = 1.0, 1.2, 1.0

ROUGHLY = 0.1  # how far a number of pairs may be from one that is only roughly known
_WHERE = {"part", "path", "bytes", "url", "read"}  # what an entry of `describe` has more than one of `identity`


@dataclass(frozen=True)
class Origin:
    """Pairs of one origin.

    Attributes:
        name: what tables and --weight call it: a corpus's part, or a path.
        pairs: how to read them.
        weight: how often each of its pairs is in the training data.
        expected: how many there should be.
        md5: of the records of source and target side, each right-trimmed and followed by LF; empty where unknown.
    """

    name: str
    pairs: Pairs
    weight: int = 1
    expected: Amount = field(default_factory=lambda: Amount(None))
    md5: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class PairSource:
    """Pairs for training, and perhaps for validation and test.

    Attributes:
        train: origins of training pairs, read one after the other.
        valid: of validation pairs.
        test: of test pairs.
        valid_every: validation pairs are each n-th of all training pairs; 0 where they are not.
        downloads: where archives are; None where all is local.
    """

    train: Sequence[Origin]
    valid: Sequence[Origin] = ()
    test: Sequence[Origin] = ()
    valid_every: int = 0
    downloads: Downloads | None = None

    def fetch(self) -> None:
        """Look for each local file, then download what is not here yet.

        Raises:
            DataError: something cannot be had.
        """
        archives: dict[str, Archive] = {}
        for _, origin in self._origins():
            for _, each in origin.pairs.inputs():
                if isinstance(each, ArchiveMember):
                    archives[each.archive.file] = each.archive
                else:
                    each.identity()
        if self.downloads is not None:
            self.downloads.fetch(list(archives.values()))

    def identity(self) -> list[dict[str, Any]]:
        """Say what is read, before anything is downloaded: two sources of the same identity give the same pairs."""
        return [
            {**self._entry(split, origin, side), **each.identity()}
            for split, origin in self._origins()
            for side, each in origin.pairs.inputs()
        ]

    def describe(self) -> list[dict[str, Any]]:
        """Say it for the manifest, with where everything was found; after `fetch`."""
        return [
            {**self._entry(split, origin, side), "part": origin.name, **each.describe()}
            for split, origin in self._origins()
            for side, each in origin.pairs.inputs()
        ]

    def read_train(self, counts: ReadCounts) -> Iterator[tuple[int, Chunk]]:
        """Read the training pairs, each chunk with the number of its origin; without those for validation."""
        position = 0
        for number, origin in enumerate(self.train):
            for chunk in _checked(origin, counts):
                if self.valid_every:
                    start, position = position, position + len(chunk[0])
                    chunk = _pick_nth(chunk, start, self.valid_every, take=False)
                    counts.pairs -= position - start - len(chunk[0])
                yield number, chunk

    def scored(self, split: str, counts: ReadCounts) -> Chunk | None:
        """Read all pairs of "valid" or "test"; None where there are none."""
        if split == "valid" and self.valid_every:
            logs.notice(f"taking each {self.valid_every:,}th training pair for validation")
            return self._read_nth(counts)
        origins: Sequence[Origin] = getattr(self, split)
        if not origins:
            return None
        return _join(chunk for origin in origins for chunk in _checked(origin, counts))

    def _read_nth(self, counts: ReadCounts) -> Chunk | None:
        def nth() -> Iterator[Chunk]:
            position = 0
            for origin in self.train:
                for chunk in origin.pairs.read(ReadCounts()):  # its counts belong to the training text
                    yield _pick_nth(chunk, position, self.valid_every, take=True)
                    position += len(chunk[0])

        taken = _join(nth())
        counts.pairs += len(taken[0])
        return taken if taken[0] else None

    def _origins(self) -> Iterator[tuple[Split, Origin]]:
        splits: tuple[tuple[Split, Sequence[Origin]], ...]
        splits = ("train", self.train), ("valid", self.valid), ("test", self.test)
        for split, origins in splits:
            for origin in origins:
                yield split, origin

    def _entry(self, split: Split, origin: Origin, side: str) -> dict[str, Any]:
        entry = {"split": split, "side": side, **origin.pairs.settings()}
        if split == "train":
            entry["weight"] = origin.weight
            if self.valid_every:
                entry["valid_every"] = self.valid_every
        return entry


def identity_of(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reduce what `PairSource.describe` gave to what `PairSource.identity` gives."""
    return [{key: value for key, value in entry.items() if key not in _WHERE} for entry in entries]


def _checked(origin: Origin, counts: ReadCounts) -> Iterator[Chunk]:
    """Read an origin, and say so where it is not what is known of it."""
    before = counts.pairs
    hashes = [hashlib.md5(usedforsecurity=False) if md5 else None for md5 in origin.md5]
    for chunk in origin.pairs.read(counts):
        for md5, side in zip(hashes, chunk, strict=True):
            if md5 is not None:
                md5.update("".join(f"{record.rstrip()}\n" for record in side).encode())
        yield chunk
    found, expected = counts.pairs - before, origin.expected.number
    tolerance = ROUGHLY if origin.expected.approximate else 0
    if expected is not None and abs(found - expected) > tolerance * expected:
        about = "about " if origin.expected.approximate else ""
        logs.warning(f"{origin.name} has {found:,} pairs, but is known to have {about}{expected:,}")
    elif any(md5 is not None and md5.hexdigest() != known for md5, known in zip(hashes, origin.md5, strict=True)):
        logs.warning(f"{origin.name} is not, to the letter, the text that others score on")


def _pick_nth(chunk: Chunk, start: int, n: int, *, take: bool) -> Chunk:
    """Take each n-th pair, or leave it out; `start` pairs came before this chunk."""
    nth = slice((n - 1 - start) % n, None, n)
    if take:
        return chunk[0][nth], chunk[1][nth]
    others = chunk[0].copy(), chunk[1].copy()
    for side in others:
        del side[nth]
    return others


def _join(chunks: Iterable[Chunk]) -> Chunk:
    src: list[str] = []
    tgt: list[str] = []
    for src_chunk, tgt_chunk in chunks:
        src += src_chunk
        tgt += tgt_chunk
    return src, tgt


def estimate_disk(origins: Iterable[Origin], *, processed: bool) -> int:
    """Estimate how many bytes the work takes at most, together with its result.

    Args:
        origins: all that is read; its files are here.
        processed: whether text is normalised or tokenised.
    """
    needed = 0.0
    archives: dict[str, float] = {}  # those of which nobody knows how much is read
    for origin in origins:
        taken = _TEXT + _RAW_TEXT * processed + _IDS * origin.weight
        for _, each in origin.pairs.inputs():
            entry = each.describe()
            file = entry.get("read", entry)
            name = str(file.get("file") or file.get("path", ""))
            size = file.get("bytes", 0) * _EXPANSION.get(Path(name).suffix.lower(), 1.0) * taken
            if origin.expected.number is not None:
                needed += min(size, origin.expected.number * _PAIR_BYTES / 2 * taken)
            elif "read" in entry:
                archives[name] = max(archives.get(name, 0.0), size)
            else:
                needed += size
    return int(needed + sum(archives.values()))


def check_disk(folder: Path, needed: int) -> None:
    """Make sure that there is room for so many bytes.

    Raises:
        DataError: there is not; both numbers are named.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"{folder.parent} has {size_text(free)} free, but preparing takes about {size_text(needed)}",
            "free some space, or give an --out on another disk",
        )


def size_text(size: int) -> str:
    """Write a number of bytes as MB or GB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
