"""Reads members of archives as streams: nothing is extracted, so nothing can be written outside of a folder.

A member is named by its path in the archive, or else by its file name alone if only one file has it: the same corpus is
packed with and without a folder around it.
"""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.text.compression import compression_of_name

_BUFFER_BYTES = 1 << 20
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile)  # while reading; what else can happen is an OSError, or EOFError
_AGAIN = "the archive may be damaged: remove it and run the command again"


def open_member(archive: Path, member: str) -> BinaryIO:
    """Open a member of a .zip, .tar, .tgz or .tar.* file, unpacked where it is compressed itself (such as .gz).

    Raises DataError; reading raises EOFError or OSError where the archive is cut short or damaged, as gzip does.
    """
    try:
        opened = _open_in_zip(archive, member) if archive.suffix.lower() == ".zip" else _open_in_tar(archive, member)
    except (*_DAMAGE, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{archive} cannot be read: {error}", _AGAIN) from error
    if compression := compression_of_name(Path(member)):
        return _stream(compression.open(opened, f"{archive}:{member}"), opened.close)
    return opened


def _open_in_zip(archive: Path, member: str) -> BinaryIO:
    with ExitStack() as stack:
        file = stack.enter_context(zipfile.ZipFile(archive))
        infos = {info.filename: info for info in file.infolist() if not info.is_dir()}
        info = infos[_choose(archive, member, list(infos))]
        if stat.S_ISLNK(info.external_attr >> 16):
            raise _link_error(archive, info.filename)
        return _stream(file.open(info), stack.pop_all().close)


def _open_in_tar(archive: Path, member: str) -> BinaryIO:
    """A compressed archive is read up to the member; twice if it is only found by its file name."""
    mode: Literal["r:", "r|*"] = "r:" if archive.suffix.lower() == ".tar" else "r|*"
    names = []
    with ExitStack() as stack:
        file = stack.enter_context(tarfile.open(archive, mode, bufsize=_BUFFER_BYTES))
        while (info := file.next()) is not None:
            if info.isdir():
                continue
            if _plain(info.name) == _plain(member):
                content = file.extractfile(info) if info.isreg() else None
                if content is None:
                    raise _link_error(archive, info.name)
                return _stream(content, stack.pop_all().close)
            names.append(info.name)
    return _open_in_tar(archive, _choose(archive, member, names))


def _choose(archive: Path, member: str, names: list[str]) -> str:
    """Find the member among the paths in an archive."""
    exact = [name for name in names if _plain(name) == _plain(member)]
    matching = exact or [name for name in names if name.rpartition("/")[2] == member.rpartition("/")[2]]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise DataError(f"{archive} has {len(matching)} files named {member}: {', '.join(matching)}", _AGAIN)
    problem = f"{archive} has no {member} among its {logs.counted(len(names), 'file')}"
    raise DataError(problem, "check that it is the right archive")


def _plain(name: str) -> str:
    return name.removeprefix("./")


def _link_error(archive: Path, name: str) -> DataError:
    return DataError(f"{archive}: {name} is a link, not a file", "check that it is the right archive")


def _stream(content: Any, close_archive: Callable[[], None]) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Member(content, close_archive), _BUFFER_BYTES))


class _Member(io.RawIOBase):
    """The content of a member; reports damage as gzip does, and closes its archive too."""

    def __init__(self, content: Any, close_archive: Callable[[], None]) -> None:
        self._content = content
        self._close_archive = close_archive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return int(self._content.readinto(buffer))
        except _DAMAGE as error:
            raise OSError(str(error)) from error

    def close(self) -> None:
        if not self.closed:
            self._content.close()
            self._close_archive()
        super().close()
