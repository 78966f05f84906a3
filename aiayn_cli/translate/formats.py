"""The formats of input and output: how a record is read as a line, and how results are written as records.

JSON Lines have one object per line: {"id", "text", "prefix"} in, the same without the prefix and with the results out.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiayn_cli.text.lines import is_blank, map_line_breaks
from aiayn_cli.translate.forced_decoding import Details, Links
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.line_translator import Translation
from aiayn_cli.translate.options import FormatName, OutputStyle
from aiayn_cli.translate.trust.retry import Judged

_DEEPEST = 100  # nesting that can be written again, however deep the call stack is
_JSON_TYPES = {list: "array", str: "string", int: "number", float: "number", bool: "Boolean", type(None): "null"}
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Output:
    """One of the outputs for a line; the fields are those of Translation and Details."""

    text: str
    log_prob: float
    score: float
    alignment: Links | None = None


class TextLines:
    """Plain lines; the score stands before an output, the alignment after it, each separated by a TAB.

    A new format has these methods, and a row in FORMATS and FormatName.
    """

    def read(self, number: int, record: str, prefix: str) -> InputLine:
        """Read the number-th record, which is not blank; a second file gives its prefix."""
        return InputLine(number, record, prefix)

    def needs_details(self, style: OutputStyle) -> bool:
        """Whether results() uses the details of each output, which take a pass of forced decoding."""
        return style.alignments

    def results(
        self, line: InputLine, outputs: Sequence[Translation], details: Sequence[Details | None], style: OutputStyle
    ) -> list[Output]:
        """The results for each output of a line, as --json shows them."""
        return [
            Output(each.text, each.log_prob, each.score, detail.alignment if detail else None)
            for each, detail in zip(outputs, details, strict=True)
        ]

    def write(self, result: Output, style: OutputStyle) -> str:
        score = f"{result.score:.4f}\t" if style.scores else ""
        alignment = "" if result.alignment is None else "\t" + " ".join(f"{i}-{j}" for i, j in result.alignment)
        text = result.text.replace("\t", " ") if score or alignment else result.text
        return f"{score}{text}{alignment}"

    def score_result(self, line: InputLine, details: Details) -> tuple[float, float]:
        """What --score-against found for a line, as --json shows it; `details` has no tokens if there is no score."""
        return details.log_prob, details.perplexity

    def write_score(self, result: tuple[float, float]) -> str:
        return f"{result[0]:.4f}\t{result[1]:.4f}"


class JsonLines:
    """Objects; a record that cannot be read keeps its place, and its output says what is wrong."""

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


FORMATS: dict[FormatName, TextLines | JsonLines] = {"text": TextLines(), "jsonl": JsonLines()}


def report_record(line: InputLine, judged: Judged, missing_terms: Sequence[str] = ()) -> str:
    """A line of the report, on the best output."""
    best = judged.outputs[0]
    src_tokens = sum(len(part.src) for part in best.parts)
    tgt_tokens = sum(len(part.tgt) for part in best.parts)
    record: dict[str, Any] = {"line": line.number}
    if line.fields and line.fields.get("id") is not None:
        record["id"] = line.fields["id"]
    record |= {
        "flags": list(judged.flags),
        "score": _number(best.score),
        "log_prob": _number(best.log_prob),
        "length_ratio": round(tgt_tokens / src_tokens, 3) if src_tokens else None,
        "parts": len(best.parts),
    }
    if judged.tried:
        record |= {"first_flags": list(judged.first_flags), "tried": list(judged.tried), "helped": judged.helped}
    if judged.replaced_by:
        record["replaced_by"] = judged.replaced_by
    if line.error:
        record["error"] = line.error
    if missing_terms:
        record["missing_terms"] = list(missing_terms)
    return json.dumps({**record, "source": line.text, "translation": best.text}, ensure_ascii=False, allow_nan=False)


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _rounded(details: Details) -> list[list[object]]:
    return [[piece, _number(log_prob)] for piece, log_prob in details.tokens]


def one_line(text: str) -> str:
    """A text as no more than one record: JSON can hold line ends and NUL."""
    text = map_line_breaks(text)[0].replace("\0", " ")
    return "" if is_blank(text) else text


def _is_deeper(value: object, depth: int) -> bool:
    """Whether objects and arrays are nested more than `depth` deep."""
    if not isinstance(value, dict | list):
        return False
    return depth == 0 or any(_is_deeper(i, depth - 1) for i in (value.values() if isinstance(value, dict) else value))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def _parse(record: str) -> tuple[dict[str, Any], str]:
    """The fields of a record, and what is wrong with it; "" if nothing is."""
    try:
        fields = json.loads(record, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        return {}, f"invalid JSON: {error}"
    if not isinstance(fields, dict):
        return {}, f'a JSON {_JSON_TYPES[type(fields)]}, not an object such as {{"id": 7, "text": "..."}}'
    if record.count("[") + record.count("{") > _DEEPEST and _is_deeper(fields, _DEEPEST):
        return fields, f"nested more than {_DEEPEST} deep"
    for name in ("text", "prefix"):
        if not isinstance(fields.get(name, ""), str):
            return fields, f"{name} is {json.dumps(fields[name])[:40]}, not a string"
    if "\\u" in record:  # all fields are written again, names included
        for name, value in fields.items():
            if SURROGATE.search(json.dumps([name, value], ensure_ascii=False)):
                shown = json.dumps(name) if SURROGATE.search(name) else name
                return fields, f"{shown} holds half of a surrogate pair"
    return fields, "" if "text" in fields else 'the field "text" is missing'


def _only_id(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """What identifies a broken record to its author, if it can be written again."""
    line_id = fields.get("id")
    if isinstance(line_id, int | float) or (isinstance(line_id, str) and not SURROGATE.search(line_id)):
        return {"id": line_id}
    return None
