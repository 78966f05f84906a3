"""Sentence pairs and where their bytes come from: files of the user, members of archives.

Pairs travel in chunks: two lists of records of the same length, the source sides and the target sides."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from aiayn_cli.corpora.archive_members import open_member
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.drift import DriftAlarm
from aiayn_cli.text.lines import RecordReader, display_name, open_text_bytes, write_records

CHUNK_PAIRS = 10_000

Chunk = tuple[list[str], list[str]]
Drift = Literal["stop", "warn", "ignore"]


@dataclass
class ReadCounts:
    """What happened while pairs were read."""

    pairs: int = 0
    bad_bytes: int = 0  # pairs dropped because of bytes that are not UTF-8, or NUL
    mapped: int = 0  # characters inside records that would end a line elsewhere, and became a blank
    skipped: int = 0  # entries that are no pair: lines about a talk, units without both languages


def pair_up(
    src_reader: RecordReader, tgt_reader: RecordReader, counts: ReadCounts, *, drift: Drift = "ignore"
) -> Iterator[Chunk]:
    """Read two sides in lock-step; a pair with a record that is None (bad bytes) is dropped and counted.

    Args:
        src_reader: source sides, not read yet.
        tgt_reader: target sides, likewise.
        counts: is added to as chunks are given.
        drift: what to do where one side has lost or gained lines in the middle.
    Raises:
        DataError: a side cannot be read, has more records than the other, or is moved against it.
    """
    alarm = DriftAlarm(src_reader.name, tgt_reader.name, only_warn=drift == "warn") if drift != "ignore" else None
    src_records, tgt_records = iter(src_reader), iter(tgt_reader)
    while True:
        src_chunk, tgt_chunk = list(islice(src_records, CHUNK_PAIRS)), list(islice(tgt_records, CHUNK_PAIRS))
        if len(src_chunk) != len(tgt_chunk):
            for _ in chain(src_records, tgt_records):
                pass  # the message tells both counts
            raise _unequal(src_reader, tgt_reader)
        if not src_chunk:
            break
        if alarm is not None:
            alarm.add(src_chunk, tgt_chunk)
        counts.pairs += len(src_chunk)
        if None in src_chunk or None in tgt_chunk:
            both = zip(src_chunk, tgt_chunk, strict=True)
            good = [(s, t) for s, t in both if s is not None and t is not None]
            counts.bad_bytes += len(src_chunk) - len(good)
            yield [s for s, _ in good], [t for _, t in good]
        else:
            yield src_chunk, tgt_chunk  # type: ignore[misc]  # no None in them
    if alarm is not None:
        alarm.close()
    counts.mapped += src_reader.mapped + tgt_reader.mapped


def _unequal(src: RecordReader, tgt: RecordReader) -> DataError:
    hint = "each line of one file must translate the same line of the other"
    for reader in (src, tgt):
        if reader.mapped:
            hint += f"; {reader.name} has CR, U+2028 or the like inside lines ({reader.mapped:,}): line ends elsewhere"
    return DataError(f"{src.name} has {src.records:,} records, but {tgt.name} has {tgt.records:,}", hint)


class TextSpool:
    """Pairs as two plain text files.

    Args:
        folder: where the files are, or will be.
        name: what they are called before the side's name.
    """

    def __init__(self, folder: Path, name: str, src_suffix: str, tgt_suffix: str) -> None:
        self.src = folder / f"{name}.{src_suffix}"
        self.tgt = folder / f"{name}.{tgt_suffix}"

    def write(self, chunks: Iterable[Chunk]) -> int:
        """Write all pairs and give their number."""
        count = 0
        with self.src.open("wb", 1 << 20) as src_file, self.tgt.open("wb", 1 << 20) as tgt_file:
            for src, tgt in chunks:
                count += write_records(src_file, src)
                write_records(tgt_file, tgt)
        return count


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes as they are on disk.

    Raises:
        DataError: there is no such file, or it is no regular one.
    """
    if str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir()):
        raise DataError(
            f"{display_name(path)} is not a regular file, and text to prepare is read more than once",
            "write it to a file first",
        )
    open_text_bytes(path).close()  # for its messages
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Input(Protocol):
    """Bytes that can be read as often as one likes."""

    @property
    def name(self) -> str:
        """Say what it is in messages."""

    def open(self) -> BinaryIO:
        """Open it for reading, decompressed."""

    def identity(self) -> dict[str, Any]:
        """Say what content it is, even before an archive is here."""

    def describe(self) -> dict[str, Any]:
        """Say all of it: the identity, and where it was found."""


@dataclass(frozen=True)
class LocalFile:
    """A file of the user, plain or compressed."""

    path: Path
    _sha256: list[str] = field(default_factory=list, repr=False, compare=False)  # hashed once

    @property
    def name(self) -> str:
        return display_name(self.path)

    def open(self) -> BinaryIO:
        return open_text_bytes(self.path)

    def identity(self) -> dict[str, Any]:
        if not self._sha256:
            self._sha256.append(hash_file(self.path))
        return {"sha256": self._sha256[0]}

    def describe(self) -> dict[str, Any]:
        return {"path": display_name(self.path), "bytes": self.path.stat().st_size, **self.identity()}


@dataclass(frozen=True)
class ArchiveMember:
    """A member of an archive, or an archive that is nothing but one compressed file.

    Attributes:
        archive: what holds it.
        member: its path inside; empty for the archive itself.
        downloads: where archives are.
    """

    archive: Archive
    member: str
    downloads: Downloads

    @property
    def name(self) -> str:
        return f"{self.archive.file}:{self.member}" if self.member else self.archive.file

    def open(self) -> BinaryIO:
        path = self.downloads.path(self.archive)
        return open_member(path, self.member) if self.member else open_text_bytes(path)

    def identity(self) -> dict[str, Any]:
        """Name archive and member, with the archive's hash as published, if it is; nothing has to be here for that."""
        published = {name: value for name in ("sha256", "md5") if (value := getattr(self.archive, name))}
        return {"archive": self.archive.file, "member": self.member, **published}

    def describe(self) -> dict[str, Any]:
        """Add the address and what was read; another container of the same members may have stood in."""
        path = self.downloads.path(self.archive)
        read = {"file": path.name, "bytes": path.stat().st_size, "sha256": self.downloads.sha256(self.archive)}
        return {**self.identity(), "url": self.archive.urls[0], "read": read}


@dataclass(frozen=True)
class MadeText:
    """Text that the package makes itself.

    Attributes:
        name: what to call it.
        content: its bytes.
    """

    name: str
    content: bytes

    def open(self) -> BinaryIO:
        return BytesIO(self.content)

    def identity(self) -> dict[str, Any]:
        return {"made": self.name, "sha256": hashlib.sha256(self.content).hexdigest()}

    def describe(self) -> dict[str, Any]:
        return self.identity()
