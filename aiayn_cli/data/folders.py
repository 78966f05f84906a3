"""A folder that appears whole or not at all."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiayn_cli.errors import DataError

_LOCK = ".lock"  # its lock goes with the process that holds it, even after kill -9


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder under a temporary name beside `path`, and rename it at the end.

    Killed at any moment, this leaves no `path`, and at most a folder PATH.partial that the next call clears away.
    An exception clears it away at once.

    Args:
        path: must not exist, or be an empty folder.
    Yields:
        The folder to write into.
    Raises:
        DataError: `path` holds something, another process is writing it, it cannot be made, or the disk is full.
    """
    partial = path.with_name(path.name + ".partial")
    if partial.exists() and not _is_ours(partial):
        raise DataError(f"{partial} is in the way: it is not ours", "rename it, or give another --out")
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise DataError(f"{path} exists already", "remove it, or give another --out")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        lock = (partial / _LOCK).open("ab")
    except OSError as error:
        raise DataError(f"{path} cannot be made: {error.strerror}", "give another --out") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{path} is being written by another process", "wait for it, or give another --out"
            ) from None
        try:
            _clear(partial, keep=_LOCK)
            yield partial
            for file in partial.iterdir():
                _flush_to_disk(file)
            _flush_to_disk(partial)
            partial.rename(path)  # replaces an empty folder
            _flush_to_disk(path.parent)
            (path / _LOCK).unlink()  # last, since it is what tells our folder from others
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                problem = f"{path} does not fit on its disk: {error.strerror}"
                raise DataError(problem, "free some space, or give another --out") from error
            raise


def _is_ours(partial: Path) -> bool:
    return partial.is_dir() and not partial.is_symlink() and ((partial / _LOCK).exists() or not any(partial.iterdir()))


def _clear(folder: Path, keep: str) -> None:
    """Delete what a killed run left."""
    for entry in folder.iterdir():
        if entry.name == keep:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _flush_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
