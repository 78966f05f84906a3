"""How translations are written: as text or JSON, to stdout or to a file that appears when it is whole."""

import errno
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.files import check_writable, open_unfinished, put_in_place, read_place, unfinished_path
from aiayn_cli.text.lines import write_records
from aiayn_cli.translate.input_lines import InputLine, LineFormat
from aiayn_cli.translate.translation import Details, Translation

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class OutputStyle:
    """What is written for each output.

    Attributes:
        line_format: "text", or "jsonl" with one object for each output.
        n_best: outputs for each line; more than one are numbered in JSON.
        scores: text: the score and a TAB before each output; JSON: also log p of each sub-word.
        alignments: text: a TAB and pairs such as 0-0 1-2 after each output; JSON: the same as pairs of numbers.
    """

    line_format: LineFormat = "text"
    n_best: int = 1
    scores: bool = False
    alignments: bool = False

    @property
    def needs_details(self) -> bool:
        """Whether outputs go through the model once more."""
        return self.alignments or (self.scores and self.line_format == "jsonl")

    def records(self, line: InputLine, outputs: Sequence[Translation], details: Sequence[Details | None]) -> list[str]:
        """One record for each output of a line."""
        write = self._json if self.line_format == "jsonl" else self._text
        return [
            write(line, rank, output, detail)
            for rank, (output, detail) in enumerate(zip(outputs, details, strict=True), start=1)
        ]

    def _text(self, line: InputLine, rank: int, output: Translation, details: Details | None) -> str:
        score = f"{output.score:.4f}\t" if self.scores else ""
        pairs = f"\t{' '.join(f'{i}-{j}' for i, j in details.alignment)}" if self.alignments and details else ""
        text = output.text.replace("\t", " ") if self.scores or self.alignments else output.text
        return f"{score}{text}{pairs}"

    def _json(self, line: InputLine, rank: int, output: Translation, details: Details | None) -> str:
        kept = {name: value for name, value in (line.fields or {}).items() if name not in ("text", "prefix")}
        result: dict[str, object] = {**kept, "text": output.text}
        if line.fields is None or line.error:
            result = {"line": line.number, **result}
        if line.error:
            result["error"] = line.error
        if self.n_best > 1:
            result["rank"] = rank
        result["score"], result["log_prob"] = _number(output.score), _number(output.log_prob)
        if details is not None and self.scores:
            result["tokens"] = [[piece, round(log_prob, 5)] for piece, log_prob in details.tokens]
        if details is not None and self.alignments:
            result["alignment"] = [list(pair) for pair in details.alignment]
        return json.dumps(result, ensure_ascii=False, allow_nan=False)


def _number(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def check_outputs(*outputs: Path | None, inputs: Iterable[str | Path | None] = ()) -> None:
    """Refuse names that cannot be written or promise what is not written, and one name for two files.

    Args:
        outputs: files to write; None = no file.
        inputs: files to read, likewise; "-" is stdin.
    Raises:
        UsageError: one ends as a compressed file's, or is "-", or two are the same, or one is an input.
        AiaynError: as check_writable() says.
    """
    named = [output for output in outputs if output is not None]
    for number, output in enumerate(named):
        if str(output) == "-":
            raise UsageError("- is stdout, which is for translations alone", "name a file")
        if output.suffix.lower() in (".gz", ".xz", ".bz2", ".zst"):
            raise UsageError(
                f"{output} would hold plain text", "leave the suffix away, or write to stdout and compress that"
            )
        check_writable(output)
        for other in named[:number]:
            # What one has until it is whole may be the name of the other.
            if output.resolve() == other.resolve():
                raise UsageError(f"{output} cannot hold two outputs", "give each a file of its own")
            if output.resolve() == unfinished_path(other) or unfinished_path(output) == other.resolve():
                raise UsageError(f"{output} and {other} would be written to one file", "give one another name")
        place = read_place(output, inputs)
        if place is not None:
            first = "" if place == output else f", where {output} is written until it is whole"
            raise UsageError(f"{place} is read, and cannot be an output at once{first}", "give another name")


@contextmanager
def open_writer(output: Path | None, *, silent: bool = False) -> Iterator[Callable[[Iterable[str]], None]]:
    """Give a function that writes records and flushes them.

    Args:
        output: file that appears under its name only when all is done; None = stdout.
        silent: write nothing at all.
    Raises:
        AiaynError: the file cannot be written.
    """
    sink, unfinished = sys.stdout.buffer, output
    if output is not None:
        unfinished = unfinished_path(output)
        with _refusal_named(output):
            sink = open_unfinished(output)

    def write(records: Iterable[str]) -> None:
        if not silent:
            with _refusal_named(output):
                write_records(sink, records)
                sink.flush()

    try:
        yield write
        if output is not None and unfinished is not None:
            with _refusal_named(output):
                sink.flush()
                put_in_place(unfinished, output)  # while it is open, and locked
                sink.close()
    except BaseException:
        if output is not None:
            with suppress(OSError):  # of a disk that is full, which was said
                sink.close()
            if unfinished != output:
                logs.notice(f"what was translated so far is in {unfinished}")
        raise


def give_unfinished(
    error: BaseException, result: Callable[[str], Result], take: Callable[[Result], None] | None
) -> None:
    """Give the result of what was done before an error ended it, since it stands nowhere else.

    Args:
        error: which is then raised.
        result: makes the result, told why it is not whole.
        take: prints it; None = nobody wants it.
    """
    if take is None or isinstance(error, BrokenPipeError):  # nobody reads any more
        return
    why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
    try:
        take(result(why))
    except OSError as further:  # the error itself is what a person should know first
        logs.warning(str(further))


@contextmanager
def _refusal_named(output: Path | None) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # its reader has seen enough
        raise
    except OSError as error:
        where = "stdout" if output is None else output
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space there, or give another name" if is_full else "give another name"
        raise AiaynError(f"cannot write {where}: {error.strerror}", hint) from error
