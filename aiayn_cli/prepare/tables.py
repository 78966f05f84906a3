"""Pairs from tables: columns between tabs (TSV) or commas (CSV), or a JSON object per line (JSONL).

A line break inside a cell becomes a blank and is counted.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.formats import ReadCounts, RecordPairs, Row
from aiayn_cli.text.languages import language_fit
from aiayn_cli.text.lines import RecordReader, is_blank, map_line_breaks

_DROP = "or drop such lines: --on-bad-bytes drop"
_ONE_A_LINE = "write one object per line (`jq -c .` does, `jq -c '.[]'` for a list)"
_ROLES = ("source", "src"), ("target", "tgt")
_PREFIX = re.compile(r"^(?:sentence|text|translation)[._]")  # "sentence_eng_Latn", "translation.en"
_DELIMITERS = (",", ";", "\t")
_BAD_BYTES = "\udcff"  # in no text that was read
_NOT_UTF8 = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class TsvPairs(RecordPairs):
    """A pair a line, in columns between tabs; quotes have no meaning, and an empty line is a pair of blank sides."""

    columns: tuple[int, int] = (1, 2)  # of the source and the target side, from 1 on

    def settings(self) -> dict[str, Any]:
        return {"columns": list(self.columns), **super().settings()}

    def rows(self, reader: RecordReader, counts: ReadCounts) -> Iterator[Row]:
        width = 0
        for number, record in enumerate(reader, start=1):
            if not record:
                yield None if record is None else ("", "")
                continue
            cells = record.split("\t")
            if len(cells) != (width or len(cells)) or len(cells) < max(self.columns):
                problem = f"{self.file.name}:{number} has {logs.counted(len(cells), 'column')}, but "
                wanted, hint = f"earlier lines have {width}", "replace tabs inside text by blanks"
                if not width:
                    wanted = f"columns {self.columns[0]} and {self.columns[1]} are needed"
                    hint = "columns are separated by tabs; --tsv-columns chooses two"
                yield DataError(problem + wanted, f"{hint}, {_DROP}")
            else:
                width = len(cells)
                yield cells[self.columns[0] - 1], cells[self.columns[1] - 1]


@dataclass(frozen=True)
class NamedColumns(RecordPairs):
    """Rows whose columns are named by languages, in any standard."""

    langs: tuple[str, str]

    def _missing(self, where: str, names: tuple[str, ...], way_out: str = "") -> DataError:
        problem = f"{where} has {', '.join(names) or 'nothing'}, but {' and '.join(self.langs)} are needed"
        return DataError(problem, "name them by language codes, and two of these in --langs" + way_out)

    def _pair(self, where: str, texts: tuple[object, object], counts: ReadCounts) -> Row:
        sides = []
        for lang, text in zip(self.langs, texts, strict=True):
            if not isinstance(text, str):
                return DataError(f"{where}: no text for {lang}, but {json.dumps(text)[:40]}", f"repair it, {_DROP}")
            if found := _NOT_UTF8.search(text):
                if found[0] == _BAD_BYTES:
                    return None
                problem = f"{where}: the text for {lang} has U+{ord(found[0]):04X}, which is no character"
                return DataError(problem, f"repair it, {_DROP}")
            side, mapped = map_line_breaks(text)
            counts.mapped += mapped
            sides.append(side)
        return sides[0], sides[1]


@cache
def find_columns(names: tuple[str, ...], langs: tuple[str, str]) -> tuple[int, int] | None:
    """Which of the names stand for two languages: their codes, else "source" and "target"; from 0 on."""
    found = []
    for lang, roles in zip(langs, _ROLES, strict=True):
        fits = [language_fit(_PREFIX.sub("", name), lang) or (name.lower() in roles) / 2 for name in names]
        found.append(fits.index(max(fits)) if any(fits) else -1)
    return (found[0], found[1]) if -1 not in found and found[0] != found[1] else None


@dataclass(frozen=True)
class JsonPairs(NamedColumns):
    """An object per line, with both languages as keys, perhaps inside "translation" as at Hugging Face."""

    def rows(self, reader: RecordReader, counts: ReadCounts) -> Iterator[Row]:
        for number, record in enumerate(reader, start=1):
            if record is None:
                yield None
            elif is_blank(record):
                counts.skipped += 1
            else:
                yield self._read(f"{self.file.name}:{number}", record, counts)

    def _read(self, where: str, record: str, counts: ReadCounts) -> Row:
        try:
            row = json.loads(record)
        except (ValueError, RecursionError) as error:
            return DataError(f"{where}: not JSON: {error}", f"{_ONE_A_LINE}, {_DROP}")
        row = row.get("translation", row) if isinstance(row, dict) else row
        if not isinstance(row, dict):
            return DataError(f"{where}: not a JSON object", f"{_ONE_A_LINE}, {_DROP}")
        names = tuple(row)
        if columns := find_columns(names, self.langs):
            return self._pair(where, (row[names[columns[0]]], row[names[columns[1]]]), counts)
        return self._missing(where, names, f", {_DROP}")


@dataclass(frozen=True)
class CsvPairs(NamedColumns):
    """Columns between commas, semicolons or tabs; quoted cells may hold them, and line breaks.

    The first row names the columns, or there are two.
    """

    def rows(self, reader: RecordReader, counts: ReadCounts) -> Iterator[Row]:
        name = self.file.name
        lines = (_BAD_BYTES if record is None else f"{record}\n" for record in reader)
        first = next(lines, "")
        heads = {mark: tuple(next(csv.reader([first], delimiter=mark), ())) for mark in _DELIMITERS}
        named = {mark: places for mark, head in heads.items() if (places := find_columns(head, self.langs))}
        mark = next(iter(named), max(heads, key=lambda mark: len(heads[mark])))
        width = len(heads[mark])
        if first and not named:
            if width != 2:
                raise self._missing(f"{name}:1", heads[mark])
            logs.notice(f"{name}: no line names the columns, so they are {' and '.join(self.langs)}")
        columns = named.get(mark, (0, 1))
        table = csv.reader(chain([first], lines), delimiter=mark, strict=True, skipinitialspace=True)
        line = 0
        while True:
            where = f"{name}:{line + 1}"
            try:
                row = next(table)
            except StopIteration:
                return
            except csv.Error as error:
                # As many as the lines that a quote without its end has swallowed.
                for _ in range(line, max(table.line_num, line + 1)):
                    yield DataError(f"{where}: {error}", f"repair the quotes, {_DROP}")
            else:
                if not row:
                    counts.skipped += 1
                elif len(row) != width:
                    problem = f"{where} has {logs.counted(len(row), 'column')}, but the first line has {width}"
                    yield DataError(problem, f"put text with {mark!r} in quotes, {_DROP}")
                elif line or not named:
                    yield self._pair(where, (row[columns[0]], row[columns[1]]), counts)
            line = table.line_num
