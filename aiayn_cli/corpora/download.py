"""Finds archives in a folder, or downloads them from the first responding mirror.

Downloads are kept in one folder (prepared/.downloads by default), so that each is fetched once for all corpora and
languages; it can be removed when the data is prepared.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.corpora.http_fetch import SPARE_BYTES, Fingerprint, Network, PartFile, TransferError, fetch
from aiayn_cli.errors import DataError

DOWNLOADS_FOLDER = Path("prepared") / ".downloads"  # in the working folder


class Downloads:
    """Archives on this machine, and those still to be fetched.

    Args:
        folder: of downloads.
        from_folder: has some archives already, under the file names of their URLs; it is only read.
        network: timeouts, retries and trust.
    """

    def __init__(self, folder: Path, from_folder: Path | None = None, network: Network | None = None) -> None:
        self._folder = folder
        self._from_folder = from_folder
        self._network = network or Network()
        self._checked: dict[str, tuple[Path, str]] = {}  # by Archive.file: path and SHA-256

    def fetch(self, archives: Sequence[Archive]) -> None:
        """Download the archives that are missing, and check all.

        Raises:
            DataError: one is not available or fails its check, or the disk lacks space for all.
        """
        if self._from_folder is not None and not self._from_folder.is_dir():
            raise DataError(f"{self._from_folder} is not a folder", "--from names a folder with archives")
        missing = [archive for archive in archives if not self._is_here(archive)]
        if not missing:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{self._folder} cannot be made: {error.strerror}"
            raise DataError(problem, "choose another folder with --downloads") from error
        self._check_space(missing)
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
            for path in self._places(candidate):
                if path.is_file():
                    fingerprint = Fingerprint(candidate, path)
                    if mismatch := fingerprint.mismatch():
                        hint = "remove it, or name another folder; it may be another version, or damaged"
                        raise DataError(f"{path} {mismatch}", hint)
                    self._checked[archive.file] = path, fingerprint.sha256
                    return True
        return False

    def _places(self, archive: Archive) -> Iterator[Path]:
        if self._from_folder is not None:
            yield self._from_folder / archive.file
            for url in archive.urls:
                yield self._from_folder / _name_in(url)
        yield self._folder / archive.file

    def _check_space(self, archives: Sequence[Archive]) -> None:
        sizes = [archive.bytes for archive in archives]
        known = sum(size for size in sizes if size is not None)
        more = " or more" if None in sizes else ""
        files = "1 file" if len(archives) == 1 else f"{len(archives)} files"
        size = f", {_megabytes(known)}{more}," if known else ""
        logs.notice(f"downloading {files}{size} to {self._folder}")
        parts = (self._folder / f"{archive.file}.part" for archive in archives)
        needed = known - sum(path.stat().st_size for path in parts if path.exists())
        free = shutil.disk_usage(self._folder).free
        if free < needed + SPARE_BYTES:
            problem = f"the downloads need {_megabytes(needed)}{more}, but the disk of {self._folder} has "
            problem += f"{_megabytes(free)} free"
            raise DataError(problem, "free some space, or choose a folder on another disk with --downloads")

    def _download(self, archive: Archive) -> None:
        failures = []
        not_found = True  # at each URL
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
                        failures.append(f"{url}: {error}")
                        not_found &= error.not_found
                        continue
                    if not (candidate.sha256 or candidate.md5):
                        no_tls = "" if url.startswith("https:") else ", and it was transferred without TLS"
                        trust = f"no published hash to compare with{no_tls}; its SHA-256 is {fingerprint.sha256}"
                        logs.notice(f"{candidate.file}: {trust}")
                    part.finish()
                    self._checked[archive.file] = path, fingerprint.sha256
                    return
        names = " or ".join(_name_in(candidate.urls[0]) for candidate in _with_alternatives(archive))
        way_out = "run this again: it resumes"
        if not_found:
            way_out = "check the name of the corpus, its version and its languages"
        raise DataError(
            f"{archive.file} cannot be downloaded ({'; '.join(failures)})",
            f"{way_out}; or fetch {names} elsewhere and give its folder with --from",
        )


def _with_alternatives(archive: Archive) -> Iterator[Archive]:
    candidate: Archive | None = archive
    while candidate is not None:
        yield candidate
        candidate = candidate.instead


def _name_in(url: str) -> str:
    return url.rpartition("/")[2]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 10e6 else f"{size / 1e6:.1f} MB"
