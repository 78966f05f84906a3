"""Reading .zst files, which Python's standard library cannot do before 3.14, through the optional zstandard."""

import io
from pathlib import Path
from typing import Any, BinaryIO, cast

from aiayn_cli.errors import DataError

_zstandard: Any
try:
    import zstandard as _zstandard
except ImportError:  # it is an extra of this package
    _zstandard = None

_COMPRESSED_BYTES = 1 << 17  # read at once


def open_zstd(path: Path) -> BinaryIO:
    """Open a .zst file for reading what it holds.

    Raises:
        DataError: the package zstandard is not installed.
        OSError: the file is not there, or cannot be opened.
    Reading raises EOFError where the file is cut short and OSError where it is damaged, as gzip does.
    """
    file = path.open("rb")
    try:
        return open_zstd_stream(file, str(path))
    except DataError:
        file.close()
        raise


def open_zstd_stream(file: BinaryIO, name: str) -> BinaryIO:
    """Give what some compressed bytes hold, likewise.

    Args:
        file: the compressed bytes.
        name: for messages.
    """
    if _zstandard is None:
        raise DataError(f"{name}: reading .zst needs the package zstandard", "pip install 'aiayn-cli[zstd]'")
    return cast(BinaryIO, io.BufferedReader(_ZstdFile(file), 1 << 20))


class _ZstdFile(io.RawIOBase):
    """One or more frames, one after the other. zstandard's own stream reader takes a cut file for a whole one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame: Any = None  # the decompressor of a frame that has begun
        self._compressed = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        while not self._ready and self._fill():
            pass
        n = min(len(view), len(self._ready))
        view[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def close(self) -> None:
        self._file.close()
        super().close()

    def _fill(self) -> bool:
        """Decompress some more; False at the end of the file."""
        if not self._compressed:
            self._compressed = self._file.read(_COMPRESSED_BYTES)
        if not self._compressed:
            if self._frame is not None:
                raise EOFError("the last frame is cut short")
            return False
        if self._frame is None:
            self._frame = _zstandard.ZstdDecompressor().decompressobj()
        try:
            self._ready = memoryview(self._frame.decompress(self._compressed))
        except _zstandard.ZstdError as error:
            raise OSError(str(error)) from error
        self._compressed = b""
        if self._frame.eof:
            self._compressed, self._frame = self._frame.unused_data, None
        return True
