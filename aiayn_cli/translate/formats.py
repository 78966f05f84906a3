"""The formats of input and output: how a record is read as a line, and how answers are written as records."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiayn_cli.text.lines import is_blank, map_line_breaks
from aiayn_cli.translate.options import FormatName, OutputStyle
from aiayn_cli.translate.translation import Details, Translation

_BAD_BYTES = "not UTF-8, or holds NUL"
_DEEPEST = 100  # what can be read can then be written too, whatever calls stand above either
_JSON_TYPES = {list: "array", str: "string", int: "number", float: "number", bool: "Boolean", type(None): "null"}
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class InputLine:
    """One record of the input."""

    number: int  # of its line, from 1 on
    text: str  # what to translate; "" where the record could not be read
    prefix: str = ""  # how the translation begins ("" = free); or the translation itself, where that is given
    error: str = ""  # why the record could not be read; "" where it could
    # for JSON, all its fields, or only the "id" where there is an error; None for a line of text
    fields: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Output:
    """One of the outputs for a line of text, as --json shows it; the fields are Translation's and Details'."""

    text: str
    log_prob: float
    score: float
    alignment: Sequence[tuple[int, int]] | None = None


@dataclass(frozen=True)
class PairScore:
    """What forced decoding says of a given translation."""

    log_prob: float  # natural log p of all tokens; NaN without a score
    perplexity: float  # per token
    tokens: Sequence[tuple[str, float]]  # each sub-word with its natural log p, "</s>" last; none without a score


class TextFormat:
    """Plain lines; scores stand before outputs, alignments behind, with a TAB between."""

    is_strict = False  # whether a record that cannot be read makes the command fail at its end

    def read(self, number: int, record: str | None, prefix: str, *, own_prefix: bool) -> InputLine:
        """Read one record.

        Args:
            number: of its line.
            record: None where its bytes are no text.
            prefix: that of a second file.
            own_prefix: whether a prefix in the record itself counts instead.
        """
        if record is None:
            return InputLine(number, "", prefix, _BAD_BYTES)
        return InputLine(number, "" if is_blank(record) else record, prefix)

    def write(
        self,
        line: InputLine,
        outputs: Sequence[Translation],
        details: Sequence[Details | None],
        style: OutputStyle,
    ) -> list[str]:
        return [self._record(*each, style) for each in zip(outputs, details, strict=True)]

    def needs_details(self, style: OutputStyle) -> bool:
        return style.alignments

    def in_result(
        self, records: Sequence[str], outputs: Sequence[Translation], details: Sequence[Details | None]
    ) -> tuple[Output, ...]:
        return tuple(
            Output(each.text, each.log_prob, each.score, detail.alignment if detail else None)
            for each, detail in zip(outputs, details, strict=True)
        )

    def write_score(self, line: InputLine, score: PairScore) -> str:
        return f"{score.log_prob:.4f}\t{score.perplexity:.4f}"

    def score_in_result(self, line: InputLine, score: PairScore) -> tuple[float, float]:
        return score.log_prob, score.perplexity

    def _record(self, output: Translation, details: Details | None, style: OutputStyle) -> str:
        score = f"{output.score:.4f}\t" if style.scores else ""
        pairs = f"\t{' '.join(f'{i}-{j}' for i, j in details.alignment)}" if style.alignments and details else ""
        text = output.text.replace("\t", " ") if style.scores or style.alignments else output.text
        return f"{score}{text}{pairs}"


class JsonLinesFormat:
    """One JSON object a line: {"id", "text", "prefix"} in, all but the prefix out again with what was found.

    A record that is not so keeps its place, and its output says what is wrong with it.
    """

    is_strict = True

    def read(self, number: int, record: str | None, prefix: str, *, own_prefix: bool) -> InputLine:
        if record is None:
            return InputLine(number, "", prefix, _BAD_BYTES)
        if is_blank(record):
            return InputLine(number, "", prefix)
        fields, error = _parse(record)
        if error:
            return InputLine(number, "", prefix, error, _only_id(fields))
        if own_prefix:
            prefix = _one_line(fields.get("prefix", prefix))
        return InputLine(number, _one_line(fields["text"]), prefix, fields=fields)

    def write(
        self,
        line: InputLine,
        outputs: Sequence[Translation],
        details: Sequence[Details | None],
        style: OutputStyle,
    ) -> list[str]:
        ranks = range(1, len(outputs) + 1) if len(outputs) > 1 else [None]
        return [
            _dumps(self._object(line, rank, output, found, style))
            for rank, output, found in zip(ranks, outputs, details, strict=True)
        ]

    def needs_details(self, style: OutputStyle) -> bool:
        return style.alignments or style.scores

    def in_result(
        self, records: Sequence[str], outputs: Sequence[Translation], details: Sequence[Details | None]
    ) -> tuple[Mapping[str, Any], ...]:
        return tuple(map(json.loads, records))

    def write_score(self, line: InputLine, score: PairScore) -> str:
        return _dumps(self.score_in_result(line, score))

    def score_in_result(self, line: InputLine, score: PairScore) -> Mapping[str, Any]:
        kept = {name: value for name, value in (line.fields or {"line": line.number}).items() if name != "prefix"}
        if line.error:
            kept |= {"line": line.number, "error": line.error}
        return {
            **kept,
            "translation": line.prefix,
            "log_prob": _number(score.log_prob),
            "perplexity": _number(score.perplexity),
            "tokens": _rounded(score.tokens),
        }

    def _object(
        self, line: InputLine, rank: int | None, output: Translation, details: Details | None, style: OutputStyle
    ) -> dict[str, object]:
        kept = {name: value for name, value in (line.fields or {}).items() if name not in ("text", "prefix")}
        result: dict[str, object] = {**kept, "text": output.text}
        if line.fields is None or line.error:
            result = {"line": line.number, **result}
        if line.error:
            result["error"] = line.error
        if rank is not None:
            result["rank"] = rank
        result["score"], result["log_prob"] = _number(output.score), _number(output.log_prob)
        if details is not None and style.scores:
            result["tokens"] = _rounded(details.tokens)
        if details is not None and style.alignments:
            result["alignment"] = [list(pair) for pair in details.alignment]
        return result


LineFormat = TextFormat | JsonLinesFormat
FORMATS: dict[FormatName, LineFormat] = {"text": TextFormat(), "jsonl": JsonLinesFormat()}


def _dumps(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False, allow_nan=False)


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _rounded(tokens: Sequence[tuple[str, float]]) -> list[list[object]]:
    return [[piece, round(log_prob, 5)] for piece, log_prob in tokens]


def _one_line(text: str) -> str:
    """A text as no more than one record: JSON can hold line ends and NUL."""
    text = map_line_breaks(text)[0].replace("\0", " ")
    return "" if is_blank(text) else text


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
