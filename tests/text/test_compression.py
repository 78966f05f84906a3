import bz2
import gzip
import io
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.text.compression import PipedBytes
from aiayn_cli.text.lines import RecordReader, count_lines_ahead

TEXT = "der hund\nläuft\n\nund\n".encode() * 50

Compress = Callable[[bytes], bytes]
KINDS: dict[str, Compress] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": zstd.compress,
}


class Trickle(io.RawIOBase):
    """Gives a few bytes at a time, as a pipe may."""

    def __init__(self, content: bytes, step: int) -> None:
        self.content, self.step = content, step

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        n = min(self.step, len(buffer), len(self.content))
        buffer[:n], self.content = self.content[:n], self.content[n:]
        return n


def read_all(source: object) -> bytes:
    return io.BufferedReader(PipedBytes(source, "stdin")).read()  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1, 3, 1 << 20])
def test_compressed_bytes_are_unpacked_with_a_notice(kind: str, step: int, capsys: pytest.CaptureFixture[str]) -> None:
    compressed = KINDS[kind](TEXT)
    assert read_all(Trickle(compressed + compressed, step)) == TEXT * 2  # two files one after the other
    assert f"stdin is compressed ({kind})" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_compressed_bytes_that_end_early_are_an_error_and_no_short_text(kind: str) -> None:
    reader = RecordReader(PipedBytes(io.BytesIO(KINDS[kind](TEXT)[:-9]), "stdin"), "stdin")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="stdin cannot be read after record"):
        list(reader)


@pytest.mark.parametrize(
    ("encoding", "step"), [("utf-16", 1), ("utf-16", 99), ("utf-16-le", 99), ("utf-16-be", 99), ("utf-16-le", 4)]
)
def test_utf_16_is_one_clear_error(encoding: str, step: int) -> None:
    with pytest.raises(DataError, match="stdin looks like UTF-16") as caught:
        read_all(Trickle("ein hund\n".encode(encoding), step))
    assert "iconv" in caught.value.hint


@given(content=st.one_of(st.binary(max_size=20), st.text(max_size=9).map(str.encode)), step=st.integers(1, 5))
def test_anything_else_comes_through_as_it_is(content: bytes, step: int) -> None:
    if content.startswith((b"\xff\xfe", b"\xfe\xff", b"BZh", b"\x1f\x8b\x08")) or b"\0" in content:
        return
    assert read_all(Trickle(content, step)) == content


def test_the_first_line_of_a_terminal_does_not_wait_for_the_second() -> None:
    receiving, sending = os.pipe()
    source = PipedBytes(open(receiving, "rb", buffering=0), "stdin")  # noqa: SIM115, PTH123
    os.write(sending, b"B\n")
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(source.read(100)), daemon=True)
    thread.start()
    thread.join(timeout=20)
    assert found == [b"B\n"]
    os.close(sending)
    assert source.read(100) == b""


def test_nothing_is_read_before_it_is_asked_for() -> None:
    source = Trickle(b"abc", 1)
    PipedBytes(source, "stdin")  # type: ignore[arg-type]
    assert source.content == b"abc"


@pytest.mark.parametrize(("content", "count"), [(b"", 0), (b"\n", 1), (b"a\nb", 2), (b"a\nb\n", 2)])
def test_lines_of_a_file_are_counted_from_where_it_stands(tmp_path: Path, content: bytes, count: int) -> None:
    (tmp_path / "in").write_bytes(b"first\n" + content)
    with (tmp_path / "in").open("rb", buffering=0) as file:
        file.read(6)
        assert count_lines_ahead(file) == count  # type: ignore[arg-type]
        assert file.read() == content


def test_lines_of_a_pipe_or_of_compressed_bytes_are_not_counted(tmp_path: Path) -> None:
    assert count_lines_ahead(io.BytesIO(b"a\n")) is None
    receiving, sending = os.pipe()
    os.close(sending)
    with open(receiving, "rb") as file:  # noqa: PTH123
        assert count_lines_ahead(file) is None
    (tmp_path / "in").write_bytes(gzip.compress(b"a\n"))
    with (tmp_path / "in").open("rb") as file:
        assert count_lines_ahead(file) is None
