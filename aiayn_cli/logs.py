"""What a person reads while a command runs: notices and progress, on stderr, from rank 0 only.

Results never pass through here; they go to stdout (command_line.py).
"""

import io
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

QUIET, NORMAL, VERBOSE = -1, 0, 1
SECONDS_BETWEEN_LINES = 10.0  # progress in a file or pipe

_level = NORMAL
_rank = 0
_write_above_bar: Callable[[str], None] | None = None  # set while a bar is on the terminal


class _Lossy(io.RawIOBase):
    """Bytes for a file descriptor; those that it does not take are lost without an error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def write(self, content: Any, /) -> int:
        left = bytes(content)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:  # the disk is full, the terminal or the reader is gone
            pass
        return len(content)


def unfailing(stream: TextIO | None) -> TextIO:
    """What takes the place of stderr: work of hours does not end because nobody can read how far it is.

    Args:
        stream: sys.stderr; None where it is closed.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # no file, as in tests
        return stream
    return io.TextIOWrapper(io.BufferedWriter(_Lossy(descriptor)), "utf-8", "backslashreplace", line_buffering=True)


class Progress(Protocol):
    """How far a piece of work is."""

    def advance(self, n: int = 1) -> None:
        """Count n more units as done."""

    def describe(self, text: str) -> None:
        """Replace the description, such as "training, epoch 2"."""

    def show(self, facts: Sequence[str]) -> None:
        """Replace what is said beside the count, such as ["loss 2.31", "12,345 target tokens/s"]."""


def setup(verbosity: int = NORMAL, rank: int = 0) -> None:
    """Choose how much is said.

    Args:
        verbosity: QUIET (warnings only), NORMAL or VERBOSE.
        rank: number of this process; only rank 0 says anything.
    """
    global _level, _rank
    _level, _rank = verbosity, rank


def set_rank(rank: int) -> None:
    """Say which of several processes this is; only rank 0 says anything from now on."""
    global _rank
    _rank = rank


def is_first() -> bool:
    """Whether this process is the one that speaks, and prints results."""
    return _rank == 0


def verbosity() -> int:
    """QUIET, NORMAL or VERBOSE, for another process to be as talkative."""
    return _level


def is_verbose() -> bool:
    """Whether --verbose was given."""
    return _level >= VERBOSE


def notice(text: str) -> None:
    """Say what was chosen or done: one plain line, unless --quiet."""
    if _level >= NORMAL:
        _write(text)


def prompt(text: str) -> None:
    """Ask a person at a terminal for a line: no line end, nothing under --quiet or where stderr is no terminal."""
    if _level >= NORMAL and _rank == 0 and sys.stderr.isatty():
        print(text, end="", file=sys.stderr, flush=True)


def detail(text: str) -> None:
    """Say what only --verbose asks for."""
    if _level >= VERBOSE:
        _write(text)


def warning(text: str) -> None:
    """Say what may be wrong, also under --quiet."""
    _write(f"warning: {text}")


@contextmanager
def progress(description: str, total: int | None = None, unit: str = "", done: int = 0) -> Iterator[Progress]:
    """Show how far a piece of work is: a bar on a terminal, a line every 10 seconds elsewhere, nothing under --quiet.

    Args:
        description: what is being done, such as "training".
        total: units in all; None where nobody knows.
        unit: plural name of the unit, such as "updates".
        done: units of work that goes on where it stopped, which say nothing about the speed.
    Yields:
        What to call as work gets done. One progress at a time.
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


class _Silent:
    def advance(self, n: int = 1) -> None:
        pass

    def describe(self, text: str) -> None:
        pass

    def show(self, facts: Sequence[str]) -> None:
        pass


SILENT: Progress = _Silent()  # shows nothing


class _Lines:
    """Progress for a file or pipe; work that is over before the first line is due leaves none."""

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
        parts = [f"{self._description}: {self._done:,}"]
        if self._total:
            parts[0] += f" of {self._total:,}"
        parts[0] = f"{parts[0]} {self._unit}".rstrip()
        if self._total:
            parts[0] += f" ({100 * self._done / self._total:.0f} %)"
        parts += self._facts
        parts.append(f"{_significant(rate)} a second")
        if self._total and self._done < self._total and rate > 0:
            parts.append(f"{clock((self._total - self._done) / rate)} left")
        else:
            parts.append(f"{clock(seconds)} so far")
        _write(", ".join(parts))
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

        class Bar:
            def advance(self, n: int = 1) -> None:
                rich_progress.advance(task, n)

            def describe(self, text: str) -> None:
                rich_progress.update(task, description=text)

            def show(self, facts: Sequence[str]) -> None:
                rich_progress.facts = facts

        _write_above_bar = lambda text: console.print(text, soft_wrap=True)  # noqa: E731
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
    if _rank != 0:
        return
    if _write_above_bar is not None:
        _write_above_bar(text)
    else:
        print(text, file=sys.stderr, flush=True)
