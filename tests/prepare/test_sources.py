"""A source reads its origins one after the other, and says what they are in a way that names its pairs."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.corpora.corpus import Amount
from aiayn_cli.prepare import formats
from aiayn_cli.prepare.formats import TsvPairs
from aiayn_cli.prepare.pairs import LocalFile, MadeText, ReadCounts
from aiayn_cli.prepare.sources import Origin, PairSource, identity_of

Pair = tuple[str, str]


def origin(pairs: list[Pair], name: str = "made", **options: Any) -> Origin:
    text = "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)
    return Origin(name, TsvPairs(MadeText(name, text.encode())), **options)


def read(source: PairSource) -> tuple[list[tuple[str, Pair]], ReadCounts]:
    counts = ReadCounts()
    chunks = source.read_train(counts)
    found = [(source.train[i].name, pair) for i, chunk in chunks for pair in zip(*chunk, strict=True)]
    return found, counts


def numbered(n: int, name: str) -> list[Pair]:
    return [(f"{name}{i}", f"{name.upper()}{i}") for i in range(n)]


def test_origins_are_read_one_after_the_other() -> None:
    parts = {"a": numbered(3, "a"), "b": numbered(2, "b")}
    found, counts = read(PairSource([origin(pairs, name) for name, pairs in parts.items()]))
    assert found == [(name, pair) for name, pairs in parts.items() for pair in pairs]
    assert counts.pairs == 5


def test_what_is_scored_is_joined_and_may_be_missing() -> None:
    source = PairSource([origin([])], valid=[origin(numbered(2, "v")), origin(numbered(3, "w"))])
    counts = ReadCounts()
    chunk = source.scored("valid", counts)
    assert chunk is not None
    assert list(zip(*chunk, strict=True)) == [*numbered(2, "v"), *numbered(3, "w")]
    assert counts.pairs == 5
    assert source.scored("test", counts) is None


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 7), st.integers(1, 5))
def test_each_nth_pair_over_all_origins_is_for_validation(sizes: list[int], n: int, chunk: int) -> None:
    parts = [origin(numbered(size, "xyzw"[i]), "xyzw"[i]) for i, size in enumerate(sizes)]
    everything = [pair for i, size in enumerate(sizes) for pair in numbered(size, "xyzw"[i])]
    source = PairSource(parts, valid_every=n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "CHUNK_PAIRS", chunk)
        valid_counts = ReadCounts()
        valid = source.scored("valid", valid_counts)
        train, counts = read(source)
    assert [pair for _, pair in train] == [pair for i, pair in enumerate(everything, start=1) if i % n]
    taken = list(zip(*valid, strict=True)) if valid else []
    assert taken == everything[n - 1 :: n]
    assert (counts.pairs, valid_counts.pairs) == (len(train), len(taken))


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
