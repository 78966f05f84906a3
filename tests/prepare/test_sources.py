"""A source reads its origins one after the other, and says what they are in a way that names its pairs."""

import gzip
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.corpora.corpus import Amount, Archive
from aiayn_cli.errors import DataError
from aiayn_cli.prepare import formats
from aiayn_cli.prepare.formats import LinePairs, ReadCounts, TsvPairs
from aiayn_cli.prepare.sources import ArchiveMember, LocalFile, MadeText, Origin, PairSource, estimate_disk, identity_of

Pair = tuple[str, str]


def origin(pairs: list[Pair], name: str = "made", **options: Any) -> Origin:
    text = "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)
    return Origin(name, TsvPairs(MadeText(name, text.encode())), **options)


def read(source: PairSource) -> tuple[list[tuple[str, Pair]], list[int]]:
    counts = [ReadCounts() for _ in source.train]
    chunks = source.read_train(counts)
    found = [(source.train[i].name, pair) for i, chunk in chunks for pair in zip(*chunk, strict=True)]
    return found, [each.pairs for each in counts]


def numbered(n: int, name: str) -> list[Pair]:
    return [(f"{name}{i}", f"{name.upper()}{i}") for i in range(n)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 7), st.integers(1, 5))
def test_each_nth_pair_over_all_origins_is_for_validation(sizes: list[int], n: int, chunk: int) -> None:
    parts = [origin(numbered(size, "xyzw"[i]), "xyzw"[i]) for i, size in enumerate(sizes)]
    everything = [pair for i, size in enumerate(sizes) for pair in numbered(size, "xyzw"[i])]
    source = PairSource(parts, valid_every=n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "CHUNK_PAIRS", chunk)
        valid_counts = ReadCounts()
        valid = source.read_scored("valid", valid_counts)
        train, counts = read(source)
    assert [pair for _, pair in train] == [pair for i, pair in enumerate(everything, start=1) if i % n]
    taken = list(zip(*valid, strict=True)) if valid else []
    assert taken == everything[n - 1 :: n]
    assert counts == [sum(name == part.name for name, _ in train) for part in parts]
    assert valid_counts.pairs == len(taken)


def changed(pairs: list[Pair], **options: Any) -> PairSource:
    return PairSource([origin(pairs, **options)])


def test_two_sources_are_the_same_exactly_if_they_give_the_same_pairs(tmp_path: Path) -> None:
    pairs = numbered(4, "a")
    same = PairSource([origin(pairs, expected=Amount(4))])
    assert changed(pairs).identity() == same.identity()
    text = MadeText("made", "".join(f"{src}\t{tgt}\n" for src, tgt in pairs).encode())
    others = [
        changed(pairs[:-1]),
        changed(pairs, weight=2),
        PairSource([origin(pairs)], valid=[origin(pairs)]),
        PairSource([origin(pairs)], valid_every=3),
        PairSource([Origin("made", TsvPairs(text, (2, 1)))]),
        PairSource([origin(pairs), origin(pairs)]),
    ]
    identities = [str(source.identity()) for source in [same, *others]]
    assert len(set(identities)) == len(identities)


def test_a_file_is_the_same_wherever_it_is(tmp_path: Path) -> None:
    sources = []
    for name in ("one.tsv", "two.tsv"):
        (tmp_path / name).write_bytes(b"a\tb\n")
        sources.append(PairSource([Origin(name, TsvPairs(LocalFile(tmp_path / name)))]))
    assert sources[0].identity() == sources[1].identity()
    descriptions = [source.describe() for source in sources]
    assert [entry["path"] for entries in descriptions for entry in entries] == [
        str(tmp_path / "one.tsv"),
        str(tmp_path / "two.tsv"),
    ]
    assert identity_of(descriptions[0]) == sources[0].identity()


def test_a_file_is_hashed_as_it_is_on_disk_and_must_be_one_that_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "some.en.gz"
    path.write_bytes(gzip.compress(b"hello\n" * 99))
    assert LocalFile(path).identity() == {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    pipe = tmp_path / "pipe.en"
    os.mkfifo(pipe)
    for path, problem in (
        (pipe, f"{pipe} is not a regular file"),
        (Path("-"), "stdin is not a regular file"),
        (tmp_path / "none.en", r"none\.en does not exist"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(DataError, match=problem):
            LocalFile(path).identity()


# ---- disk

ARCHIVE = Archive("dev.tgz", ("https://nowhere/dev.tgz",))


class Downloaded:
    """Downloads that say where an archive is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, archive: Archive) -> Path:
        return self._path

    def sha256(self, archive: Archive) -> str:
        return "0"


def local(folder: Path, name: str, size: int) -> LocalFile:
    (folder / name).write_bytes(bytes(size))
    return LocalFile(folder / name)


def member(folder: Path, name: str) -> ArchiveMember:
    (folder / "dev.tgz").write_bytes(bytes(100))
    return ArchiveMember(ARCHIVE, name, Downloaded(folder / "dev.tgz"))  # type: ignore[arg-type]


def test_compressed_files_grow_and_an_archive_counts_once(tmp_path: Path) -> None:
    files = Origin("a", LinePairs(local(tmp_path, "a.en", 1_000), local(tmp_path, "a.de.gz", 500)))
    archive = [Origin(name, LinePairs(member(tmp_path, "x"), member(tmp_path, "y"))) for name in "bc"]
    made = Origin("demo", TsvPairs(MadeText("demo", b"a\tb\n")))
    origins = [files, *archive, made]
    assert estimate_disk(origins, processed=False) == int((1_000 + 500 * 3.2 + 100 * 3.2) * 2)
    assert estimate_disk(origins, processed=True) > estimate_disk(origins, processed=False)


def test_each_weight_and_each_file_given_again_counts(tmp_path: Path) -> None:
    once = Origin("a", LinePairs(local(tmp_path, "a.en", 1_000), local(tmp_path, "a.de", 1_000)))
    alone = estimate_disk([once], processed=False)
    assert estimate_disk([once, once], processed=False) == 2 * alone
    assert estimate_disk([replace(once, weight=9)], processed=False) == 5 * alone


def test_an_archive_is_not_taken_for_all_text_where_the_pairs_are_counted(tmp_path: Path) -> None:
    part = Origin("part", LinePairs(member(tmp_path, "x"), member(tmp_path, "y")), expected=Amount(1))
    (tmp_path / "dev.tgz").write_bytes(bytes(1_000_000))
    assert estimate_disk([part], processed=False) == 1_000
