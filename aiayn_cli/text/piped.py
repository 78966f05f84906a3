"""Bytes whose name does not say what they are: compressed ones are unpacked, UTF-16 is refused."""

import bz2
import gzip
import io
import lzma
import os
import stat
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.text.lines import CHUNK_BYTES
from aiayn_cli.text.zstd import open_zstd_stream

_MAGIC = {b"\x1f\x8b\x08": "gzip", b"\xfd7zXZ\0": "xz", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_COUNTED_AT_ONCE = 1 << 20  # bytes


class PipedBytes(io.RawIOBase):
    """Plain bytes from a source of bytes of unknown kind, which is not touched before the first read.

    Reading raises DataError where the bytes are UTF-16, and what a damaged compressed file raises.

    Args:
        source: not read yet.
        name: for messages.
    """

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source, self._name = source, name
        self._plain: BinaryIO | None = None

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what there is, at most as much as the buffer holds; 0 at the end."""
        if self._plain is None:
            self._plain = _sniff(self._source, self._name)
        chunk = _read_some(self._plain, len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def count_lines_ahead(source: BinaryIO) -> int | None:
    """Count the lines that are still to be read; None where that is not a plain file, or a compressed one."""
    try:
        descriptor = source.fileno()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        offset = os.lseek(descriptor, 0, os.SEEK_CUR)
    except (OSError, AttributeError):  # no file of the system
        return None
    count, last = 0, b"\n"
    while chunk := os.pread(descriptor, _COUNTED_AT_ONCE, offset):
        if last == b"\n" and count == 0 and any(chunk.startswith(magic) for magic in _MAGIC):
            return None
        count, offset, last = count + chunk.count(b"\n"), offset + len(chunk), chunk[-1:]
    return count + (last != b"\n")


def _sniff(source: BinaryIO, name: str) -> BinaryIO:
    """Look at the first bytes and give a source of plain ones."""
    start = b""
    # A terminal's first line may be shorter than a magic number, and must not wait for the next one.
    while not start or any(magic.startswith(start) and magic != start for magic in (*_MAGIC, *_UTF_16)):
        chunk = _read_some(source, CHUNK_BYTES)
        if not chunk:
            break
        start += chunk
    if start.startswith(_UTF_16) or _alternates_with_nul(start):
        raise DataError(f"{name} looks like UTF-16", "convert it with `iconv -f UTF-16 -t UTF-8`")
    whole = cast(BinaryIO, _Rejoined(start, source))
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            logs.notice(f"{name} is compressed ({kind}): unpacked on the way")
            buffered = io.BufferedReader(cast(io.RawIOBase, whole))
            match kind:
                case "gzip":
                    return cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
                case "xz":
                    return cast(BinaryIO, lzma.LZMAFile(buffered))
                case "bzip2":
                    return cast(BinaryIO, bz2.BZ2File(buffered))
                case _:
                    return open_zstd_stream(buffered, name)
    return whole


def _read_some(source: BinaryIO, size: int) -> bytes:
    """Read what there is; read() of a buffered file would wait until it has all it was asked for."""
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
    return read(size)


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
            chunk = _read_some(self._rest, len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _alternates_with_nul(start: bytes) -> bool:
    """Whether every second byte is NUL: UTF-16 without a byte order mark, of a language in Latin letters."""
    even, odd = start[0:64:2], start[1:64:2]
    return len(start) >= 4 and ((not any(odd) and all(even)) or (not any(even) and all(odd)))
