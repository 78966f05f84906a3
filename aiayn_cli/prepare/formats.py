"""Pairs in the formats that corpora come in. Each reads records in bounded memory and keeps both sides in step."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

from aiayn_cli.config import OnBadBytes
from aiayn_cli.errors import DataError

# <seg id="12"> in SGML and XML test sets. No XML parser: some of these files are not well formed. Entities such as
# &amp; stay as they are, since nobody who publishes scores on these sets unescapes them.
from aiayn_cli.parsing.trees import read_trees, reduce_tree, to_text, unescape, words
from aiayn_cli.prepare.pairs import CHUNK_PAIRS, Chunk, Drift, Input, ReadCounts, pair_up
from aiayn_cli.text.lines import RecordReader

_SEGMENT_START = re.compile(r"<seg\b[^>]*?\bid\s*=\s*[\"']?\s*([^\"'\s>]+)[^>]*>", re.IGNORECASE)
_SEGMENT_END = re.compile(r"</seg\s*>", re.IGNORECASE)

# Lines about a talk in IWSLT's training files, such as <url>...</url>.
_TAG_LINE = re.compile(r"\s*</?[A-Za-z]")
_TITLE_LINE = re.compile(r"\s*<(title|description)>")
_TITLE_TAG = re.compile(r"</?(?:title|description)>")


class Pairs(Protocol):
    """Pairs of one origin."""

    def inputs(self) -> Sequence[tuple[str, Input]]:
        """Give what is read: the side ("src", "tgt", or "both"), and the bytes."""

    def settings(self) -> dict[str, Any]:
        """Say how it is read, as far as that changes the pairs."""

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all pairs, and add to the counts."""


@dataclass(frozen=True)
class LinePairs:
    """A record a line, in two files.

    Attributes:
        src: source sides.
        tgt: target sides.
        drop_bad_bytes: drop and count a pair with bad bytes, instead of stopping there.
        drift: what to do where one side has lost or gained lines.
    """

    src: Input
    tgt: Input
    drop_bad_bytes: bool = False
    drift: Drift = "ignore"

    def inputs(self) -> Sequence[tuple[str, Input]]:
        return ("src", self.src), ("tgt", self.tgt)

    def settings(self) -> dict[str, Any]:
        return {"on_bad_bytes": _on_bad_bytes(self.drop_bad_bytes)}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        with self.src.open() as src, self.tgt.open() as tgt:
            yield from pair_up(
                RecordReader(src, self.src.name, keep_going=self.drop_bad_bytes),
                RecordReader(tgt, self.tgt.name, keep_going=self.drop_bad_bytes),
                counts,
                drift=self.drift,
            )


def _on_bad_bytes(drop: bool) -> OnBadBytes:
    return "drop" if drop else "stop"


@dataclass(frozen=True)
class TalkPairs(LinePairs):
    """A record a line, between lines in tags that describe the talk: IWSLT's training files.

    Attributes:
        titles: keep the texts of <title> and <description>, without the tags.
    """

    titles: bool = False

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "titles": self.titles}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all pairs of text; those of other lines are skipped and counted."""
        for chunk in super().read(counts):
            src: list[str] = []
            tgt: list[str] = []
            for pair in zip(*chunk, strict=True):
                if self.titles and all(map(_TITLE_LINE.match, pair)):
                    pair = _TITLE_TAG.sub("", pair[0]).strip(), _TITLE_TAG.sub("", pair[1]).strip()
                elif any(map(_TAG_LINE.match, pair)):
                    continue
                src.append(pair[0])
                tgt.append(pair[1])
            skipped = len(chunk[0]) - len(src)
            counts.skipped += skipped
            counts.pairs -= skipped
            yield src, tgt


@dataclass(frozen=True)
class SegmentPairs:
    """Segments <seg id="...">, in two files whose ids agree: the SGML and XML files of test sets.

    Attributes:
        src: source sides.
        tgt: target sides.
    """

    src: Input
    tgt: Input

    def inputs(self) -> Sequence[tuple[str, Input]]:
        return ("src", self.src), ("tgt", self.tgt)

    def settings(self) -> dict[str, Any]:
        return {}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all segments; outer blanks are no part of them.

        Raises:
            DataError: the ids differ, one side has more, or a segment has no end.
        """
        src: list[str] = []
        tgt: list[str] = []
        sides = _read_segments(self.src, counts), _read_segments(self.tgt, counts)
        for number, (first, second) in enumerate(zip_longest(*sides, fillvalue=("none", "")), start=1):
            if first[0] != second[0]:
                raise DataError(
                    f"segment {number} has id {first[0]} in {self.src.name}, but {second[0]} in {self.tgt.name}",
                    "the two files must hold the same segments in the same order",
                )
            src.append(first[1])
            tgt.append(second[1])
        counts.pairs += len(src)
        yield src, tgt


def _read_segments(side: Input, counts: ReadCounts) -> Iterator[tuple[str, str]]:
    """Give id and text of each segment; a line's end inside becomes a blank and is counted."""
    with side.open() as file:
        reader = RecordReader(file, side.name)
        unfinished: tuple[str, str] | None = None  # id and text so far
        for number, record in enumerate(reader, start=1):
            assert record is not None  # only given where the reader keeps going
            at = 0
            while at <= len(record):
                if unfinished is None:
                    if not (start := _SEGMENT_START.search(record, at)):
                        break
                    unfinished, at = (start[1], ""), start.end()
                end, next_start = _SEGMENT_END.search(record, at), _SEGMENT_START.search(record, at)
                if next_start and not (end and end.start() < next_start.start()):
                    raise _endless(side, number, unfinished[0])
                text = unfinished[1] + record[at : end.start() if end else None]
                if not end:
                    counts.mapped += 1
                    unfinished = unfinished[0], text + " "
                    break
                yield unfinished[0], text.strip()
                unfinished, at = None, end.end()
        if unfinished is not None:
            raise _endless(side, reader.records, unfinished[0])
        counts.mapped += reader.mapped


def _endless(side: Input, line: int, segment: str) -> DataError:
    return DataError(f"{side.name}:{line}: segment {segment} has no </seg>", "repair the file, or fetch it again")


@dataclass(frozen=True)
class TsvPairs:
    """A pair a line, in columns between tabs; no quotes have a meaning.

    Attributes:
        file: holds both sides.
        columns: which column has the source and which the target side, from 1 on.
        drop_bad_bytes: drop and count a line with bad bytes, instead of stopping there.
    """

    file: Input
    columns: tuple[int, int] = (1, 2)
    drop_bad_bytes: bool = False

    def inputs(self) -> Sequence[tuple[str, Input]]:
        return (("both", self.file),)

    def settings(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "on_bad_bytes": _on_bad_bytes(self.drop_bad_bytes)}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all lines; an empty one is a pair of blank sides.

        Raises:
            DataError: a line has another number of columns than the first, or too few.
        """
        src: list[str] = []
        tgt: list[str] = []
        width = 0
        with self.file.open() as file:
            reader = RecordReader(file, self.file.name, keep_going=self.drop_bad_bytes)
            for number, record in enumerate(reader, start=1):
                counts.pairs += 1
                if record is None:
                    counts.bad_bytes += 1
                    continue
                if record:
                    cells = record.split("\t")
                    if len(cells) != width:
                        if width or len(cells) < max(self.columns):
                            raise self._wrong_width(number, len(cells), width)
                        width = len(cells)
                    src.append(cells[self.columns[0] - 1])
                    tgt.append(cells[self.columns[1] - 1])
                else:
                    src.append("")
                    tgt.append("")
                if len(src) == CHUNK_PAIRS:
                    yield src, tgt
                    src, tgt = [], []
            counts.mapped += reader.mapped
        yield src, tgt  # even without a pair, since some may have been counted and dropped

    def _wrong_width(self, line: int, found: int, width: int) -> DataError:
        name = f"{self.file.name}:{line}"
        if width:
            problem = f"{name} has {found} columns, but the lines before have {width}"
            return DataError(problem, "a tab inside a text? replace it by a blank")
        asked = " and ".join(map(str, self.columns))
        problem = f"{name} has {'1 column' if found == 1 else f'{found} columns'}, but columns {asked} are asked for"
        return DataError(problem, "columns are separated by tabs; --tsv-columns says which two to take")


@dataclass(frozen=True)
class TreePairs:
    """The trees of a treebank's file. The source side is the words, the target side the tree on one line.

    Attributes:
        file: bracketed trees, each on a line or over several.
        functions: keep function labels and indices.
    """

    file: Input
    functions: bool = False

    def inputs(self) -> Sequence[tuple[str, Input]]:
        return (("both", self.file),)

    def settings(self) -> dict[str, Any]:
        return {"format": "trees", "functions": self.functions}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all pairs; trees without a word are skipped and counted.

        Raises:
            DataError: the file holds something else than trees, or bytes that are not UTF-8.
        """
        with self.file.open() as file:
            reader = RecordReader(file, self.file.name)
            chunk: Chunk = [], []
            for tree in read_trees((record or "" for record in reader), self.file.name):
                reduced = reduce_tree(tree, functions=self.functions)
                if not reduced:
                    counts.skipped += 1
                    continue
                chunk[0].append(" ".join(map(unescape, words(reduced))))
                chunk[1].append(to_text(reduced))
                if len(chunk[0]) == CHUNK_PAIRS:
                    counts.pairs += CHUNK_PAIRS
                    yield chunk
                    chunk = [], []
            counts.pairs += len(chunk[0])
            counts.mapped += reader.mapped
            if chunk[0]:
                yield chunk
