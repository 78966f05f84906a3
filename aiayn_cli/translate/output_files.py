"""Where results are written: to stdout, or to files that appear under their names when they are complete."""

import errno
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.files import check_writable, open_unfinished, put_in_place, read_place, unfinished_path
from aiayn_cli.text.lines import write_records
from aiayn_cli.translate.options import OutputOptions


def check_outputs(options: OutputOptions, *inputs: str | Path | None) -> None:
    """Refuse outputs that cannot be written, are compressed or "-", occur twice, or are inputs too (None = no file)."""
    named = [path for path in (options.path, options.report, options.attention) if path is not None]
    for number, output in enumerate(named):
        if str(output) == "-":
            raise UsageError("- is stdout, which is only for translations", "name a file")
        if output.suffix.lower() in (".gz", ".xz", ".bz2", ".zst"):
            raise UsageError(f"{output}: output is not compressed", "drop the suffix, or compress stdout")
        check_writable(output)
        for other in named[:number]:
            if output.resolve() == other.resolve():
                raise UsageError(f"{output} cannot hold two outputs", "give each its own file")
            if output.resolve() == unfinished_path(other) or unfinished_path(output) == other.resolve():
                raise UsageError(f"{output} and {other} would be written to the same file", "rename one of them")
        place = read_place(output, inputs)
        if place is not None:
            first = "" if place == output else f" ({output} is written there until it is complete)"
            raise UsageError(f"{place} is an input and cannot also be an output{first}", "give another name")


@contextmanager
def open_writer(output: Path | None, *, silent: bool = False) -> Iterator[Callable[[Iterable[str]], None]]:
    """Give a function that writes records and flushes them, to stdout or a file that appears at the end.

    Without a file, a silent one writes nothing. AiaynError if the file cannot be written.
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
        hint = "free some space, or write to another disk" if is_full else "give another name"
        raise AiaynError(f"cannot write {output}: {error.strerror}", hint) from error


def say_unfinished(error: BaseException, result: Any, take: Callable[[Any], None] | None) -> None:
    """Say what was done before an error, and give it to `take`, with the reason why it stopped."""
    if isinstance(error, BrokenPipeError):  # its reader wants to hear no more
        return
    result.stopped = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
    logs.notice(f"{result.summary()}; then it was stopped" if result.lines else "stopped before the first line")
    try:
        if take is not None:
            take(result)
    except OSError as further:  # must not hide the error itself
        logs.warning(str(further))
