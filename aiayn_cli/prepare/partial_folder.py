"""A folder that appears complete or not at all; the next call resumes interrupted work."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from aiayn_cli.errors import AiaynError, DataError, ResumableError, Terminated
from aiayn_cli.files import flush_to_disk, open_locked, write_whole

_LOCK = ".lock"  # its lock goes with the process that holds it, even after kill -9
_STEPS = ".steps"  # markers of finished steps, and their intermediate files


class Steps:
    """The steps of long work in a folder, each with a marker once it is done and its files are on the disk.

    The plan is all that the result depends on: steps of another plan are removed. Intermediate files go to `scratch`.
    """

    def __init__(self, folder: Path, plan: Mapping[str, Any]) -> None:
        self.folder = folder
        self.scratch = folder / _STEPS
        path, wanted = self.scratch / "plan.json", _to_json(plan)
        self.resumed = path.is_file() and path.read_bytes() == wanted
        if not self.resumed:
            _clear(folder)
            self.scratch.mkdir()
            write_whole(path, wanted)

    def marker(self, name: str) -> Path:
        return self.scratch / f"{name}.json"

    def result(self, name: str) -> dict[str, Any] | None:
        """The result of a finished step, or None; raises DataError if the marker has changed."""
        try:
            sha256, _, content = self.marker(name).read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if hashlib.sha256(content).hexdigest().encode() != sha256:
            raise damaged(self.marker(name), "its content has changed")
        return dict(json.loads(content))

    def finish(self, name: str, result: Mapping[str, Any], files: Iterable[Path] = ()) -> dict[str, Any]:
        """Mark a step as done, after flushing the files that it wrote; return its result as JSON holds it."""
        paths = list(files)
        for path in (*paths, *{path.parent for path in paths}):
            flush_to_disk(path)
        content = _to_json(result)
        write_whole(self.marker(name), hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        return dict(json.loads(content))


def damaged(path: Path, why: str) -> DataError:
    """The error for an intermediate file that has changed; `new_folder` then clears all of them away."""
    return DataError(f"{path} is damaged: {why}", "run the same command again to start over")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write into, PATH.partial, and rename it to `path` at the end.

    Interrupted at any moment, by kill -9 or a full disk, it stays for the next call. A DataError removes it.
    """
    place = Path(os.path.realpath(path))  # a link stays, and its target is made
    _refuse_taken(path, place)
    partial = place.with_name(place.name + ".partial")
    no_folder = partial.is_symlink() or (partial.exists() and not partial.is_dir())
    if no_folder or (partial.exists() and not (partial / _LOCK).exists() and any(partial.iterdir())):
        raise DataError(f"{partial} is in the way: prepare did not create it", "rename it, or give another --out")
    with _make_and_lock(partial, path):
        try:
            _refuse_taken(path, place)  # another process may have finished it before this one had the lock
            yield partial
            for file in partial.iterdir():
                if not file.name.startswith("."):
                    flush_to_disk(file)
            flush_to_disk(partial)
            partial.rename(place)  # replaces an empty folder
            flush_to_disk(place.parent)
        except AiaynError as error:
            if not isinstance(error, ResumableError | Terminated):
                with suppress(OSError):
                    _clear(partial)
                    shutil.rmtree(partial)
            raise
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            problem = f"{path} does not fit on its disk: {error.strerror}"
            hint = "free some space and run the same command again to resume, or give another --out"
            raise ResumableError(problem, hint) from error
        remove_leftovers(place)


def remove_leftovers(path: Path) -> None:
    """Remove intermediate files from a finished folder, unless it is read-only."""
    shutil.rmtree(path / _STEPS, ignore_errors=True)
    with suppress(OSError):
        (path / _LOCK).unlink()  # last, since it marks the folder as made by prepare


def _to_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _refuse_taken(path: Path, place: Path) -> None:
    """Raise DataError unless a new folder can be created at `place`, where `path` leads."""
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise DataError(f"{path} exists and is not an empty folder", "remove it, or give another --out")
    if place.is_mount() or place == Path.cwd():
        what = "the root of a disk" if place.is_mount() else "the folder that the command runs in"
        raise DataError(f"{path} is {what}", f"give a folder inside it, such as --out {path / 'prepared'}")


def _make_and_lock(partial: Path, path: Path) -> BinaryIO:
    """Make a folder; return the open file that keeps other processes out of it."""
    while True:
        try:
            partial.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # if another process has just renamed or removed the folder
                return open_locked(partial / _LOCK)
        except BlockingIOError:
            problem = f"{path} is being written by another process"
            raise DataError(problem, "wait until it ends, or give another --out") from None
        except OSError as error:
            raise DataError(f"{path} cannot be created: {error.strerror}", "give another --out") from error


def _clear(folder: Path) -> None:
    """Remove everything but the lock."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
