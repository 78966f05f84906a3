"""The part of a download that is here so far, FILE.part, and its origin, FILE.part.json; both survive interruptions."""

import errno
import hashlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.errors import DataError
from aiayn_cli.files import open_locked

_READ_BYTES = 1 << 20


class Fingerprint:
    """The size and hashes of a file, for comparison with what an archive should have."""

    def __init__(self, archive: Archive) -> None:
        self.bytes = 0
        self._archive = archive
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False) if archive.md5 else None

    def update(self, piece: bytes) -> None:
        self.bytes += len(piece)
        self._sha256.update(piece)
        if self._md5 is not None:
            self._md5.update(piece)

    def add_file(self, path: Path) -> None:
        with path.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                self.update(piece)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def mismatch(self) -> str:
        """What differs from the archive; empty if nothing does."""
        expected = self._archive
        if expected.exact_bytes is not None and self.bytes != expected.exact_bytes:
            return f"has {self.bytes:,} bytes, not {expected.exact_bytes:,}"
        if expected.sha256 and self.sha256 != expected.sha256:
            return f"has SHA-256 {self.sha256}, not {expected.sha256}"
        if self._md5 is not None and self._md5.hexdigest() != expected.md5:
            return f"has MD5 {self._md5.hexdigest()}, not {expected.md5}"
        return ""


class PartFile:
    """The part that is here so far; locked, so that two processes never write the same file.

    Attributes:
        bytes: how many are here.
        origin: "url", the server's "validator" (ETag or Last-Modified) and "bytes" of the whole file.
    Raises:
        DataError: another process is writing it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".part")
        self._whole = path
        self._notes = path.with_name(path.name + ".part.json")
        self._file = self._open_and_lock()
        self.bytes = self.path.stat().st_size
        self.origin: dict[str, Any] = self._read_notes() if self.bytes else {}

    def __enter__(self) -> "PartFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self.bytes:
            self.path.unlink(missing_ok=True)
            self._notes.unlink(missing_ok=True)
        self._file.close()

    def start_over(self, origin: dict[str, Any]) -> None:
        """Drop what is here, and record the origin of what follows."""
        self._file.truncate(0)
        self.bytes = 0
        self.origin = origin
        self._notes.write_bytes(json.dumps(origin).encode())

    def fingerprint(self, archive: Archive) -> Fingerprint:
        fingerprint = Fingerprint(archive)
        fingerprint.add_file(self.path)
        return fingerprint

    def write(self, piece: bytes) -> None:
        """Append; raises DataError if the disk is full."""
        rest = memoryview(piece)
        try:
            while rest:
                written = self._file.write(rest)
                self.bytes += written
                rest = rest[written:]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise DataError(
                f"{self.path}: no space is left on its disk after {self.bytes:,} bytes",
                "free some space and run this again: it resumes; --downloads chooses another folder",
            ) from error

    def finish(self) -> None:
        """Give the whole file its name, after flushing it to the disk."""
        os.fsync(self._file.fileno())
        self.path.rename(self._whole)
        self.bytes = 0
        self._notes.unlink(missing_ok=True)

    def _open_and_lock(self) -> BinaryIO:
        try:
            return open_locked(self.path, buffering=0)
        except BlockingIOError:
            problem = f"{self._whole} is being downloaded by another process"
            raise DataError(problem, "wait for it, or choose another folder with --downloads") from None

    def _read_notes(self) -> dict[str, Any]:
        try:
            notes = json.loads(self._notes.read_bytes())
        except (OSError, ValueError):
            return {}
        return notes if isinstance(notes, dict) else {}
