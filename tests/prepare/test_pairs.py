"""Two files are read in lock-step or not at all, and bad bytes take exactly their own pair."""

import gzip
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.prepare import pairs as pairs_module
from aiayn_cli.prepare.formats import LinePairs
from aiayn_cli.prepare.pairs import LocalFile, ReadCounts, TextSpool, hash_file

lines = st.lists(st.sampled_from([b"a", b"\xff", b"b\0", b"", b"c d", "ü".encode(), b"x\xc2\x85y"]), max_size=20)


def write(folder: Path, src: bytes, tgt: bytes) -> tuple[Path, Path]:
    (folder / "some.en").write_bytes(src)
    (folder / "some.de").write_bytes(tgt)
    return folder / "some.en", folder / "some.de"


def read(paths: tuple[Path, Path], counts: ReadCounts | None = None, *, drop: bool = False) -> list[tuple[str, str]]:
    chunks = LinePairs(*map(LocalFile, paths), drop_bad_bytes=drop).read(counts or ReadCounts())
    return [pair for src, tgt in chunks for pair in zip(src, tgt, strict=True)]


@given(src=lines, tgt=lines, chunk=st.integers(1, 7))
def test_bad_bytes_drop_exactly_their_own_pair(
    tmp_path_factory: pytest.TempPathFactory, src: list[bytes], tgt: list[bytes], chunk: int
) -> None:
    src, tgt = src[: len(tgt)], tgt[: len(src)]
    paths = write(tmp_path_factory.mktemp("pairs"), *(b"".join(line + b"\n" for line in side) for side in (src, tgt)))
    counts = ReadCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs_module, "CHUNK_PAIRS", chunk)
        found = read(paths, counts, drop=True)
    bad = (b"\xff", b"b\0")
    good = [(s, t) for s, t in zip(src, tgt, strict=True) if s not in bad and t not in bad]
    assert found == [(s.decode().replace("\x85", " "), t.decode().replace("\x85", " ")) for s, t in good]
    assert (counts.pairs, counts.bad_bytes) == (len(src), len(src) - len(good))
    assert counts.mapped == [*src, *tgt].count(b"x\xc2\x85y")


def test_bad_bytes_stop_unless_they_are_to_be_dropped(tmp_path: Path) -> None:
    paths = write(tmp_path, b"a\nb\n", b"c\n\xff\n")
    with pytest.raises(DataError, match=r"some\.de:2: byte 1 of the line \(0xFF\) is not UTF-8"):
        read(paths)


@pytest.mark.parametrize(("n_src", "n_tgt"), [(3, 2), (2, 3), (0, 1), (25_000, 10_000), (10_000, 10_001)])
def test_unequal_numbers_of_records_stop_with_both_counts(tmp_path: Path, n_src: int, n_tgt: int) -> None:
    paths = write(tmp_path, b"a\n" * n_src, b"b\n" * n_tgt)
    with pytest.raises(DataError) as caught:
        read(paths)
    assert caught.value.problem == f"{paths[0]} has {n_src:,} records, but {paths[1]} has {n_tgt:,}"
    assert caught.value.hint == "each line of one file must translate the same line of the other"


def test_unequal_numbers_point_at_characters_that_other_tools_split_at(tmp_path: Path) -> None:
    paths = write(tmp_path, b"a\rb\nc\n", b"d\ne\nf\n")
    with pytest.raises(DataError, match="has 2 records, but") as caught:
        read(paths)
    assert f"{paths[0]} has CR, U+2028 or the like inside lines (1): line ends elsewhere" in caught.value.hint


def test_bad_bytes_do_not_hide_unequal_numbers(tmp_path: Path) -> None:
    paths = write(tmp_path, b"a\n\xff\nc\n\xff\n", b"d\ne\n")
    with pytest.raises(DataError, match=r"has 4 records, but .* has 2"):
        read(paths, drop=True)


def test_text_is_kept_and_read_again_in_order(tmp_path: Path) -> None:
    spool = TextSpool(tmp_path, "text", "src", "tgt")
    chunks = [(["a", " b "], ["", "d\ufeff"]), ([], []), (["e"], ["f"])]
    assert spool.write(chunks) == 3
    assert read((spool.src, spool.tgt)) == [("a", ""), (" b ", "d\ufeff"), ("e", "f")]


def test_a_file_is_hashed_as_it_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "some.en.gz"
    path.write_bytes(gzip.compress(b"hello\n" * 99))
    assert hash_file(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_cannot_be_read_twice_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.en"
    os.mkfifo(pipe)
    for path, name in ((pipe, str(pipe)), (Path("-"), "stdin")):
        with pytest.raises(DataError, match=f"{name} is not a regular file") as caught:
            hash_file(path)
        assert caught.value.hint == "write it to a file first"


def test_hashing_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.en does not exist"):
        hash_file(tmp_path / "none.en")
    with pytest.raises(DataError, match="is a folder"):
        hash_file(tmp_path)
