"""JSON Lines: one object a line, {"id", "text", "prefix"} in, all but the prefix out again with what was found."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aiayn_cli.text.lines import is_blank, map_line_breaks
from aiayn_cli.translate.forced_decoding import Details
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.line_translator import Translation
from aiayn_cli.translate.options import OutputStyle

_DEEPEST = 100  # so that what can be read can also be written, however deep the call stack is
_JSON_TYPES = {list: "array", str: "string", int: "number", float: "number", bool: "Boolean", type(None): "null"}
_SURROGATE = re.compile("[\ud800-\udfff]")


class JsonLines:
    """A record that is not such an object keeps its place, and its output says what is wrong with it."""

    def read(self, number: int, record: str, prefix: str) -> InputLine:
        fields, error = _parse(record)
        if error:
            return InputLine(number, "", prefix, error, _only_id(fields))
        return InputLine(number, one_line(fields["text"]), one_line(fields.get("prefix", prefix)), fields=fields)

    def needs_details(self, style: OutputStyle) -> bool:
        return style.alignments or style.scores

    def results(
        self, line: InputLine, outputs: Sequence[Translation], details: Sequence[Details | None], style: OutputStyle
    ) -> list[dict[str, Any]]:
        head: dict[str, Any] = {} if line.fields and not line.error else {"line": line.number}
        head |= {name: value for name, value in (line.fields or {}).items() if name not in ("text", "prefix")}
        results = []
        for rank, (output, detail) in enumerate(zip(outputs, details, strict=True), start=1):
            result = {**head, "text": output.text}
            if line.error:
                result["error"] = line.error
            if len(outputs) > 1:
                result["rank"] = rank
            result |= {"score": _number(output.score), "log_prob": _number(output.log_prob)}
            if detail is not None and style.scores:
                result["tokens"] = _rounded(detail)
            if detail is not None and style.alignments:
                result["alignment"] = [list(pair) for pair in detail.alignment]
            results.append(result)
        return results

    def write(self, result: Mapping[str, Any], style: OutputStyle) -> str:
        return self.write_score(result)

    def score_result(self, line: InputLine, details: Details) -> dict[str, Any]:
        result = {name: value for name, value in (line.fields or {"line": line.number}).items() if name != "prefix"}
        if line.error:
            result |= {"line": line.number, "error": line.error}
        result |= {"translation": line.prefix, "log_prob": _number(details.log_prob)}
        return {**result, "perplexity": _number(details.perplexity), "tokens": _rounded(details)}

    def write_score(self, result: Mapping[str, Any]) -> str:
        return json.dumps(result, ensure_ascii=False, allow_nan=False)


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _rounded(details: Details) -> list[list[object]]:
    return [[piece, round(log_prob, 5)] for piece, log_prob in details.tokens]


def one_line(text: str) -> str:
    """A text as no more than one record: JSON can hold line ends and NUL."""
    text = map_line_breaks(text)[0].replace("\0", " ")
    return "" if is_blank(text) else text


def _is_deeper(value: object, depth: int) -> bool:
    """Whether objects and arrays are nested more than `depth` deep."""
    level = [value]
    for _ in range(depth + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        level = [inner for each in containers for inner in (each.values() if isinstance(each, dict) else each)]
        if not containers:
            return False
    return True


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def _parse(record: str) -> tuple[dict[str, Any], str]:
    """The fields of a record, and what is wrong with it; "" if nothing is."""
    try:
        fields = json.loads(record, parse_constant=_refuse_constant, parse_float=_finite)
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
    """What identifies a broken record to its author, if it can be written again."""
    line_id = fields.get("id")
    if isinstance(line_id, int | float) or (isinstance(line_id, str) and not _SURROGATE.search(line_id)):
        return {"id": line_id}
    return None
