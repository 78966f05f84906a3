"""What a user gives to be translated: lines of text or JSON, and a second text that belongs to each."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aiayn_cli.errors import DataError
from aiayn_cli.text.lines import RecordReader, is_blank, map_line_breaks

LineFormat = Literal["text", "jsonl"]

_BAD_BYTES = "not UTF-8, or holds NUL"
_DEEPEST = 100  # what can be read can then be written too, whatever calls stand above either
_JSON_TYPES = {list: "array", str: "string", int: "number", float: "number", bool: "Boolean", type(None): "null"}
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class InputLine:
    """One record of the input.

    Attributes:
        number: of its line, from 1 on.
        text: what to translate; "" where the record could not be read.
        prefix: how the translation shall begin ("" = free); or the translation itself, where that is given.
        error: why the record could not be read; "" where it could.
        fields: for JSON, all its fields, or only the "id" where there is an error; None for a line of text.
    """

    number: int
    text: str
    prefix: str = ""
    error: str = ""
    fields: Mapping[str, Any] | None = None


@dataclass
class InputLines:
    """Reads the lines of one input, and of a second file that goes with it.

    Args:
        reader: of the input, one that keeps going at bad bytes.
        line_format: "jsonl" takes each record for a JSON object with a "text" and perhaps a "prefix"; one that is not
            so keeps its place, and says what is wrong with it.
        prefixes: of a second file with one record for each line: prefixes or translations.
        prefix_hint: what to do where it has another number of lines.
        own_prefixes: whether the "prefix" of a JSON object counts, and before the one of that file.

    Attributes:
        lines_read: how many have arrived so far, also such as wait in another thread.
    """

    reader: RecordReader
    line_format: LineFormat = "text"
    prefixes: RecordReader | None = None
    prefix_hint: str = "give one prefix for each line; an empty line leaves its translation free"
    own_prefixes: bool = True
    lines_read: int = field(default=0, init=False)
    _prefix_records: Iterator[str | None] = field(init=False)

    def __post_init__(self) -> None:
        self._prefix_records = iter(self.prefixes or ())

    def blocks(self) -> Iterator[list[InputLine]]:
        """Give the lines as they arrive.

        Raises:
            DataError: a file of prefixes of another length.
        """
        for records in self.reader.blocks():
            block = []
            for record in records:
                self.lines_read += 1
                try:
                    block.append(self._line(self.lines_read, record))
                except DataError:
                    yield block  # what came before it is not lost
                    raise
            yield block
        if self.prefixes is not None and next(self._prefix_records, _END) is not _END:
            raise self._other_length(self.lines_read, "more than")

    def _line(self, number: int, record: str | None) -> InputLine:
        prefix = ""
        if self.prefixes is not None:
            found = next(self._prefix_records, _END)
            if isinstance(found, _End):
                raise self._other_length(number - 1, "only")
            prefix = found or ""
        if record is None:
            return InputLine(number, "", prefix, _BAD_BYTES)
        if self.line_format == "text" or is_blank(record):
            return InputLine(number, "" if is_blank(record) else record, prefix)
        fields, error = _parse(record)
        if error:
            return InputLine(number, "", prefix, error, _only_id(fields))
        if self.own_prefixes:
            prefix = _one_line(fields.get("prefix", prefix))
        return InputLine(number, _one_line(fields["text"]), prefix, fields=fields)

    def _other_length(self, lines: int, how_many: str) -> DataError:
        assert self.prefixes is not None
        return DataError(
            f"{self.prefixes.name} has {how_many} {lines:,} lines, other than {self.reader.name}",
            self.prefix_hint,
        )


def _one_line(text: str) -> str:
    """A text as no more than one record: JSON can hold line ends and NUL."""
    text = map_line_breaks(text)[0].replace("\0", " ")
    return "" if is_blank(text) else text


class _End:
    pass


_END = _End()


def _is_deeper(value: object, depth: int) -> bool:
    """Whether objects and arrays stand inside each other more than `depth` deep."""
    level = [value]
    for _ in range(depth + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        level = [inner for each in containers for inner in (each.values() if isinstance(each, dict) else each)]
        if not containers:
            return False
    return True


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def _parse(record: str) -> tuple[dict[str, Any], str]:
    """The fields of a record, and what is wrong with it; "" where nothing is."""
    try:
        fields = json.loads(record, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return {}, f"no JSON: {error}"
    if not isinstance(fields, dict):
        return {}, f'a JSON {_JSON_TYPES[type(fields)]}, not an object such as {{"id": 7, "text": "..."}}'
    if record.count("[") + record.count("{") > _DEEPEST and _is_deeper(fields, _DEEPEST):
        return fields, f"nested more than {_DEEPEST} deep"
    for name in ("text", "prefix"):
        if not isinstance(fields.get(name, ""), str):
            return fields, f"{name} is {json.dumps(fields[name])[:40]}, not text in quotes"
    if "\\u" in record:  # all fields are written again, names included
        for name, value in fields.items():
            if _SURROGATE.search(json.dumps([name, value], ensure_ascii=False)):
                shown = json.dumps(name) if _SURROGATE.search(name) else name
                return fields, f"{shown} holds half of a surrogate pair"
    return fields, "" if "text" in fields else 'no "text" in it'


def _only_id(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """What tells whoever gave a record which one it was, where that can be written again."""
    line_id = fields.get("id")
    if isinstance(line_id, int | float) or (isinstance(line_id, str) and not _SURROGATE.search(line_id)):
        return {"id": line_id}
    return None
