"""Files that a user names for results: whole or not there, and never in the place of a device or of an input."""

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from aiayn_cli.errors import AiaynError

_NO_FILES = ("/dev/", "/proc/")  # what is there is a device, or a link to what some process has open


def unfinished_path(path: Path) -> Path:
    """Where a file is written until it is whole, and takes its place; a device or a named pipe is written to itself."""
    if str(path.absolute()).startswith(_NO_FILES) or (path.exists() and not path.is_file()):
        return path
    place = path.resolve()  # a symbolic link stays one
    return place.with_name(f"{place.name}.unfinished")


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a whole file its name."""
    if unfinished != path:
        unfinished.replace(path.resolve())


def write_whole(path: Path, text: str, hint: str) -> None:
    """Write a text; what was there before stays until the new one is whole.

    Args:
        path: a file, a device or a named pipe.
        text: what has no place in UTF-8 becomes a question mark.
        hint: what to do where that is not possible.
    Raises:
        AiaynError: it cannot be written.
    """
    unfinished = unfinished_path(path)
    try:
        unfinished.write_text(text, encoding="utf-8", errors="replace")
        put_in_place(unfinished, path)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AiaynError(f"cannot write {path}: {error.strerror}", hint) from error
    finally:
        if unfinished != path:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)


def is_read(path: Path, inputs: Iterable[str | Path | None]) -> bool:
    """Whether a file is one of those that are read.

    Args:
        path: a file to write.
        inputs: names of files to read; "-" is stdin, None is none.
    """
    try:
        there = path.stat()
    except OSError:  # a new one
        return False
    if not stat.S_ISREG(there.st_mode):
        return False
    return any(_is_same(there, name) for name in inputs if name is not None)


def _is_same(there: os.stat_result, name: str | Path) -> bool:
    with suppress(OSError, ValueError):  # not there, or no file of the system
        found = os.fstat(sys.stdin.fileno()) if str(name) == "-" else Path(name).stat()
        return os.path.samestat(there, found)
    return False
