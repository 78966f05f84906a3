"""The one reader and the one writer of lines of text: records in = records out, in order.

A record ends at the byte 0x0A and nowhere else; the last one may lack it. A CR before the end is dropped, and so is a
byte order mark at the start of a file. Any other character that some program takes for the end of a line becomes a
blank and is counted: CR, VT, FF, FS, GS, RS, NEL, U+2028, U+2029. Bytes that are not UTF-8 (including surrogates) and
NUL are refused with file, line and byte, or given as None.
"""

import codecs
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from aiayn_cli import logs
from aiayn_cli.errors import DataError, nearest_path
from aiayn_cli.text.compression import (
    CHUNK_BYTES,  # a longer record is held in full, anything else is not
    DAMAGE,
    UTF_16_MARKS,
    compression_of_bytes,
    compression_of_name,
    read_available,
)

_LINE_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # a record may not hold one of these
# The others as UTF-8, and NUL: a chunk that holds none of them needs no second look. "in" is a fast search for bytes.
_SUSPECT_BYTES = (b"\0", b"\r", b"\v", b"\f", b"\x1c", b"\x1d", b"\x1e", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
BOM = b"\xef\xbb\xbf"


class RecordReader:
    """Reads the records of `open_text_bytes` in bounded memory; with keep_going, None stands for one with bad bytes."""

    def __init__(self, source: BinaryIO, name: str, *, keep_going: bool = False) -> None:
        self.name = name  # for messages
        self.records = 0  # given so far
        self.mapped = 0  # characters that became a blank
        self._source, self._keep_going = source, keep_going

    def __iter__(self) -> Iterator[str | None]:
        """Give every record; DataError for bad bytes (unless keep_going) or a compressed file that is damaged."""
        for block in self.blocks():
            yield from block

    def blocks(self) -> Iterator[list[str | None]]:
        """Give the records in lists of what is available; a slow pipe's record is not delayed."""
        rest: list[bytes] = []  # pieces of a record that has not ended yet
        offset = 0  # of `rest` in the file, after decompression
        for chunk in read_pieces(self._source, self.name, lambda: f"record {self.records:,}", CHUNK_BYTES):
            head, newline, tail = chunk.rpartition(b"\n")
            if not newline:
                rest.append(chunk)
                continue
            rest.append(head)
            block = b"".join(rest)
            yield self._decode(block, offset)
            offset += len(block) + 1
            rest = [tail] if tail else []
        if rest:
            yield self._decode(b"".join(rest), offset, ended=False)

    def _decode(self, block: bytes, offset: int, ended: bool = True) -> list[str | None]:
        """Decode records joined by LF; `ended` says whether an LF follows the last one."""
        if offset == 0 and block.startswith(BOM):
            block, offset = block[len(BOM) :], len(BOM)
            if not block and not ended:
                return []
        # CRLF throughout is as common as LF, so it must not take the slow way.
        unix = (block + b"\n").replace(b"\r\n", b"\n")[:-1] if ended and b"\r" in block else block
        if not any(suspect in unix for suspect in _SUSPECT_BYTES):
            with suppress(UnicodeDecodeError):  # the slow way finds out where
                records: list[str | None] = list(unix.decode().split("\n"))
                self.records += len(records)
                return records
        return self._decode_one_by_one(block.split(b"\n"), offset, ended)

    def _decode_one_by_one(self, lines: list[bytes], offset: int, ended: bool) -> list[str | None]:
        records: list[str | None] = []
        for number, line in enumerate(lines, start=1):
            has_lf = ended or number < len(lines)
            try:
                records.append(self._clean(line.removesuffix(b"\r") if has_lf else line))
            except UnicodeDecodeError as error:
                if not self._keep_going:
                    raise self._bad_bytes(line, error, offset + error.start) from error
                records.append(None)
            self.records += 1
            offset += len(line) + 1
        return records

    def _clean(self, line: bytes) -> str:
        if (nul := line.find(b"\0")) >= 0:
            line[:nul].decode()  # what comes first is reported first
            raise UnicodeDecodeError("utf-8", line, nul, nul + 1, "NUL")
        record, mapped = _LINE_BREAKS.subn(" ", line.decode())
        self.mapped += mapped
        return record

    def _bad_bytes(self, line: bytes, error: UnicodeDecodeError, offset: int) -> DataError:
        number = self.records + 1
        what = "is NUL" if error.reason == "NUL" else f"(0x{line[error.start]:02X}) is not UTF-8"
        problem = f"{self.name}:{number}: byte {error.start + 1} of the line {what} (byte {offset} of the file)"
        hint = "repair the line, or convert the file with `iconv -f ENCODING -t UTF-8`"
        start = line if number == 1 else b""  # of the file
        if start.startswith(UTF_16_MARKS):
            hint = "the file looks like UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`"
        elif compression := compression_of_bytes(start):
            way_out = "give it by its name" if self.name == "stdin" else f"rename it to {self.name}{compression.suffix}"
            hint = f"the file looks compressed: {way_out}"
        return DataError(problem, hint)


def read_pieces(source: BinaryIO, name: str, where: Callable[[], str], size: int) -> Iterator[bytes]:
    """Read bytes from `open_text_bytes` in pieces of what is available, `size` at most.

    A DataError says that a compressed file is damaged, or the disk fails, after where(), such as "record 12".
    """
    read = read_available(source)
    try:
        while piece := read(size):
            yield piece
    except DAMAGE as error:
        path = Path(name)
        if path.is_file() and (compression := compression_of_name(path)):
            with path.open("rb") as file:
                if file.read(len(compression.magic)) != compression.magic:
                    hint = f"give it its true suffix, such as {path.stem} for plain text"
                    raise DataError(f"{name} is not compressed with {compression.name}", hint) from error
        why = f": {error}" if str(error) else ""
        raise DataError(
            f"{name} cannot be read after {where()}{why}",
            "the file may be cut short or damaged: fetch or compress it again",
        ) from error


def transcode(pieces: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """Bytes in another encoding as UTF-8; what cannot be decoded becomes NUL."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    return (decoder.decode(piece).replace("\ufffd", "\0").encode("utf-8", "surrogatepass") for piece in pieces)


def read_records(source: BinaryIO, name: str) -> Iterator[str]:
    """Give every record of a file; DataError with file, line and byte where it is not UTF-8, NUL, or damaged."""
    return cast(Iterator[str], iter(RecordReader(source, name)))  # None appears under keep_going only


def read_file(path: Path | str) -> list[str]:
    """Read all records of a file that is small enough to hold (references, hypotheses); "-" is stdin."""
    with open_text_bytes(path) as source:
        return list(read_records(source, display_name(path)))


def check_lines(files: Mapping[str, Sequence[str]]) -> None:
    """Refuse an empty file, or one with another number of lines than the first, by a DataError with its name."""
    first_name, first = next(iter(files.items()))
    for name, lines in files.items():
        if not lines:
            raise DataError(f"{name} is empty", "it must have one line for each sentence")
        if len(lines) != len(first):
            raise DataError(
                f"{name} has {logs.counted(len(lines), 'line')}, but {first_name} has {len(first):,}",
                "score the same test set that was translated, line by line",
            )


def write_records(sink: BinaryIO, records: Iterable[str]) -> int:
    """Write each record and an LF, and return their number; a line break inside a record becomes a blank."""
    count = 0
    for count, record in enumerate(records, start=1):
        try:
            sink.write(_LINE_BREAKS.sub(" ", record).encode() + b"\n")
        except UnicodeEncodeError as error:
            code = ord(record[error.start])
            problem = f"record {count} has the lone surrogate U+{code:04X}, which UTF-8 cannot encode"
            raise DataError(problem, "repair the text at its source") from error
    return count


def map_line_breaks(text: str) -> tuple[str, int]:
    """Make a record of a text: every line break becomes a blank. Returns their number too."""
    return _LINE_BREAKS.subn(" ", text)


def join_records(records: Iterable[str]) -> bytes:
    """Write records that came from a reader, each with an LF after it, for `split_records`."""
    return "".join([f"{record}\n" for record in records]).encode()


def split_records(content: bytes) -> list[str]:
    """Read what `join_records` wrote."""
    return content.decode().split("\n")[:-1]


def is_blank(record: str) -> bool:
    """Whether a record holds nothing but Unicode white space, or nothing at all."""
    return not record or record.isspace()


def display_name(path: Path | str) -> str:
    """The name of a file in messages and JSON; "-" is stdin. Bytes that are not UTF-8 become \\xFF."""
    name = "stdin" if str(path) == "-" else str(path)
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def count_lines_ahead(source: BinaryIO) -> int | None:
    """Count the lines that remain to be read; None for pipes and compressed files."""
    try:
        descriptor = source.fileno()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        start = offset = os.lseek(descriptor, 0, os.SEEK_CUR)
    except (OSError, AttributeError):  # not a file of the operating system
        return None
    count, last = 0, b"\n"
    while chunk := os.pread(descriptor, CHUNK_BYTES, offset):
        if offset == start and compression_of_bytes(chunk):
            return None
        count, offset, last = count + chunk.count(b"\n"), offset + len(chunk), chunk[-1:]
    return count + (last != b"\n")


def open_text_bytes(path: Path | str) -> BinaryIO:
    """Open a file for reading bytes: plain, or compressed by its suffix (.gz, .xz, .bz2, .zst); "-" is stdin."""
    if str(path) == "-":
        return sys.stdin.buffer
    path = Path(path)
    try:
        path.stat()  # a missing file is reported before a missing package
        compression = compression_of_name(path)
        return compression.open(path, str(path)) if compression else path.open("rb")
    except IsADirectoryError as error:
        raise DataError(f"{path} is a folder, not a file", "name a file in it") from error
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", _similar_file(path)) from error
    except OSError as error:
        raise DataError(f"{path} cannot be opened: {error.strerror}", "check the file's permissions") from error


def _similar_file(path: Path) -> str:
    try:
        return nearest_path(path, path.parent.iterdir()) or "check the name and the folder"
    except OSError:
        return f"there is no folder {path.parent}"
