"""The formats of input and output: how a record is read as a line, and how results are written as records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from aiayn_cli.translate.forced_decoding import Details, Links
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.jsonl import JsonLines
from aiayn_cli.translate.line_translator import Translation
from aiayn_cli.translate.options import FormatName, OutputStyle


class LineFormat(Protocol):
    """A format of input and output. A new one is a class in a file of its own, and a row in FORMATS and FormatName."""

    def read(self, number: int, record: str, prefix: str) -> InputLine:
        """Read a record that is not blank, the number-th one; a second file gives its prefix."""

    def needs_details(self, style: OutputStyle) -> bool:
        """Whether results() uses the details of each output, which take a pass of forced decoding."""

    def results(
        self, line: InputLine, outputs: Sequence[Translation], details: Sequence[Details | None], style: OutputStyle
    ) -> list[Any]:
        """What is known of each output for a line, as --json shows it."""

    def write(self, result: Any, style: OutputStyle) -> str:
        """A result as one record."""

    def score_result(self, line: InputLine, details: Details) -> Any:
        """What --score-against found for a line, as --json shows it; `details` has no tokens if there is no score."""

    def write_score(self, result: Any) -> str:
        """A score_result as one record."""


@dataclass(frozen=True)
class Output:
    """One of the outputs for a line; the fields are those of Translation and Details."""

    text: str
    log_prob: float
    score: float
    alignment: Links | None = None


class TextLines:
    """Plain lines; the score stands before an output, the alignment after it, each separated by a TAB."""

    def read(self, number: int, record: str, prefix: str) -> InputLine:
        return InputLine(number, record, prefix)

    def needs_details(self, style: OutputStyle) -> bool:
        return style.alignments

    def results(
        self, line: InputLine, outputs: Sequence[Translation], details: Sequence[Details | None], style: OutputStyle
    ) -> list[Output]:
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
        return details.log_prob, details.perplexity

    def write_score(self, result: tuple[float, float]) -> str:
        return f"{result[0]:.4f}\t{result[1]:.4f}"


FORMATS: dict[FormatName, LineFormat] = {"text": TextLines(), "jsonl": JsonLines()}
