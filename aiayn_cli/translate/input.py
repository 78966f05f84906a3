"""How the lines to translate arrive, from a terminal, a pipe or a file, and what a person sees of that."""

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from aiayn_cli import logs
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.processes import gather
from aiayn_cli.text.compression import PipedBytes
from aiayn_cli.text.lines import RecordReader, count_lines_ahead, display_name, open_text_bytes
from aiayn_cli.translate.formats import FORMATS, InputLine
from aiayn_cli.translate.options import TextOptions

_LINES_TOGETHER = 2_000  # sorted by length and translated before the first of them is written
_PROMPT = "> "

Answer = TypeVar("Answer")


class InputLines:
    """The lines of one input, each with the record of a second file that goes with it.

    Args:
        options: what is read.
        file: its bytes.
        second: file with one record for each line, options.prefix or the given translations; None = none.
        second_is_target: whether these are translations: the "prefix" of a JSON object does not count then, and a
            record that is no text keeps its place.

    Attributes:
        name: of the input, for messages.
        format: of the input.
        lines_read: how many have arrived so far, including those that wait in another thread.
    """

    def __init__(
        self, options: TextOptions, file: BinaryIO, second: BinaryIO | None = None, *, second_is_target: bool = False
    ) -> None:
        self.name, self.format = display_name(options.source), FORMATS[options.format]
        self.lines_read = 0
        self._file, self._is_typed = file, is_typed(options.source)
        self._reader = RecordReader(cast(BinaryIO, PipedBytes(file, self.name)), self.name, keep_going=True)
        self._second_is_target = second_is_target
        self._second = None
        if second is not None:
            self._second = RecordReader(second, str(options.prefix), keep_going=second_is_target)
        self._second_records = iter(self._second or ())

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
                    block.append(self._line(self.lines_read, record))
                except DataError:
                    yield block  # what came before it is not lost
                    raise
            yield block
        if self._second is not None and next(self._second_records, _END) is not _END:
            raise self._other_length("more than", self.lines_read)

    def groups(self, workers: int = 1) -> Iterator[Sequence[InputLine]]:
        """Give the lines in groups to translate together; what arrived together is shared among the workers."""
        for group in gather(self.blocks(), _LINES_TOGETHER * workers):
            size = -(-len(group) // workers)
            for start in range(0, len(group), size):
                yield group[start : start + size]

    def followed(self, answers: Iterable[tuple[int, Answer]], doing: str = "translating") -> Iterator[Answer]:
        """Give the answers, each of so many lines, and show progress: on a terminal a prompt after each."""
        if self._is_typed:
            yield from self._prompted(answers)
            return
        with logs.progress(doing, total=count_lines_ahead(self._file), unit="lines") as progress:
            for count, answer in answers:
                yield answer
                progress.advance(count)

    def _prompted(self, answers: Iterable[tuple[int, Answer]]) -> Iterator[Answer]:
        logs.notice("type a line to translate it; Ctrl-D ends")
        try:
            logs.prompt(_PROMPT)
            answered = 0
            for count, answer in answers:
                yield answer
                answered += count
                if answered >= self.lines_read:  # of lines that were pasted others are waiting
                    logs.prompt(_PROMPT)
        except GeneratorExit:  # an answer had a problem; there was no prompt after it
            return
        except BaseException:
            logs.prompt("\n")  # Ctrl-C
            raise
        logs.prompt("\n")  # Ctrl-D

    def _line(self, number: int, record: str | None) -> InputLine:
        second = ""
        if self._second is not None:
            found = next(self._second_records, _END)
            if isinstance(found, _End):
                raise self._other_length("only", number - 1)
            second = found or ""
        return self.format.read(number, record, second, own_prefix=not self._second_is_target)

    def _other_length(self, how_many: str, lines: int) -> DataError:
        assert self._second is not None
        hint = "give one prefix for each line; an empty line leaves its translation free"
        if self._second_is_target:
            hint = "give one translation for each line"
        return DataError(f"{self._second.name} has {how_many} {lines:,} lines, other than {self.name}", hint)


class _End:
    pass


_END = _End()


@contextmanager
def open_input(options: TextOptions, *, second_is_target: bool = False) -> Iterator[InputLines]:
    with ExitStack() as files:
        file = files.enter_context(_opened(options.source))
        second = files.enter_context(_opened(options.prefix)) if options.prefix else None
        yield InputLines(options, file, second, second_is_target=second_is_target)


def check_input(options: TextOptions) -> None:
    """Refuse stdin for two inputs."""
    if options.source == "-" == str(options.prefix):
        raise UsageError("stdin cannot be two inputs at once", "give one of them as a file")


def is_typed(source: str) -> bool:
    return source == "-" and sys.stdin.isatty()


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
