"""Where results are written: to stdout, or to files that appear under their names when they are whole."""

import errno
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.files import check_writable, open_unfinished, put_in_place, read_place, unfinished_path
from aiayn_cli.text.lines import write_records
from aiayn_cli.translate.options import OutputOptions

Result = TypeVar("Result")


def check_outputs(options: OutputOptions, *inputs: str | Path | None) -> None:
    """Refuse names that cannot be written or promise what is not written, and one name for two files.

    Args:
        options: the files to write.
        inputs: files to read; "-" is stdin, None no file.
    Raises:
        AiaynError: a file is an input, a compressed one or "-", occurs twice, or cannot be written.
    """
    named = [path for path in (options.path, options.report, options.attention) if path is not None]
    for number, output in enumerate(named):
        if str(output) == "-":
            raise UsageError("- is stdout, which is for translations alone", "name a file")
        if output.suffix.lower() in (".gz", ".xz", ".bz2", ".zst"):
            raise UsageError(f"{output} would hold plain text", "drop the suffix, or write to stdout and compress that")
        check_writable(output)
        for other in named[:number]:
            if output.resolve() == other.resolve():
                raise UsageError(f"{output} cannot hold two outputs", "give each a file of its own")
            if output.resolve() == unfinished_path(other) or unfinished_path(output) == other.resolve():
                raise UsageError(f"{output} and {other} would be written to one file", "give one another name")
        place = read_place(output, inputs)
        if place is not None:
            first = "" if place == output else f", where {output} is written until it is whole"
            raise UsageError(f"{place} is an input, and cannot be an output as well{first}", "give another name")


@contextmanager
def open_writer(output: Path | None, *, silent: bool = False) -> Iterator[Callable[[Iterable[str]], None]]:
    """Give a function that writes records and flushes them.

    Args:
        output: file that appears under its name only when all is done; None = stdout.
        silent: write nothing at all.
    Raises:
        AiaynError: the file cannot be written.
    """
    if output is None:
        yield partial(_write, sys.stdout.buffer, "stdout") if not silent else lambda records: None
        return
    unfinished = unfinished_path(output)
    with _refusal_named(output):
        sink = open_unfinished(output)
    try:
        yield partial(_write, sink, output)
        with _refusal_named(output):
            sink.flush()
            put_in_place(unfinished, output)  # while it is open, and locked
            sink.close()
    except BaseException:
        with suppress(OSError):  # a full disk was already reported
            sink.close()
        if unfinished != output:
            logs.notice(f"what was translated so far is in {unfinished}")
        raise


def _write(sink: BinaryIO, name: Path | str, records: Iterable[str]) -> None:
    with _refusal_named(name):
        write_records(sink, records)
        sink.flush()


@contextmanager
def _refusal_named(output: Path | str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # its reader has seen enough
        raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space there, or give another name" if is_full else "give another name"
        raise AiaynError(f"cannot write {output}: {error.strerror}", hint) from error


def give_unfinished(
    error: BaseException, result: Callable[[str], Result], take: Callable[[Result], None] | None
) -> None:
    """Give `take` the result of what was done before an error, which `result` makes, told why it is not whole."""
    if take is None or isinstance(error, BrokenPipeError):
        return
    why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
    try:
        take(result(why))
    except OSError as further:  # the error itself is what a person should know first
        logs.warning(str(further))
