"""Reads sentence pairs from the formats that corpora come in, in bounded memory and with both sides in step."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import Any, BinaryIO, Literal, Protocol

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.parsing.tree_text import read_trees, reduce_tree, to_text, unescape, words
from aiayn_cli.prepare.drift import Sides, watch
from aiayn_cli.text.lines import RecordReader

CHUNK_PAIRS = 10_000  # read at a time; what is in a shard depends on it

Pair = tuple[str, str]
Chunk = tuple[list[str], list[str]]  # source sides and target sides, equally many
Drift = Literal["stop", "warn", "ignore"]

# <seg id="12"> in SGML and XML test sets. No XML parser: some of these files are not well formed. Entities such as
# &amp; stay as they are, since nobody who publishes scores on these sets unescapes them.
_SEGMENT_TAG = re.compile(r"<seg\b[^>]*?\bid\s*=\s*[\"']?\s*([^\"'\s>]+)[^>]*>|</seg\s*>", re.IGNORECASE)

# Lines about a talk in IWSLT's training files, such as <url>...</url>.
_TAG_LINE = re.compile(r"\s*</?[A-Za-z]")
_TITLE_LINE = re.compile(r"\s*<(title|description)>")
_TITLE_TAG = re.compile(r"</?(?:title|description)>")


class Input(Protocol):
    """Bytes that can be read any number of times."""

    @property
    def name(self) -> str: ...  # in messages

    def open(self) -> BinaryIO: ...  # decompressed

    def identity(self) -> dict[str, Any]:
        """What identifies the content, known even before an archive is downloaded."""

    def describe(self) -> dict[str, Any]:
        """The identity, and where it was found."""


@dataclass
class ReadCounts:
    """What happened while pairs were read."""

    pairs: int = 0
    bad_bytes: int = 0  # pairs dropped because of bytes that are not UTF-8, or NUL
    mapped: int = 0  # line breaks inside records, such as CR or U+2028, that became a blank
    skipped: int = 0  # entries that are not pairs: lines about a talk, units without both languages


class Pairs(ABC):
    """Pairs in one format."""

    @abstractmethod
    def inputs(self) -> Sequence[tuple[str, Input]]:
        """The side ("src", "tgt" or "both") and the bytes of each file."""

    def settings(self) -> dict[str, Any]:
        """How the files are read, as far as that changes the pairs."""
        return {}

    @abstractmethod
    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all pairs, adding to the counts; raises DataError naming file and line where that is impossible."""


@dataclass(frozen=True)
class TwoFiles(Pairs):
    src: Input
    tgt: Input

    def inputs(self) -> Sequence[tuple[str, Input]]:
        return ("src", self.src), ("tgt", self.tgt)


@dataclass(frozen=True)
class OneFile(Pairs):
    file: Input

    def inputs(self) -> Sequence[tuple[str, Input]]:
        return (("both", self.file),)


@dataclass(frozen=True)
class LinePairs(TwoFiles):
    """One side per file, one record per line."""

    drop_bad_bytes: bool = False  # drop and count a pair with bad bytes, instead of stopping there
    drift: Drift = "ignore"  # what to do where one side has lost or gained lines

    def settings(self) -> dict[str, Any]:
        return {"on_bad_bytes": "drop" if self.drop_bad_bytes else "stop"}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        with self.src.open() as src, self.tgt.open() as tgt:
            src_reader = RecordReader(src, self.src.name, keep_going=self.drop_bad_bytes)
            tgt_reader = RecordReader(tgt, self.tgt.name, keep_going=self.drop_bad_bytes)
            chunks = _in_step(src_reader, tgt_reader)
            if self.drift != "ignore":
                chunks = watch(chunks, self.src.name, self.tgt.name, only_warn=self.drift == "warn")
            for src_chunk, tgt_chunk in chunks:
                counts.pairs += len(src_chunk)
                if None in src_chunk or None in tgt_chunk:
                    both = zip(src_chunk, tgt_chunk, strict=True)
                    good = [(s, t) for s, t in both if s is not None and t is not None]
                    counts.bad_bytes += len(src_chunk) - len(good)
                    yield unzip(good)
                else:
                    yield src_chunk, tgt_chunk  # type: ignore[misc]  # no None in them
            counts.mapped += src_reader.mapped + tgt_reader.mapped


def unzip(pairs: Sequence[Pair]) -> Chunk:
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def _in_step(src: RecordReader, tgt: RecordReader) -> Iterator[Sides]:
    """Read two files chunk by chunk; raises DataError, with both counts, if one has more lines than the other."""
    src_records, tgt_records = iter(src), iter(tgt)
    while True:
        src_chunk, tgt_chunk = list(islice(src_records, CHUNK_PAIRS)), list(islice(tgt_records, CHUNK_PAIRS))
        if len(src_chunk) != len(tgt_chunk):
            for _ in chain(src_records, tgt_records):
                pass  # to count them all
            hint = "each line of one file must translate the same line of the other"
            for reader in (src, tgt):
                if reader.mapped:
                    hint += f"; {reader.name} has {reader.mapped:,} CR, U+2028 or the like inside lines, "
                    hint += "which other programs take for line ends"
            lines = logs.counted(src.records, "line")
            raise DataError(f"{src.name} has {lines}, but {tgt.name} has {tgt.records:,}", hint)
        if not src_chunk:
            return
        yield src_chunk, tgt_chunk


@dataclass(frozen=True)
class TalkPairs(LinePairs):
    """Two files of lines, some of them tags that describe the talk and are skipped: IWSLT's training files."""

    titles: bool = False  # keep the texts of <title> and <description>, without the tags

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "titles": self.titles}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        for chunk in super().read(counts):
            kept: list[Pair] = []
            for src, tgt in zip(*chunk, strict=True):
                if self.titles and _TITLE_LINE.match(src) and _TITLE_LINE.match(tgt):
                    kept.append((_TITLE_TAG.sub("", src).strip(), _TITLE_TAG.sub("", tgt).strip()))
                elif not _TAG_LINE.match(src) and not _TAG_LINE.match(tgt):
                    kept.append((src, tgt))
            counts.skipped += len(chunk[0]) - len(kept)
            counts.pairs -= len(chunk[0]) - len(kept)
            yield unzip(kept)


@dataclass(frozen=True)
class SegmentPairs(TwoFiles):
    """Segments <seg id="...">, in two files whose ids agree: the SGML and XML files of test sets."""

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        pairs: list[Pair] = []
        sides = _read_segments(self.src, counts), _read_segments(self.tgt, counts)
        for number, (src, tgt) in enumerate(zip_longest(*sides, fillvalue=("none", "")), start=1):
            if src[0] != tgt[0]:
                problem = f"segment {number} has id {src[0]} in {self.src.name}, but {tgt[0]} in {self.tgt.name}"
                raise DataError(problem, "both files must hold the same segments in the same order")
            pairs.append((src[1], tgt[1]))
        counts.pairs += len(pairs)
        yield unzip(pairs)


def _read_segments(side: Input, counts: ReadCounts) -> Iterator[tuple[str, str]]:
    """The id and text of each segment; a line break inside becomes a blank and is counted."""
    with side.open() as file:
        reader = RecordReader(file, side.name)
        text = "\n".join(record or "" for record in reader)
    counts.mapped += reader.mapped
    start: re.Match[str] | None = None
    for tag in chain(_SEGMENT_TAG.finditer(text), [None]):
        if start is None:
            start = tag if tag and tag[1] else None
        elif tag is None or tag[1]:
            line = text.count("\n", 0, tag.start() if tag else None) + 1
            problem = f"{side.name}:{line}: segment {start[1]} has no </seg>"
            raise DataError(problem, "repair the file, or download it again")
        else:
            content = text[start.end() : tag.start()]
            counts.mapped += content.count("\n")
            yield start[1], content.replace("\n", " ").strip()
            start = None


@dataclass(frozen=True)
class TsvPairs(OneFile):
    """A pair a line, in columns between tabs; quotes have no meaning, and an empty line is a pair of blank sides."""

    columns: tuple[int, int] = (1, 2)  # of the source and the target side, from 1 on
    drop_bad_bytes: bool = False  # drop and count a line with bad bytes, instead of stopping there

    def settings(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "on_bad_bytes": "drop" if self.drop_bad_bytes else "stop"}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        with self.file.open() as file:
            reader = RecordReader(file, self.file.name, keep_going=self.drop_bad_bytes)
            yield from _in_chunks(self._rows(reader, counts))
            counts.mapped += reader.mapped

    def _rows(self, reader: RecordReader, counts: ReadCounts) -> Iterator[Pair]:
        width = 0
        for number, record in enumerate(reader, start=1):
            counts.pairs += 1
            if record is None:
                counts.bad_bytes += 1
            elif not record:
                yield "", ""
            else:
                cells = record.split("\t")
                if len(cells) != (width or len(cells)) or len(cells) < max(self.columns):
                    raise self._wrong_width(number, len(cells), width)
                width = len(cells)
                yield cells[self.columns[0] - 1], cells[self.columns[1] - 1]

    def _wrong_width(self, line: int, found: int, width: int) -> DataError:
        problem = f"{self.file.name}:{line} has {logs.counted(found, 'column')}, but "
        if width:
            return DataError(f"{problem}earlier lines have {width}", "replace tabs inside text by blanks")
        problem += f"columns {self.columns[0]} and {self.columns[1]} are needed"
        return DataError(problem, "columns are separated by tabs; --tsv-columns chooses two")


def _in_chunks(pairs: Iterator[Pair]) -> Iterator[Chunk]:
    """The last chunk has fewer than CHUNK_PAIRS, or none."""
    while len(chunk := list(islice(pairs, CHUNK_PAIRS))) == CHUNK_PAIRS:
        yield unzip(chunk)
    yield unzip(chunk)


@dataclass(frozen=True)
class TreePairs(OneFile):
    """Bracketed trees, each on a line or over several: the words are the source side, the tree the target side.

    Trees without a word are skipped and counted.
    """

    functions: bool = False  # keep function labels and indices

    def settings(self) -> dict[str, Any]:
        return {"format": "trees", "functions": self.functions}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        with self.file.open() as file:
            reader = RecordReader(file, self.file.name)
            yield from _in_chunks(self._trees(reader, counts))
            counts.mapped += reader.mapped

    def _trees(self, reader: RecordReader, counts: ReadCounts) -> Iterator[Pair]:
        for tree in read_trees((record or "" for record in reader), self.file.name):
            reduced = reduce_tree(tree, functions=self.functions)
            if reduced:
                counts.pairs += 1
                yield " ".join(map(unescape, words(reduced))), to_text(reduced)
            else:
                counts.skipped += 1
