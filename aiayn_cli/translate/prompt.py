"""The prompt of `aiayn translate` in a terminal: line editing and history, where Python has readline."""

import os
import re
import sys
from collections.abc import Iterator

from aiayn_cli import logs
from aiayn_cli.translate.line_translator import Translation

_PROMPT = "> "
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")  # NUL, and bytes that are not UTF-8


def typed_records() -> Iterator[str | None]:
    """Ask for lines until Ctrl-D; None for one that is not UTF-8. Ctrl-C drops the line.

    The next line is asked for when the next record is wanted, so that the answer to the one before comes first.
    """
    logs.notice("type a line to translate it; Ctrl-C drops the line, Ctrl-D ends")
    edits = sys.stdout.isatty() and sys.stdin is sys.__stdin__  # else input() would write its prompt to stdout
    if edits:
        try:
            import readline  # makes input() edit lines; some builds of Python lack it
        except ImportError:
            pass
        else:
            readline.parse_and_bind("set disable-completion on")  # a TAB is text
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    while True:
        try:
            if not edits:
                logs.prompt(_PROMPT)
            line = input(_PROMPT if edits and logs.verbosity() >= logs.NORMAL else "")
        except EOFError:
            logs.prompt("\n")
            return
        except KeyboardInterrupt:
            logs.prompt("\n")
            continue
        line = line.removesuffix("\r")
        is_text = line.isprintable() or not any(
            "\udc80" <= character <= "\udcff" or character == "\0" for character in line
        )
        yield line if is_text else None


def show_details(best: Translation, flags: tuple[str, ...]) -> None:
    """Say below an answer, in grey, its score and what looks wrong."""
    words = ", ".join(flag.replace("_", " ") for flag in flags)
    text = f"  score {best.score:.2f}" + (f"; check: {words}" if words else "")
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    logs.prompt(f"{text}\n" if plain else f"\x1b[2m{text}\x1b[0m\n")
