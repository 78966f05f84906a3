"""What a person reads while a command runs: notices and progress, on stderr, from rank 0 only.

Results never pass through here; they go to stdout (command_line.py).
"""

import io
import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

QUIET, NORMAL, VERBOSE = -1, 0, 1
SECONDS_BETWEEN_LINES = 10.0  # progress in a file or pipe

_level = NORMAL
_rank = 0
_is_silenced: ContextVar[bool] = ContextVar("silenced", default=False)  # of each thread
_write_above_bar: Callable[[str], None] | None = None  # set while a bar is on the terminal


class _Lossy(io.FileIO):
    """Writes to a file; bytes that it does not take are lost without an error."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content) or len(content)
        except OSError:  # the disk is full, the terminal or the reader is gone
            return len(content)


def unfailing(stream: TextIO | None) -> TextIO:
    """Replace stderr (None if closed): hours of work must not end because nobody can read the messages."""
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    try:
        file = _Lossy(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError):  # not a file, as in tests
        return stream
    return io.TextIOWrapper(io.BufferedWriter(file), "utf-8", "backslashreplace", line_buffering=True)


class Progress:
    """How far a piece of work is; this base class shows nothing."""

    def advance(self, n: int = 1) -> None:
        """Count n more units as done."""

    def describe(self, text: str) -> None:
        """Replace the description, such as "training, epoch 2"."""

    def show(self, facts: Sequence[str]) -> None:
        """Replace what is shown next to the count, such as ["loss 2.31", "12,345 target tokens/s"]."""


SILENT = Progress()


def setup(verbosity: int = NORMAL, rank: int = 0) -> None:
    """Choose how much is said: QUIET (warnings only), NORMAL or VERBOSE; and by rank 0 only."""
    global _level, _rank
    _level, _rank = verbosity, rank


@contextmanager
def silenced() -> Iterator[None]:
    """Say nothing in this thread, not even warnings: for use as a library."""
    token = _is_silenced.set(True)
    try:
        yield
    finally:
        _is_silenced.reset(token)


def is_first() -> bool:
    """Whether this process is the one that logs and prints results."""
    return _rank == 0


def verbosity() -> int:
    return _level


def notice(text: str) -> None:
    """Say what was chosen or done: one plain line, unless --quiet."""
    if _level >= NORMAL:
        _write(text)


def next_step(*words: str | Path) -> None:
    """Say what a user would run next; paths are quoted as a shell needs it."""
    notice("next: " + " ".join(shlex.quote(str(word)) if isinstance(word, Path) else word for word in words))


def counted(count: int, noun: str) -> str:
    """A number and its noun: "1 line", "2,000 lines", "3 processes", "4 batches"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith(("s", "tch")) else "s")


def size_text(size: float) -> str:
    """A number of bytes as people write it: "1.70 GB", "16.8 MB"."""
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def prompt(text: str) -> None:
    """Ask a person at a terminal for a line, without a line end; nothing under --quiet or without a terminal."""
    if _level >= NORMAL and _rank == 0 and sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def detail(text: str) -> None:
    """Say what only --verbose shows."""
    if _level >= VERBOSE:
        _write(text)


def warning(text: str) -> None:
    """Say what may be wrong, also under --quiet."""
    _write(f"warning: {text}")


@contextmanager
def progress(description: str, total: int | None = None, unit: str = "", done: int = 0) -> Iterator[Progress]:
    """Show how far a piece of work is: a bar on a terminal, a line every 10 seconds elsewhere, nothing under --quiet.

    Only one may be active at a time.
    Args:
        description: such as "training".
        total: units in all; None if unknown.
        unit: in the plural, such as "updates".
        done: units that an earlier call did, which do not count for the speed.
    """
    if _level < NORMAL or _rank != 0:
        yield SILENT
    elif sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", ""):
        with _bar(description, total, unit, done) as bar:
            yield bar
    else:
        lines = _Lines(description, total, unit, done)
        yield lines
        lines.finish()


class _Lines(Progress):
    """Progress for a file or pipe; work that ends before the first line is due writes none."""

    def __init__(self, description: str, total: int | None, unit: str, done: int) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._done = self._done_before = done
        self._started = self._last_line = time.monotonic()
        self._written, self._done_at_line = False, done
        self._facts: Sequence[str] = ()

    def advance(self, n: int = 1) -> None:
        self._done += n
        now = time.monotonic()
        if now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._write_line(now)

    def describe(self, text: str) -> None:
        self._description = text

    def show(self, facts: Sequence[str]) -> None:
        self._facts = facts

    def finish(self) -> None:
        if self._written and self._done != self._done_at_line:
            self._write_line(time.monotonic())

    def _write_line(self, now: float) -> None:
        seconds = max(now - self._started, 1e-9)
        rate = (self._done - self._done_before) / seconds
        of_total = f" of {self._total:,}" if self._total else ""
        percent = f" ({100 * self._done / self._total:.0f} %)" if self._total else ""
        unit = self._unit.removesuffix("s") if (self._total or self._done) == 1 else self._unit
        count = f"{self._description}: {self._done:,}{of_total} {unit}".rstrip() + percent
        time_left = f"{clock(seconds)} so far"
        if self._total and self._done < self._total and rate > 0:
            time_left = f"{clock((self._total - self._done) / rate)} left"
        _write(", ".join([count, *self._facts, f"{_significant(rate)} a second", time_left]))
        self._written, self._done_at_line = True, self._done


@contextmanager
def _bar(description: str, total: int | None, unit: str, done: int) -> Iterator[Progress]:
    # Rich is loaded here and nowhere else, so that commands without a bar start without it.
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{_significant(task.speed)}/s" if task.speed else "")

    class TableAndFacts(RichProgress):
        """The bar, and a line of facts beneath it."""

        facts: Sequence[str] = ()

        def get_renderables(self) -> Iterable[RenderableType]:
            yield from super().get_renderables()
            if self.facts:
                yield Text("  ".join(self.facts), overflow="fold")

    global _write_above_bar
    console = Console(stderr=True, highlight=False, markup=False)
    counter = "{task.completed:,}/{task.total:,} " if total is not None else "{task.completed:,} "
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn(counter + unit, markup=False),
        RateColumn(),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    with TableAndFacts(*columns, console=console) as rich_progress:
        task = rich_progress.add_task(description, total=total, completed=done)

        class Bar(Progress):
            def advance(self, n: int = 1) -> None:
                rich_progress.advance(task, n)

            def describe(self, text: str) -> None:
                rich_progress.update(task, description=text)

            def show(self, facts: Sequence[str]) -> None:
                rich_progress.facts = facts

        _write_above_bar = lambda text: console.print(_wrapped(text), soft_wrap=True)  # noqa: E731
        try:
            yield Bar()
        finally:
            _write_above_bar = None


def clock(seconds: float) -> str:
    """Write a duration as m:ss or h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _significant(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _write(text: str) -> None:
    if _rank != 0 or _is_silenced.get():
        return
    if _write_above_bar is not None:
        _write_above_bar(text)
    else:
        print(_wrapped(text), file=sys.stderr, flush=True)


def _wrapped(text: str) -> str:
    """Break lines between words where a terminal would break them within; a path or a number stays whole."""
    if not sys.stderr.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 40)
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
