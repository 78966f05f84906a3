"""Finds archives in a folder, or downloads them from the first responding mirror.

Downloads are kept in one folder (prepared/.downloads by default), so that each is fetched once for all corpora and
languages; it can be removed when the data is prepared.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.corpora.http_fetch import Fingerprint, Network, PartFile, TransferError, check_space, fetch
from aiayn_cli.errors import DataError

DOWNLOADS_FOLDER = Path("prepared") / ".downloads"  # in the working folder


class Downloads:
    """Archives on this machine, and those still to be fetched into `folder`.

    `from_folder` has some archives already, under the file names of their URLs; it is only read.
    """

    def __init__(self, folder: Path, from_folder: Path | None = None, network: Network | None = None) -> None:
        self._folder = folder
        self._from_folder = from_folder
        self._network = network or Network()
        self._checked: dict[str, tuple[Path, str]] = {}  # by Archive.file: path and SHA-256

    def fetch(self, archives: Sequence[Archive]) -> None:
        """Download the archives that are missing, and check all; raises DataError."""
        if self._from_folder is not None and not self._from_folder.is_dir():
            raise DataError(f"--from {self._from_folder}: there is no such folder", "name a folder with archives")
        missing = [archive for archive in archives if not self._is_here(archive)]
        if not missing:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{self._folder} cannot be created: {error.strerror}"
            raise DataError(problem, "choose another folder with --downloads") from error
        self._announce(missing)
        for archive in missing:
            self._download(archive)

    def path(self, archive: Archive) -> Path:
        """The file of a fetched archive, or of what was taken instead."""
        return self._checked[archive.file][0]

    def sha256(self, archive: Archive) -> str:
        return self._checked[archive.file][1]

    def _is_here(self, archive: Archive) -> bool:
        if archive.file in self._checked:
            return True
        for candidate in _with_alternatives(archive):
            places = [self._folder / candidate.file]
            if self._from_folder is not None:
                names = candidate.file, *map(_name_in, candidate.urls)
                places = [*(self._from_folder / name for name in names), *places]
            for path in filter(Path.is_file, places):
                fingerprint = Fingerprint(candidate, path)
                if mismatch := fingerprint.mismatch():
                    hint = "it may be damaged or another version: remove it, or name another folder"
                    raise DataError(f"{path} {mismatch}", hint)
                self._checked[archive.file] = path, fingerprint.sha256
                return True
        return False

    def _announce(self, archives: Sequence[Archive]) -> None:
        """Say what is downloaded; raises DataError if it does not fit on the disk."""
        known = sum(archive.bytes or 0 for archive in archives)
        more = " or more" if any(archive.bytes is None for archive in archives) else ""
        size = f", {logs.size_text(known)}{more}," if known else ""
        logs.notice(f"downloading {logs.counted(len(archives), 'file')}{size} to {self._folder}")
        parts = (self._folder / f"{archive.file}.part" for archive in archives)
        needed = known - sum(path.stat().st_size for path in parts if path.exists())
        check_space(self._folder, needed, f"the downloads need {logs.size_text(needed)}{more}")

    def _download(self, archive: Archive) -> None:
        failures: list[tuple[str, TransferError]] = []
        for candidate in _with_alternatives(archive):
            path = self._folder / candidate.file
            with PartFile(path) as part:
                if self._is_here(archive):  # another process fetched it meanwhile
                    return
                for url in candidate.urls:
                    try:
                        fingerprint = fetch(url, candidate, part, self._network)
                    except TransferError as error:
                        logs.notice(f"{url}: {error}")
                        failures.append((url, error))
                        continue
                    if not (candidate.sha256 or candidate.md5):
                        no_tls = "" if url.startswith("https:") else ", transferred without TLS"
                        trust = f"unverified{no_tls} (no hash is published); SHA-256 {fingerprint.sha256}"
                        logs.notice(f"{candidate.file}: {trust}")
                    part.finish()
                    self._checked[archive.file] = path, fingerprint.sha256
                    return
        hint = "run the same command again to resume"
        if all(error.not_found for _, error in failures):
            hint = "check the corpus's name, version and languages"
        names = " or ".join(_name_in(candidate.urls[0]) for candidate in _with_alternatives(archive))
        why = "; ".join(f"{url}: {error}" for url, error in failures)
        hint += f"; or download {names} elsewhere and give its folder with --from"
        raise DataError(f"{archive.file} cannot be downloaded ({why})", hint)


def _with_alternatives(archive: Archive) -> Iterator[Archive]:
    candidate: Archive | None = archive
    while candidate is not None:
        yield candidate
        candidate = candidate.instead


def _name_in(url: str) -> str:
    return url.rpartition("/")[2]
