"""Records in = records out, whatever the bytes, the compression or the size of what is read at once."""

import bz2
import gzip
import io
import lzma
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.text import compression
from aiayn_cli.text import lines as text
from aiayn_cli.text.compression import PipedBytes
from aiayn_cli.text.lines import (
    RecordReader,
    count_lines_ahead,
    display_name,
    is_blank,
    open_text_bytes,
    read_file,
    read_records,
    write_records,
)

MAPPED = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd.compress,
}

# Everything that UTF-8 can hold, with the characters that matter here far more often than by chance.
characters = st.one_of(st.sampled_from("\n\r\t \v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029\ufeffaé漢😀"), st.characters())
texts = st.text(characters.filter(lambda c: c != "\0" and not "\ud800" <= c <= "\udfff"))


class Trickle(io.BytesIO):
    """Gives at most `step` bytes at once, as a slow pipe does."""

    def __init__(self, content: bytes, step: int) -> None:
        super().__init__(content)
        self.step = step

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(self.step if size is None or size < 0 else min(self.step, size))


def read_bytes(content: bytes) -> list[str]:
    return list(read_records(io.BytesIO(content), "some.en"))


def reference(content: str) -> list[str]:
    """The rules written down once more, without regard to speed or memory."""
    content = content.removeprefix("\ufeff")
    lines = content.split("\n")
    records = [line.removesuffix("\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    return ["".join(" " if c in MAPPED else c for c in record) for record in records]


@given(texts)
def test_a_file_has_the_records_that_the_rules_say(content: str) -> None:
    assert read_bytes(content.encode()) == reference(content)


@given(texts, st.integers(1, 7))
def test_the_size_of_a_read_changes_nothing(content: str, step: int) -> None:
    assert list(read_records(Trickle(content.encode(), step), "some.en")) == reference(content)


@given(st.binary() | st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\0", b"\xff", b"\xed\xa0\x80"])).map(b"".join))
def test_no_byte_but_lf_changes_the_number_of_records(content: bytes) -> None:
    reader = RecordReader(io.BytesIO(content), "some.en", keep_going=True)
    body = content.removeprefix(b"\xef\xbb\xbf")
    assert len(list(reader)) == reader.records == body.count(b"\n") + (not body.endswith(b"\n") and body != b"")


@given(st.lists(texts))
def test_what_is_written_is_read_back_with_line_ends_as_blanks(records: list[str]) -> None:
    file = io.BytesIO()
    assert write_records(file, records) == len(records)
    expected = ["".join(" " if c in "\n" + MAPPED else c for c in record) for record in records]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")  # what a file begins with is a byte order mark
    assert read_bytes(file.getvalue()) == expected


@pytest.mark.parametrize(
    ("content", "records"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\n\n\n", ["", "", ""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\r\r\n", ["a "]),
        (b"a\rb\n", ["a b"]),
        (b"a\r", ["a "]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"a\tb\x1f\n", ["a\tb\x1f"]),
    ],
)
def test_edge_cases_of_line_ends(content: bytes, records: list[str]) -> None:
    assert read_bytes(content) == records


@pytest.mark.parametrize("character", MAPPED)
def test_a_character_that_ends_lines_elsewhere_becomes_a_blank_and_is_counted(character: str) -> None:
    reader = RecordReader(io.BytesIO(f"a{character}b\nc\nd{character}{character}e\n".encode()), "some.en")
    assert list(reader) == ["a b", "c", "d  e"]
    assert reader.mapped == 3


BAD_BYTES = {
    "not utf-8": (b"ok\nab\xffcd\n", "some.en:2: byte 3 of the line (0xFF) is not UTF-8 (byte 5 of the file)"),
    "latin-1": (
        "ok\nGr\u00fc\u00dfe\n".encode("latin-1"),
        "some.en:2: byte 3 of the line (0xFC) is not UTF-8 (byte 5 of",
    ),
    "cut short": (b"ok\nok\n\xe6\xbc", "some.en:3: byte 1 of the line (0xE6) is not UTF-8 (byte 6 of the file)"),
    "surrogate": (b"\xed\xa0\x80\n", "some.en:1: byte 1 of the line (0xED) is not UTF-8 (byte 0 of the file)"),
    "NUL": (b"ok\n\na\0b\n", "some.en:3: byte 2 of the line is NUL (byte 5 of the file)"),
    "NUL first": (b"a\0\xff\n", "some.en:1: byte 2 of the line is NUL (byte 1 of the file)"),
    "NUL last": (b"a\xff\0\n", "some.en:1: byte 2 of the line (0xFF) is not UTF-8 (byte 1 of the file)"),
    "after a byte order mark": (b"\xef\xbb\xbfa\xff\n", "some.en:1: byte 2 of the line (0xFF) is not UTF-8 (byte 4 of"),
    "after CRLF": (b"a\r\nb\xff\r\n", "some.en:2: byte 2 of the line (0xFF) is not UTF-8 (byte 4 of the file)"),
}


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize("case", BAD_BYTES)
def test_bad_bytes_are_named_by_line_and_byte(case: str, step: int) -> None:
    content, message = BAD_BYTES[case]
    with pytest.raises(DataError) as caught:
        list(read_records(Trickle(content, step), "some.en"))
    assert caught.value.problem.startswith(message)
    assert "iconv" in caught.value.hint


def test_the_records_before_bad_bytes_are_given_when_they_arrive_first() -> None:
    records = read_records(Trickle(b"a\nb\n\xff\n", 2), "some.en")
    assert [next(records), next(records)] == ["a", "b"]
    with pytest.raises(DataError):
        next(records)


def test_keep_going_gives_none_for_a_bad_record_and_counts_it() -> None:
    reader = RecordReader(io.BytesIO(b"a\n\xff\n\0\nb\n"), "some.en", keep_going=True)
    assert list(reader) == ["a", None, None, "b"]
    assert reader.records == 4


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (gzip.compress(b"hello\n" * 9, mtime=9), "rename it to some.en.gz"),
        (lzma.compress(b"hello\n" * 9), "rename it to some.en.xz"),
        (bz2.compress(b"hello\n" * 9), "rename it to some.en.bz2"),
        (zstd.compress(b"hello\n" * 9), "rename it to some.en.zst"),
        ("hello\n".encode("utf-16"), "iconv -f UTF-16"),
    ],
    ids=["gz", "xz", "bz2", "zst", "utf-16"],
)
def test_a_file_of_another_kind_is_recognised(content: bytes, hint: str) -> None:
    with pytest.raises(DataError) as caught:
        read_bytes(content)
    assert hint in caught.value.hint


@pytest.mark.parametrize("suffix", ["", ".txt", *COMPRESSORS, ".GZ"])
def test_files_are_read_through_their_compression(tmp_path: Path, suffix: str) -> None:
    records = [f"record {i} " + "x" * (i % 97) for i in range(5_000)]
    content = "".join(f"{record}\n" for record in records).encode()
    path = tmp_path / f"some.en{suffix}"
    path.write_bytes(COMPRESSORS.get(suffix.lower(), bytes)(content))
    assert read_file(path) == records


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_compressed_file_that_is_cut_short_or_damaged_is_one_clear_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"some.en{suffix}"
    content = COMPRESSORS[suffix](os.urandom(200_000).hex().encode() + b"\n")
    for damaged, problem, hint in (
        (content[: len(content) // 2], "cannot be read after record 0", "fetch or compress it again"),
        (b"this is plain text, whatever its name says\n", "is not compressed with ", "such as some.en for plain text"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError) as caught:
            read_file(path)
        assert caught.value.problem.startswith(f"{path} {problem}")
        assert caught.value.hint.endswith(hint)


def test_zst_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.en.zst"
    path.write_bytes(zstd.compress(b"a\n"))
    formats = [each._replace(module=None) if each.suffix == ".zst" else each for each in compression.COMPRESSIONS]
    monkeypatch.setattr(compression, "COMPRESSIONS", formats)
    with pytest.raises(DataError, match=r"needs the package backports\.zstd") as caught:
        open_text_bytes(path)
    assert caught.value.hint == "pip install '.[zstd]' in a checkout"
    with pytest.raises(DataError, match="does not exist"):  # which the user can mend first
        open_text_bytes(tmp_path / "none.zst")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("trian.de.gz", "did you mean {}/train.de.gz?"),
        ("completely-different", "check the name and the folder"),
        ("no/folder.xz", "there is no folder {}/no"),
    ],
)
def test_a_missing_file_is_answered_with_the_nearest_name(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / "train.de.gz").touch()
    with pytest.raises(DataError, match="does not exist") as caught:
        open_text_bytes(tmp_path / name)
    assert caught.value.hint == hint.format(tmp_path)
    with pytest.raises(DataError, match="is a folder"):
        open_text_bytes(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.en"
    path.touch(mode=0)
    with pytest.raises(DataError, match="cannot be opened: Permission denied"):
        open_text_bytes(path)


def test_minus_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\n")))
    assert read_file("-") == ["a", "b"]
    assert (display_name("-"), display_name(Path("a.en"))) == ("stdin", "a.en")


def test_a_record_of_a_slow_pipe_is_given_before_the_next_one_is_written() -> None:
    reading_end, writing_end = os.pipe()
    with os.fdopen(reading_end, "rb") as source, os.fdopen(writing_end, "wb", buffering=0) as sink:
        records = read_records(source, "stdin")
        for i in range(3):
            timer = threading.Timer(10, sink.close)  # a reader that waits for more would otherwise hang here
            timer.start()
            sink.write(f"record {i}\n".encode())
            assert next(records) == f"record {i}"
            timer.cancel()


def test_memory_holds_a_chunk_and_not_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", 100)
    source = io.BytesIO(b"0123456789\n" * 1_000)
    records = read_records(source, "some.en")
    for _ in range(20):
        next(records)
    assert source.tell() <= 20 * 11 + 2 * 100


def test_a_record_longer_than_a_chunk_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK_BYTES", 10)
    assert read_bytes(b"ab\n" + b"x" * 1_001 + b"\ncd\n") == ["ab", "x" * 1_001, "cd"]


def test_a_lone_surrogate_is_not_written() -> None:
    with pytest.raises(DataError, match=r"record 2 has the lone surrogate U\+D800"):
        write_records(io.BytesIO(), ["ok", "a\ud800"])


def test_a_record_is_written_before_the_next_one_is_asked_for() -> None:
    sink = io.BytesIO()

    def records() -> Iterator[str]:
        yield "a"
        assert sink.getvalue() == b"a\n"
        yield "b"

    assert write_records(sink, records()) == 2


def test_unicode_white_space_alone_is_blank() -> None:
    for record in ("", " ", "\t", "\u3000", "\xa0 \u2009", "\x1f"):
        assert is_blank(record)
        assert not is_blank(f"{record}.")
    assert not any(map(is_blank, ("\u200b", "\ufeff", "▁")))  # which have not the property of white space


TEXT = "der hund\nläuft\n\nund\n".encode() * 50

Compress = Callable[[bytes], bytes]
KINDS: dict[str, Compress] = {"gzip": gzip.compress, "xz": lzma.compress, "bzip2": bz2.compress, "zstd": zstd.compress}


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
    source = io.BytesIO(b"abc")
    PipedBytes(source, "stdin")
    assert source.tell() == 0


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
