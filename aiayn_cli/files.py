"""Files that are whole or not there: locks, atomic writes, hashes, free space, output files of users."""

import fcntl
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from aiayn_cli.errors import AiaynError

UNFINISHED = ".unfinished-"  # prefix of files and folders that are not whole yet
_SPECIAL_FILES = ("/dev/", "/proc/")  # devices, and links to what a process has open


def flush_to_disk(path: Path) -> None:
    """Wait until a file or folder would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hash_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_free_space(folder: Path, needed: int) -> None:
    """Raise an OSError with both numbers unless `needed` bytes are free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"it takes {needed >> 20:,} MB, and {free >> 20:,} MB are free")


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file durably: the old one stays until the new one is on the disk. An OSError names the file."""
    temporary = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        flush_to_disk(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk's error names no file


def remove(path: Path) -> None:
    """Remove a folder, or a link to one, as far as possible."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill, which is flushed to disk and replaces `path` at the end; an error removes it."""
    temporary = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        remove(temporary)
        temporary.mkdir(parents=True)
        yield temporary
        for item in (*temporary.rglob("*"), temporary):
            flush_to_disk(item)
        replace_folder(temporary, path)
    finally:
        remove(temporary)


def replace_folder(new: Path, path: Path) -> None:
    """Rename a folder to a name that may be taken; the old folder is removed once the new one is in place."""
    if path.exists():
        old = path.with_name(f"{UNFINISHED}old-{path.name}")
        remove(old)
        path.rename(old)
        try:
            new.rename(path)
        except OSError:
            old.rename(path)
            raise
        remove(old)
    else:
        new.rename(path)
    flush_to_disk(path.parent)


def open_locked(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a file for appending, created if missing, and lock out other processes until it is closed.

    The holder may rename the file, or its folder, before closing it. BlockingIOError: another process holds it.
    """
    while True:
        file = path.open("ab", buffering=buffering)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if isinstance(error, BlockingIOError):  # otherwise a file system without locks
                    raise
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
        except BaseException:
            file.close()
            raise
        file.close()  # another process finished and renamed it between opening and locking


# ---- output files that a user names


def check_writable(path: Path) -> None:
    """Refuse a name under which no file can be written with an AiaynError, before any work is done."""
    try:
        unfinished = unfinished_path(path)
        folder = unfinished.parent
        missing = next((each for each in (path.parent, folder) if not each.is_dir()), None)  # a link can lead elsewhere
        if path.is_dir():
            why, hint = "it is a folder", "name a file in it"
        elif missing is not None:
            why = f"{missing} is not a folder" if missing.exists() else f"there is no folder {missing}"
            hint = "create it, or give another name"
        elif unfinished.is_dir():
            why, hint = f"the temporary name {unfinished} is a folder", "give another name"
        elif not os.access(unfinished if unfinished.exists() else folder, os.W_OK):
            why, hint = "no permission", "give another name"
        else:
            return
    except (OSError, RuntimeError) as error:  # such as a name that is too long, or a loop of links
        why, hint = getattr(error, "strerror", None) or "a link leads to itself", "give another name"
    raise AiaynError(f"cannot write {path}: {why}", hint)


def unfinished_path(path: Path) -> Path:
    """The temporary path of a file, renamed when complete; a device or a named pipe is its own."""
    if str(path.absolute()).startswith(_SPECIAL_FILES) or (path.exists() and not path.is_file()):
        return path
    place = path.resolve()  # write through a symbolic link instead of replacing it
    return place.with_name(f"{place.name}.unfinished")


def open_unfinished(path: Path) -> BinaryIO:
    """Open a file under its temporary name, empty; an AiaynError says if another process is writing it."""
    unfinished = unfinished_path(path)
    if unfinished == path:
        return path.open("wb")
    try:
        file = open_locked(unfinished)
    except BlockingIOError:
        problem = f"cannot write {path}: another process is writing {unfinished}"
        raise AiaynError(problem, "wait for it, or give another name") from None
    file.truncate(0)
    return file


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a complete file its name."""
    if unfinished != path:
        unfinished.replace(path.resolve())


def write_output(path: Path, text: str, hint: str) -> None:
    """Write a text to a file, device or pipe; an old file stays until the new one is complete.

    Characters that UTF-8 cannot encode become "?"; `hint` is that of an AiaynError.
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


def read_place(path: Path, inputs: Iterable[str | Path | None]) -> Path | None:
    """The input that writing a file would overwrite: the file itself, or its temporary name; None if there is none.

    Args:
        path: a file to write, which check_writable() allows.
        inputs: names of files to read; "-" is stdin.
    """
    read = [status for name in inputs if name is not None and (status := _status(str(name)))]
    for place in (path, unfinished_path(path)):
        status = _status(place)
        if status and stat.S_ISREG(status.st_mode) and any(os.path.samestat(status, each) for each in read):
            return place
    return None


def _status(name: str | Path) -> os.stat_result | None:
    with suppress(OSError, ValueError):  # missing, or not a valid path
        return os.fstat(sys.stdin.fileno()) if name == "-" else Path(name).stat()
    return None
