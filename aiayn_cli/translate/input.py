"""Reads the lines to translate from a terminal, a pipe or a file; the prompt, and what it shows below an answer."""

import fcntl
import io
import math
import os
import re
import sys
import termios
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.processes import gather
from aiayn_cli.text.compression import CHUNK_BYTES, DAMAGE, PipedBytes, compression_of_name
from aiayn_cli.text.lines import RecordReader, count_lines_ahead, display_name, is_blank, open_text_bytes
from aiayn_cli.translate.line_translator import Translation
from aiayn_cli.translate.options import TextOptions

_PROMPT = "> "
_NOT_TEXT = re.compile("[\0\udc80-\udcff]")  # NUL, and bytes that are not UTF-8
_LINES_TOGETHER = 2_000  # sorted by length and translated before the first of them is written

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class InputLine:
    """One record of the input."""

    number: int  # of its line, from 1
    text: str  # what to translate; "" for a blank record, or one that could not be read
    prefix: str = ""  # how the translation begins ("" = free); or the translation itself, where that is given
    error: str = ""  # why the record could not be read; "" if it could
    fields: Mapping[str, Any] | None = None  # for JSON, all fields, or only "id" if there is an error


ReadRecord = Callable[[int, str, str], InputLine]  # number, record, prefix from a second file


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
        self._second_is_target, self._second_name = second_is_target, display_name(options.prefix or "")
        self._second: Iterator[str | None] | None = None
        self._second_record: str | None = None  # the last one
        if second is not None:
            self._second = iter(RecordReader(second, self._second_name, keep_going=second_is_target))

    def blocks(self) -> Iterator[list[InputLine]]:
        """Give the lines as they arrive; DataError if the second file has another number of lines."""
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
            raise self.other_length(f"{self.name} has {logs.counted(self.lines_read, 'line')}", self._second_name)

    def groups(self, workers: int = 1) -> Iterator[Sequence[InputLine]]:
        """Give the lines in groups to translate together; what arrived together is shared among the workers."""
        if self.is_typed:
            for record in typed_records("score its translation" if self._second_is_target else "translate it"):
                self.lines_read += 1
                yield [self._line(record)]
            self._end_second()
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

    def droppable(self, work: Callable[[Item], Result]) -> Callable[[Item], Result | None]:
        """Let Ctrl-C during the work on a typed line drop it: None, as if it had never been typed."""

        def answer(item: Item) -> Result | None:
            try:
                return work(item)
            except KeyboardInterrupt as error:
                if not self.is_typed or type(error) is not KeyboardInterrupt:  # SIGTERM is another kind of it
                    raise
            logs.prompt("\n")
            self.lines_read -= 1
            if self._second is not None:
                self._second = chain([self._second_record], self._second)
            return None

        return answer

    def _line(self, record: str | None) -> InputLine:
        number, second = self.lines_read, ""
        if self._second is not None:
            try:
                self._second_record = next(self._second)
            except StopIteration:
                lines = logs.counted(number - 1, "line")
                raise self.other_length(f"{self._second_name} has {lines}", self.name) from None
            second = self._second_record or ""
        if record is None:
            return InputLine(number, "", second, "not valid UTF-8, or contains a NUL byte")
        if is_blank(record):
            return InputLine(number, "", second)
        line = self._read(number, record, second)
        return replace(line, prefix=second) if self._second_is_target else line

    def other_length(self, what: str, longer: str, lines: str = "more") -> DataError:
        hint = "give one prefix for each line; an empty line leaves its translation free"
        if self._second_is_target:
            hint = "give one translation for each line"
        return DataError(f"{what}, but {longer} has {lines}", hint)


@contextmanager
def open_input(options: TextOptions, read: ReadRecord, *, second_is_target: bool = False) -> Iterator[InputLines]:
    """Open the text and what belongs to it; DataError if that is impossible, or two files differ in length."""
    with ExitStack() as files:
        if options.lines:
            if (given := len(options.lines)) > 1 and not any(" " in line for line in options.lines):
                logs.notice(f"{given:,} arguments are {given:,} lines; put a sentence in quotes")
            text = "".join(f"{line}\n" for line in options.lines)
            file: BinaryIO = io.BytesIO(text.encode("utf-8", "surrogateescape"))
            if str(options.prefix) != "-" and _stdin_has_data():
                logs.notice("stdin is ignored, because text is given as an argument")
        else:
            file = files.enter_context(_opened(options.source))
        second = files.enter_context(_opened(options.prefix)) if options.prefix else None
        lines = InputLines(options, read, file, second, second_is_target=second_is_target)
        if options.prefix and second is not None:
            count = text.count("\n") if options.lines else _count_lines(file, options.source)
            other = _count_lines(second, options.prefix)
            if count is not None and other is not None and count != other:
                what = f"{display_name(options.prefix)} has {logs.counted(other, 'line')}"
                raise lines.other_length(what, lines.name, f"{count:,}")
        yield lines


def is_typed(options: TextOptions) -> bool:
    return not options.lines and options.source == "-" and sys.stdin.isatty()


def _stdin_has_data() -> bool:
    """Whether stdin is a file or pipe with unread data; never waits for it."""
    waiting = array("i", [0])
    try:
        fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, waiting)
    except (OSError, ValueError):  # closed, or a device such as /dev/null
        return False
    return waiting[0] != 0 and not sys.stdin.isatty()


def _count_lines(file: BinaryIO, source: str | Path) -> int | None:
    """The lines of a file; None for a pipe, or where compressed bytes are damaged."""
    if not Path(source).is_file() or compression_of_name(Path(source)) is None:
        return count_lines_ahead(file)
    count, last = 0, b"\n"
    with suppress(*DAMAGE), open_text_bytes(source) as unpacked:
        while chunk := unpacked.read(CHUNK_BYTES):
            count, last = count + chunk.count(b"\n"), chunk[-1:]
        return count + (last != b"\n")
    return None


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


def typed_records(purpose: str) -> Iterator[str | None]:
    """Prompt for lines until Ctrl-D; None for one that is not UTF-8. Ctrl-C drops the line.

    It prompts when the next record is requested, after the answer to the previous one.
    """
    logs.notice(f"type a line to {purpose}; Ctrl-C drops the line, Ctrl-D ends")
    edits = sys.stdout.isatty() and sys.stdin is sys.__stdin__  # else input() would write its prompt to stdout
    if edits:
        with suppress(ImportError):  # some builds of Python lack it
            import readline  # makes input() edit lines

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
    """Show the score and the flags below an answer, in grey."""
    remarks = [f"score {best.score:.2f}"] if math.isfinite(best.score) else []
    remarks += ["check: " + ", ".join(flag.replace("_", " ") for flag in flags)] if flags else []
    if not remarks:
        return
    text = f"  {'; '.join(remarks)}"
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    logs.prompt(f"{text}\n" if plain else f"\x1b[2m{text}\x1b[0m\n")
