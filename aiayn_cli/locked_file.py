"""A file that one process at a time writes, and renames when it is whole."""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO


def open_locked(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a file for writing at its end, and keep other processes from doing so until it is closed.

    Args:
        path: the file, which is made if there is none. Who has it may rename it, or its folder, before closing it.
        buffering: as in open().
    Raises:
        BlockingIOError: another process has it.
        FileNotFoundError: its folder is not there, or not any more.
        OSError: it cannot be written.
    """
    while True:
        file = path.open("ab", buffering=buffering)
        try:
            _lock(file)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()  # between opening and locking, another process has finished, and renamed it


def _lock(file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks
