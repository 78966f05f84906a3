"""Where the pairs come from: files, archives and generated text, for training, validation and test."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from aiayn_cli import logs
from aiayn_cli.corpora.archive_members import open_member
from aiayn_cli.corpora.corpus import SPLITS, Amount, Archive
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.errors import DataError
from aiayn_cli.files import hash_of
from aiayn_cli.prepare.formats import Chunk, Input, Pairs, ReadCounts
from aiayn_cli.text.lines import display_name, open_text_bytes

# Bytes of text in a byte of a compressed file, for European languages; about.
_EXPANSION = {".gz": 3.2, ".tgz": 3.2, ".zip": 3.2, ".zst": 3.5, ".xz": 4.0, ".bz2": 4.0}
# An archive may hold far more than what is read from it. Where the number of pairs is known, this is an upper bound on
# the bytes of both sides of a pair, on average; UN and 10^9 of WMT14 have the longest, with some 400.
_PAIR_BYTES = 500
# Disk for each byte of text: clean text and hashes; the raw text if it is kept too; token ids, for each weight.
_TEXT, _RAW_TEXT, _IDS = 1.0, 1.2, 1.0

_UNKNOWN = Amount(None)
ROUGHLY = 0.1  # relative tolerance of an approximate number of pairs
_WHERE = {"part", "path", "bytes", "url", "read"}  # what an entry of `describe` has in addition to its `identity`


@dataclass(frozen=True)
class LocalFile:
    """A file of the user, plain or compressed."""

    path: Path

    @property
    def name(self) -> str:
        return display_name(self.path)

    def open(self) -> BinaryIO:
        return open_text_bytes(self.path)

    def identity(self) -> dict[str, Any]:
        return {"sha256": self._sha256}

    def describe(self) -> dict[str, Any]:
        return {"path": self.name, "bytes": self.path.stat().st_size, "sha256": self._sha256}

    @cached_property
    def _sha256(self) -> str:
        if str(self.path) == "-" or (self.path.exists() and not self.path.is_file() and not self.path.is_dir()):
            problem = f"{self.name} is not a regular file, but prepare reads its text more than once"
            raise DataError(problem, "save it to a file first")
        self.open().close()  # for its messages
        return hash_of(self.path)


@dataclass(frozen=True)
class ArchiveMember:
    """A member of an archive, or an archive that is a single compressed file."""

    archive: Archive
    member: str  # path inside; empty for the archive itself
    downloads: Downloads

    @property
    def name(self) -> str:
        return f"{self.archive.file}:{self.member}" if self.member else self.archive.file

    def open(self) -> BinaryIO:
        path = self.downloads.path(self.archive)
        return open_member(path, self.member) if self.member else open_text_bytes(path)

    def identity(self) -> dict[str, Any]:
        published = {name: value for name in ("sha256", "md5") if (value := getattr(self.archive, name))}
        return {"archive": self.archive.file, "member": self.member, **published}

    def describe(self) -> dict[str, Any]:
        path = self.downloads.path(self.archive)  # perhaps another container of the same members
        read = {"file": path.name, "bytes": path.stat().st_size, "sha256": self.downloads.sha256(self.archive)}
        return {**self.identity(), "url": self.archive.urls[0], "read": read}


@dataclass(frozen=True)
class MadeText:
    """Text that the package generates."""

    name: str
    content: bytes

    def open(self) -> BinaryIO:
        return BytesIO(self.content)

    def identity(self) -> dict[str, Any]:
        return {"made": self.name, "sha256": hashlib.sha256(self.content).hexdigest()}

    def describe(self) -> dict[str, Any]:
        return self.identity()


@dataclass(frozen=True)
class Origin:
    """Pairs with one name and one weight: a part of a corpus, or the user's files."""

    name: str  # in tables and for --weight: a corpus's part, or a path
    pairs: Pairs
    weight: int = 1  # how often each of its pairs is in the training data
    expected: Amount = _UNKNOWN  # pairs that there should be
    md5: tuple[str, str] = ("", "")  # of both sides' records, each right-trimmed and followed by LF; empty if unknown


@dataclass(frozen=True)
class PairSource:
    """All that one `prepare` reads."""

    train: Sequence[Origin]  # read one after the other
    valid: Sequence[Origin] = ()
    test: Sequence[Origin] = ()
    valid_every: int = 0  # each n-th training pair is for validation; 0: none
    downloads: Downloads | None = None

    def fetch(self) -> None:
        """Check that each local file can be read, then download missing archives; raises DataError."""
        archives: dict[str, Archive] = {}
        for _, _, each in self._inputs():
            if isinstance(each, ArchiveMember):
                archives[each.archive.file] = each.archive
            else:
                each.identity()
        if self.downloads is not None:
            self.downloads.fetch(list(archives.values()))

    def identity(self) -> list[dict[str, Any]]:
        """What identifies the text before anything is downloaded: sources of the same identity give the same pairs."""
        return [{**entry, **each.identity()} for entry, _, each in self._inputs()]

    def describe(self) -> list[dict[str, Any]]:
        """The identity with the place of everything, for the manifest; after `fetch`."""
        return [{**entry, "part": origin.name, **each.describe()} for entry, origin, each in self._inputs()]

    def read_train(self, counts: Sequence[ReadCounts]) -> Iterator[tuple[int, Chunk]]:
        """Read the training pairs but those for validation: chunks with the number of their origin; count by origin."""
        position = 0
        for number, (origin, own) in enumerate(zip(self.train, counts, strict=True)):
            taken = 0
            for chunk in _checked(origin, own):
                if self.valid_every:
                    nth = self._nth(position)
                    position += len(chunk[0])
                    taken += len(chunk[0][nth])
                    for side in chunk:
                        del side[nth]
                yield number, chunk
            own.pairs -= taken

    def read_scored(self, split: str, counts: ReadCounts) -> Chunk | None:
        """Read all pairs for "valid" or "test"; None if there are none."""
        scored: Chunk = [], []
        if split == "valid" and self.valid_every:
            logs.notice(f"validation text: one in {self.valid_every:,} training pairs")
            position = 0
            for origin in self.train:
                for chunk in origin.pairs.read(ReadCounts()):  # the counts belong to the training text
                    nth = self._nth(position)
                    scored[0].extend(chunk[0][nth])
                    scored[1].extend(chunk[1][nth])
                    position += len(chunk[0])
            counts.pairs += len(scored[0])
            return scored if scored[0] else None
        for origin in getattr(self, split):
            for chunk in _checked(origin, counts):
                scored[0].extend(chunk[0])
                scored[1].extend(chunk[1])
        return scored if getattr(self, split) else None

    def _nth(self, position: int) -> slice:
        """Where the pairs for validation are in a chunk, given the number of pairs before it."""
        return slice((self.valid_every - 1 - position) % self.valid_every, None, self.valid_every)

    def _inputs(self) -> Iterator[tuple[dict[str, Any], Origin, Input]]:
        for split in SPLITS:
            for origin in getattr(self, split):
                weights = {"weight": origin.weight} if split == "train" else {}
                if split == "train" and self.valid_every:
                    weights["valid_every"] = self.valid_every
                for side, each in origin.pairs.inputs():
                    yield {"split": split, "side": side, **origin.pairs.settings(), **weights}, origin, each


def identity_of(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The identity of a source that was described by these entries."""
    return [{key: value for key, value in entry.items() if key not in _WHERE} for entry in entries]


def names_of(origins: Sequence[Origin]) -> str:
    names = [origin.name for origin in origins]
    return ", ".join(names if len(names) < 5 else [*names[:3], f"{len(names) - 3} more"])


def _checked(origin: Origin, counts: ReadCounts) -> Iterator[Chunk]:
    """Read an origin; warn if it is not what the table of corpora says."""
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
        logs.warning(f"{origin.name} has {logs.counted(found, 'pair')}, but {about}{expected:,} were expected")
    elif any(md5 is not None and md5.hexdigest() != known for md5, known in zip(hashes, origin.md5, strict=True)):
        logs.warning(f"{origin.name} differs from the text that published scores refer to")


def estimate_disk(origins: Iterable[Origin], *, processed: bool) -> int:
    """An upper bound on the bytes that preparing takes, including the result but not the input files."""
    needed = 0.0
    archives: dict[str, float] = {}  # those whose number of pairs is unknown
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
    """Raise DataError if fewer bytes are free."""
    logs.detail(f"preparing takes about {logs.size_text(needed)} of disk, including the result")
    free = shutil.disk_usage(folder).free
    if free < needed:
        problem = f"{folder.parent} has {logs.size_text(free)} free, but preparing takes about {logs.size_text(needed)}"
        raise DataError(problem, "free some space, or put --out on another disk")
