"""Compressed text: recognised by the suffix of a file's name, or by its first bytes where it has no name."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from functools import cache
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
    """A format of compressed files."""

    suffix: str  # of file names
    name: str  # for messages
    magic: bytes  # the first bytes of every such file
    module: Any  # its `open` takes a path or a file; None where a package is missing

    def open(self, source: Path | BinaryIO, name: str) -> BinaryIO:
        """Open a path or compressed bytes, with a name for messages; reading damaged ones raises one of DAMAGE."""
        if self.module is None:
            problem = f"{name}: reading .zst needs the package backports.zstd"
            raise DataError(problem, "pip install '.[zstd]' in a checkout")
        return cast(BinaryIO, self.module.open(source, "rb"))


COMPRESSIONS = (
    Compression(".gz", "gzip", b"\x1f\x8b\x08", gzip),
    Compression(".xz", "xz", b"\xfd7zXZ\0", lzma),
    Compression(".bz2", "bzip2", b"BZh", bz2),
    Compression(".zst", "zstd", b"\x28\xb5\x2f\xfd", _zstd),
)


def compression_of_name(path: Path) -> Compression | None:
    return next((each for each in COMPRESSIONS if each.suffix == path.suffix.lower()), None)


def compression_of_bytes(start: bytes) -> Compression | None:
    return next((each for each in COMPRESSIONS if start.startswith(each.magic)), None)


class _Bytes(io.RawIOBase):  # of what a function reads, given the largest number of bytes
    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


class PipedBytes(_Bytes):
    """Plain bytes from a source of unknown kind, which is not read before: compressed ones are unpacked.

    Reading raises DataError where the bytes are UTF-16, and one of DAMAGE where a compressed file is damaged.
    """

    def __init__(self, source: BinaryIO, name: str) -> None:
        plain = cache(lambda: _plain_bytes(source, name))
        super().__init__(lambda size: read_available(plain())(size))


def read_available(source: BinaryIO) -> Callable[[int], bytes]:
    """The method that reads what is available: read() of a buffered file waits for a slow pipe to fill the size."""
    return getattr(source, "read1", source.read)


def _plain_bytes(source: BinaryIO, name: str) -> BinaryIO:
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
    head = io.BytesIO(start)
    whole = _Bytes(lambda size: head.read(size) or read_available(source)(size))
    if compression := compression_of_bytes(start):
        logs.notice(f"{name} is compressed ({compression.name}): unpacked on the way")
        return compression.open(io.BufferedReader(whole), name)
    return cast(BinaryIO, whole)


def _alternates_with_nul(start: bytes) -> bool:
    """Whether every second byte is NUL: UTF-16 without a byte order mark, of a language in Latin letters."""
    even, odd = start[0:64:2], start[1:64:2]
    return len(start) >= 4 and ((not any(odd) and all(even)) or (not any(even) and all(odd)))
