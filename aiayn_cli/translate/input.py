"""How the lines to translate arrive, from a terminal, a pipe or a file, and what a person sees of that."""

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from aiayn_cli import logs
from aiayn_cli.errors import UsageError
from aiayn_cli.processes import gather
from aiayn_cli.text.lines import count_lines_ahead, open_text_bytes
from aiayn_cli.translate.input_lines import InputLine, InputLines

_LINES_TOGETHER = 2_000  # sorted by length and translated before the first of them is written
_PROMPT = "> "

Answer = TypeVar("Answer")


def groups(lines: InputLines, workers: int = 1) -> Iterator[Sequence[InputLine]]:
    """Give the lines in groups that are translated together; what arrived together is shared among the workers."""
    for group in gather(lines.blocks(), _LINES_TOGETHER * workers):
        size = -(-len(group) // workers)
        for start in range(0, len(group), size):
            yield group[start : start + size]


def followed(
    answers: Iterable[tuple[int, Answer]], lines: InputLines, file: BinaryIO, source: str, doing: str = "translating"
) -> Iterator[Answer]:
    """Give the answers, and show how far it is: a prompt after each on a terminal, progress elsewhere.

    Args:
        answers: each with the number of its lines.
        lines: where they come from.
        file: the same, not read yet.
        source: its name.
        doing: what is done.
    """
    if is_typed(source):
        logs.notice("type a line to translate it; Ctrl-D ends")
        try:
            logs.prompt(_PROMPT)
            answered = 0
            for count, answer in answers:
                yield answer
                answered += count
                if answered >= lines.lines_read:  # of lines that were pasted others are waiting
                    logs.prompt(_PROMPT)
        except GeneratorExit:  # an answer had a problem; there was no prompt after it
            return
        except BaseException:
            logs.prompt("\n")  # Ctrl-C
            raise
        logs.prompt("\n")  # Ctrl-D
        return
    with logs.progress(doing, total=count_lines_ahead(file), unit="lines") as progress:
        for count, answer in answers:
            yield answer
            progress.advance(count)


def is_typed(source: str) -> bool:
    """Whether somebody types the lines: they are read from a terminal."""
    return source == "-" and sys.stdin.isatty()


def check_inputs(source: str, second: Path | None) -> None:
    """Refuse stdin for two inputs.

    Raises:
        UsageError: both are "-".
    """
    if source == "-" == str(second):
        raise UsageError("stdin cannot be two inputs at once", "give one of them as a file")


@contextmanager
def opened(source: str | Path) -> Iterator[BinaryIO]:
    """Open a text file for reading bytes as they arrive; "-" is stdin."""
    file = open_text_bytes(source)
    try:
        # Unbuffered: a thread that waits for a slow pipe inside a buffer would hold its lock when Ctrl-C closes it.
        yield cast(BinaryIO, file.raw) if isinstance(file, io.BufferedReader) else file
    finally:
        if str(source) != "-":
            file.close()
