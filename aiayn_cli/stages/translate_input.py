"""How the lines to translate arrive: from a terminal, a pipe or a file."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from aiayn_cli import logs
from aiayn_cli.data.input_lines import InputLine, InputLines
from aiayn_cli.data.piped import count_lines_ahead
from aiayn_cli.data.text import open_text_bytes
from aiayn_cli.decoding.stream import gather
from aiayn_cli.errors import UsageError

_LINES_TOGETHER = 2_000  # sorted by length and translated before the first of them is written
_PROMPT = "> "


def groups(lines: InputLines, file: BinaryIO, doing: str = "translating") -> Iterator[list[InputLine]]:
    """Give the lines in groups that are translated together, and show how far it is."""
    if lines.reader.name == "stdin" and sys.stdin.isatty():
        logs.notice("type a line to translate it; Ctrl-D ends")
        logs.prompt(_PROMPT)
        for group in gather(lines.blocks(), _LINES_TOGETHER):
            yield group
            logs.prompt(_PROMPT)
        return
    with logs.progress(doing, total=count_lines_ahead(file), unit="lines") as progress:
        for group in gather(lines.blocks(), _LINES_TOGETHER):
            yield group
            progress.advance(len(group))


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
