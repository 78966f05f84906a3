"""Compressed text: known by the suffix of a file's name or, where there is no telling name, by its first bytes."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from aiayn_cli import logs
from aiayn_cli.errors import DataError

_zstd: Any
try:
    from compression import zstd as _zstd  # type: ignore  # Python 3.14 and later
except ImportError:
    try:
        from backports import zstd as _zstd  # an extra of this package
    except ImportError:
        _zstd = None

CHUNK_BYTES = 1 << 20  # read at once
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, *((_zstd.ZstdError,) if _zstd else ()))  # while reading
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Compression(NamedTuple):
    """A format of compressed files.

    Attributes:
        suffix: of file names.
        name: for messages.
        magic: the first bytes of every such file.
        module: its `open` takes a path or a file; None where a package is missing.
    """

    suffix: str
    name: str
    magic: bytes
    module: Any

    def open(self, source: Path | BinaryIO, name: str) -> BinaryIO:
        """Open a file for reading what it holds; one that is cut short or damaged raises one of DAMAGE on the way.

        Args:
            source: a path, or the compressed bytes.
            name: for messages.
        Raises:
            DataError: .zst cannot be read here.
            OSError: there is no such file, or it cannot be opened.
        """
        if self.module is None:
            raise DataError(f"{name}: reading .zst needs the package backports.zstd", "pip install 'aiayn-cli[zstd]'")
        return cast(BinaryIO, self.module.open(source, "rb"))


COMPRESSIONS = (
    Compression(".gz", "gzip", b"\x1f\x8b\x08", gzip),
    Compression(".xz", "xz", b"\xfd7zXZ\0", lzma),
    Compression(".bz2", "bzip2", b"BZh", bz2),
    Compression(".zst", "zstd", b"\x28\xb5\x2f\xfd", _zstd),
)


def compression_of_name(path: Path) -> Compression | None:
    """Find the compression that a file's name promises."""
    return next((each for each in COMPRESSIONS if each.suffix == path.suffix.lower()), None)


def compression_of_bytes(start: bytes) -> Compression | None:
    """Find the compression of a file by its first bytes."""
    return next((each for each in COMPRESSIONS if start.startswith(each.magic)), None)


class PipedBytes(io.RawIOBase):
    """Plain bytes from a source of unknown kind: compressed ones are unpacked, UTF-16 is refused.

    The source is not touched before the first read. Reading raises DataError where the bytes are UTF-16, and one of
    DAMAGE where a compressed file is damaged.

    Args:
        source: not read yet.
        name: for messages.
    """

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source, self._name = source, name
        self._plain: BinaryIO | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._plain is None:
            self._plain = _plain_bytes(self._source, self._name)
        chunk = read_available(self._plain)(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def read_available(source: BinaryIO) -> Callable[[int], bytes]:
    """The method that reads what is there: read() of a buffered file waits until a slow pipe has filled the size."""
    return getattr(source, "read1", source.read)


def _plain_bytes(source: BinaryIO, name: str) -> BinaryIO:
    """Look at the first bytes and give a source of plain ones."""
    start = b""
    marks = (*(each.magic for each in COMPRESSIONS), *UTF_16_MARKS)
    # A terminal's first line may be shorter than a magic number, and must not wait for the next one.
    while not start or any(mark.startswith(start) and mark != start for mark in marks):
        chunk = read_available(source)(CHUNK_BYTES)
        if not chunk:
            break
        start += chunk
    if start.startswith(UTF_16_MARKS) or _alternates_with_nul(start):
        raise DataError(f"{name} looks like UTF-16", "convert it with `iconv -f UTF-16 -t UTF-8`")
    whole = _Rejoined(start, source)
    if compression := compression_of_bytes(start):
        logs.notice(f"{name} is compressed ({compression.name}): unpacked on the way")
        return compression.open(io.BufferedReader(whole), name)
    return cast(BinaryIO, whole)


class _Rejoined(io.RawIOBase):
    """What was read already, and then the rest."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self._start, self._rest = start, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._start:
            chunk, self._start = self._start[: len(buffer)], self._start[len(buffer) :]
        else:
            chunk = read_available(self._rest)(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _alternates_with_nul(start: bytes) -> bool:
    """Whether every second byte is NUL: UTF-16 without a byte order mark, of a language in Latin letters."""
    even, odd = start[0:64:2], start[1:64:2]
    return len(start) >= 4 and ((not any(odd) and all(even)) or (not any(even) and all(odd)))
