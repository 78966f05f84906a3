"""Where the bytes of one side come from: a file of the user, or a member of an archive."""

import hashlib
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.corpora.members import open_member
from aiayn_cli.prepare.pairs import hash_file
from aiayn_cli.text.lines import display_name, open_text_bytes


class Input(Protocol):
    """Bytes that can be read as often as one likes."""

    @property
    def name(self) -> str:
        """Say what it is in messages."""

    def open(self) -> BinaryIO:
        """Open it for reading, decompressed."""

    def identity(self) -> dict[str, Any]:
        """Say what content it is, even before an archive is here."""

    def describe(self) -> dict[str, Any]:
        """Say all of it: the identity, and where it was found."""


@dataclass(frozen=True)
class LocalFile:
    """A file of the user, plain or compressed."""

    path: Path
    _sha256: list[str] = field(default_factory=list, repr=False, compare=False)  # hashed once

    @property
    def name(self) -> str:
        """Give the path."""
        return display_name(self.path)

    def open(self) -> BinaryIO:
        """Open it."""
        return open_text_bytes(self.path)

    def identity(self) -> dict[str, Any]:
        """Give the SHA-256 of its bytes."""
        if not self._sha256:
            self._sha256.append(hash_file(self.path))
        return {"sha256": self._sha256[0]}

    def describe(self) -> dict[str, Any]:
        """Add path and size."""
        return {"path": display_name(self.path), "bytes": self.path.stat().st_size, **self.identity()}


@dataclass(frozen=True)
class ArchiveMember:
    """A member of an archive, or an archive that is nothing but one compressed file.

    Attributes:
        archive: what holds it.
        member: its path inside; empty for the archive itself.
        downloads: where archives are.
    """

    archive: Archive
    member: str
    downloads: Downloads

    @property
    def name(self) -> str:
        """Name the archive and the member."""
        return f"{self.archive.file}:{self.member}" if self.member else self.archive.file

    def open(self) -> BinaryIO:
        """Open it; the archive must have been fetched."""
        path = self.downloads.path(self.archive)
        return open_member(path, self.member) if self.member else open_text_bytes(path)

    def identity(self) -> dict[str, Any]:
        """Name archive and member, with the archive's hash as published, if it is; nothing has to be here for that."""
        published = {name: value for name in ("sha256", "md5") if (value := getattr(self.archive, name))}
        return {"archive": self.archive.file, "member": self.member, **published}

    def describe(self) -> dict[str, Any]:
        """Add the address and what was read; another container of the same members may have stood in."""
        path = self.downloads.path(self.archive)
        read = {"file": path.name, "bytes": path.stat().st_size, "sha256": self.downloads.sha256(self.archive)}
        return {**self.identity(), "url": self.archive.urls[0], "read": read}


@dataclass(frozen=True)
class MadeText:
    """Text that the package makes itself.

    Attributes:
        name: what to call it.
        content: its bytes.
    """

    name: str
    content: bytes

    def open(self) -> BinaryIO:
        """Open it."""
        return BytesIO(self.content)

    def identity(self) -> dict[str, Any]:
        """Give its SHA-256."""
        return {"made": self.name, "sha256": hashlib.sha256(self.content).hexdigest()}

    def describe(self) -> dict[str, Any]:
        """Say the same."""
        return self.identity()
