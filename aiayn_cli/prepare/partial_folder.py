"""A folder that appears whole or not at all, and that an interrupted call goes on with where it stopped."""

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
_STEPS = ".steps"  # what steps keep: their markers, and text on its way
_PLAN = "plan.json"


class Steps:
    """The steps of a longer work in a folder, each with a marker once it is done and its files are on the disk.

    Args:
        folder: where the work is done.
        plan: all that the result depends on; what was done after another plan is removed.

    Attributes:
        folder: where the results go.
        scratch: a folder for files that are in the way once all is done.
    """

    def __init__(self, folder: Path, plan: Mapping[str, Any]) -> None:
        self.folder = folder
        self.scratch = folder / _STEPS
        wanted = _to_json(plan)
        try:
            found = (self.scratch / _PLAN).read_bytes()
        except OSError:
            found = b""
        self.resumed = found == wanted
        if not self.resumed:
            _clear(folder, keep=_LOCK)
            self.scratch.mkdir()
            write_whole(self.scratch / _PLAN, wanted)

    def result(self, name: str) -> dict[str, Any] | None:
        """What a step gave, or None where it is not done yet.

        Raises:
            DataError: the marker is not as `finish` wrote it.
        """
        path = self.scratch / f"{name}.json"
        try:
            sha256, _, content = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        if hashlib.sha256(content).hexdigest().encode() != sha256:
            raise damaged(path, "it is not as it was written")
        result: dict[str, Any] = json.loads(content)
        return result

    def finish(self, name: str, result: Mapping[str, Any], files: Iterable[Path] = ()) -> dict[str, Any]:
        """Mark a step as done.

        Args:
            name: of the step.
            result: what it gave, in JSON's types.
            files: what it wrote.
        Returns:
            The result as `result` will give it.
        """
        paths = list(files)
        for path in (*paths, *{path.parent for path in paths}):
            flush_to_disk(path)
        content = _to_json(result)
        sha256 = hashlib.sha256(content).hexdigest().encode()
        write_whole(self.scratch / f"{name}.json", sha256 + b"\n" + content)
        again: dict[str, Any] = json.loads(content)
        return again


def damaged(path: Path, why: str) -> DataError:
    """Say that a file on the way is not what an earlier step has left; `new_folder` then clears all of it away."""
    return DataError(f"{path} is damaged: {why}", "run the same command again: it starts over")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Fill a folder under a temporary name beside `path`, and rename it at the end.

    Interrupted at any moment, by kill -9 or a full disk, this leaves no `path`, but a folder PATH.partial that the next
    call is given again; `Steps` finds out what of it is done. An error in the data clears it away.

    Args:
        path: must not exist, or be an empty folder.
    Yields:
        The folder to write into.
    Raises:
        DataError: `path` holds something, another process is writing it, it cannot be made, or the disk is full.
    """
    place = Path(os.path.realpath(path))  # a link stays, and what it leads to is made
    _refuse_taken(path, place)
    partial = place.with_name(place.name + ".partial")
    if partial.exists() and not _is_ours(partial):
        raise DataError(f"{partial} is in the way: it is not ours", "rename it, or give another --out")
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
                    _clear(partial, keep=_LOCK)
                    shutil.rmtree(partial)
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                problem = f"{path} does not fit on its disk: {error.strerror}"
                hint = "free some space: the same command goes on from there; or give another --out"
                raise ResumableError(problem, hint) from error
            raise
        remove_leftovers(place)


def remove_leftovers(path: Path) -> None:
    """Remove what steps kept in a folder that is finished, unless it cannot be changed."""
    shutil.rmtree(path / _STEPS, ignore_errors=True)
    with suppress(OSError):
        (path / _LOCK).unlink()  # last, since it is what tells our folder from others


def _to_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _refuse_taken(path: Path, place: Path) -> None:
    """Make sure that a new folder can take the place that `path` leads to."""
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise DataError(f"{path} exists already", "remove it, or give another --out")
    if place.is_mount() or place == Path.cwd():
        what = "the place of a whole disk" if place.is_mount() else "the folder that the command runs in"
        raise DataError(f"{path} is {what}", f"give a folder inside it, such as --out {path / 'prepared'}")


def _make_and_lock(partial: Path, path: Path) -> BinaryIO:
    """Make a folder, and give the open file that keeps other processes out of it."""
    while True:
        try:
            partial.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{path} cannot be made: {error.strerror}", "give another --out") from error
        try:
            return open_locked(partial / _LOCK)
        except BlockingIOError:
            raise DataError(
                f"{path} is being written by another process", "wait for it, or give another --out"
            ) from None
        except FileNotFoundError:
            continue  # another process has just renamed or removed the folder
        except OSError as error:
            raise DataError(f"{path} cannot be made: {error.strerror}", "give another --out") from error


def _is_ours(partial: Path) -> bool:
    return partial.is_dir() and not partial.is_symlink() and ((partial / _LOCK).exists() or not any(partial.iterdir()))


def _clear(folder: Path, keep: str) -> None:
    for entry in folder.iterdir():
        if entry.name == keep:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
