"""How the lines to translate arrive, from a terminal, a pipe or a file, and what a person sees of that."""

import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.processes import gather
from aiayn_cli.text.compression import PipedBytes
from aiayn_cli.text.lines import RecordReader, count_lines_ahead, display_name, is_blank, open_text_bytes
from aiayn_cli.translate.line_translator import Translation
from aiayn_cli.translate.options import TextOptions

_PROMPT = "> "
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")  # NUL, and bytes that are not UTF-8
_LINES_TOGETHER = 2_000  # sorted by length and translated before the first of them is written

Item = TypeVar("Item")


@dataclass(frozen=True)
class InputLine:
    """One record of the input."""

    number: int  # of its line, from 1
    text: str  # what to translate; "" for a blank record, or one that could not be read
    prefix: str = ""  # how the translation begins ("" = free); or the translation itself, where that is given
    error: str = ""  # why the record could not be read; "" if it could
    fields: Mapping[str, Any] | None = None  # for JSON, all fields, or only "id" if there is an error


ReadRecord = Callable[[int, str, str], InputLine]  # LineFormat.read()


class InputLines:
    """The lines of one input, each with the record of a second file that belongs to it.

    Args:
        read: of the source's format.
        file: the source's bytes.
        second: file with one record for each line: prefixes, or given translations; None = none.
        second_is_target: whether these are translations: they replace the prefix that a record has itself, and can be
            unreadable.
    """

    def __init__(
        self,
        options: TextOptions,
        read: ReadRecord,
        file: BinaryIO,
        second: BinaryIO | None = None,
        *,
        second_is_target: bool = False,
    ) -> None:
        self.name = "the command line" if options.lines else display_name(options.source)  # for messages
        self.lines_read = 0  # including those that wait in another thread
        self.is_typed = is_typed(options)
        self._read, self._file = read, file
        self._reader = RecordReader(cast(BinaryIO, PipedBytes(file, self.name)), self.name, keep_going=True)
        self._second_is_target, self._second_name = second_is_target, str(options.prefix)
        self._second = None
        if second is not None:
            self._second = iter(RecordReader(second, self._second_name, keep_going=second_is_target))

    def blocks(self) -> Iterator[list[InputLine]]:
        """Give the lines as they arrive.

        Raises:
            DataError: the second file has another number of lines.
        """
        for records in self._reader.blocks():
            block = []
            for record in records:
                self.lines_read += 1
                try:
                    block.append(self._line(record))
                except DataError:
                    yield block  # the lines before the error are not lost
                    raise
            yield block
        self._end_second()

    def _end_second(self) -> None:
        for _ in self._second or ():
            raise self._other_length("more than", self.lines_read)

    def groups(self, workers: int = 1) -> Iterator[Sequence[InputLine]]:
        """Give the lines in groups to translate together; what arrived together is shared among the workers."""
        if self.is_typed:
            yield from self._typed()
            return
        for group in gather(self.blocks(), _LINES_TOGETHER * workers):
            size = -(-len(group) // workers)
            for start in range(0, len(group), size):
                yield group[start : start + size]

    def followed(self, answers: Iterable[tuple[int, Item]], doing: str = "translating") -> Iterator[Item]:
        """Give answers, each with its number of lines, and show progress, unless the lines are typed."""
        if self.is_typed:
            yield from (answer for _, answer in answers)
            return
        with logs.progress(doing, total=count_lines_ahead(self._file), unit="lines") as progress:
            for count, answer in answers:
                yield answer
                progress.advance(count)

    def _typed(self) -> Iterator[Sequence[InputLine]]:
        for record in typed_records():
            self.lines_read += 1
            yield [self._line(record)]
        self._end_second()

    def _line(self, record: str | None) -> InputLine:
        number, second = self.lines_read, ""
        if self._second is not None:
            try:
                second = next(self._second) or ""
            except StopIteration:
                raise self._other_length("only", number - 1) from None
        if record is None:
            return InputLine(number, "", second, "not UTF-8, or holds NUL")
        if is_blank(record):
            return InputLine(number, "", second)
        line = self._read(number, record, second)
        return replace(line, prefix=second) if self._second_is_target else line

    def _other_length(self, how_many: str, lines: int) -> DataError:
        hint = "give one prefix for each line; an empty line leaves its translation free"
        if self._second_is_target:
            hint = "give one translation for each line"
        return DataError(
            f"{self._second_name} has {how_many} {logs.counted(lines, 'line')}, other than {self.name}", hint
        )


@contextmanager
def open_input(options: TextOptions, read: ReadRecord, *, second_is_target: bool = False) -> Iterator[InputLines]:
    with ExitStack() as files:
        if options.lines:
            text = "".join(f"{line}\n" for line in options.lines)
            file: BinaryIO = io.BytesIO(text.encode("utf-8", "surrogateescape"))
        else:
            file = files.enter_context(_opened(options.source))
        second = files.enter_context(_opened(options.prefix)) if options.prefix else None
        yield InputLines(options, read, file, second, second_is_target=second_is_target)


def is_typed(options: TextOptions) -> bool:
    return not options.lines and options.source == "-" and sys.stdin.isatty()


@contextmanager
def _opened(source: str | Path) -> Iterator[BinaryIO]:
    """Open a text file for reading bytes as they arrive; "-" is stdin."""
    file = open_text_bytes(source)
    try:
        # Unbuffered: a thread that waits for a slow pipe inside a buffer would hold its lock when Ctrl-C closes it.
        yield cast(BinaryIO, file.raw) if isinstance(file, io.BufferedReader) else file
    finally:
        if str(source) != "-":
            file.close()


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
        except KeyboardInterrupt as error:
            logs.prompt("\n")
            if type(error) is not KeyboardInterrupt:  # SIGTERM
                raise
            continue
        yield None if _NOT_TEXT.search(line) else line.removesuffix("\r")


def show_details(best: Translation, flags: tuple[str, ...]) -> None:
    """Say below an answer, in grey, its score and what looks wrong."""
    words = ", ".join(flag.replace("_", " ") for flag in flags)
    text = f"  score {best.score:.2f}" + (f"; check: {words}" if words else "")
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    logs.prompt(f"{text}\n" if plain else f"\x1b[2m{text}\x1b[0m\n")


class WorkTime:
    """Counts the seconds in which there is work, without those of waiting for a typist or a slow pipe.

    There is work from when a task is taken until its answer is written; overlaps count once. Tasks can be taken in
    another thread than the one that writes their answers.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open = 0  # tasks taken whose answers are not written
        self._since = self._before = 0.0

    def taken(self, tasks: Iterable[Item]) -> Iterator[Item]:
        for task in tasks:
            with self._lock:
                if not self._open:
                    self._since = self._clock()
                self._open += 1
            yield task

    def finished(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                self._before += self._clock() - self._since

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._before + (self._clock() - self._since if self._open else 0.0)
