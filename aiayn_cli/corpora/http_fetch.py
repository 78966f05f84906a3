"""Fetches one file from one URL over HTTP(S), and resumes interrupted downloads.

The rest of a file is requested (Range) only if it is sure to fit: the server gave a validator (ETag or Last-Modified,
sent as If-Range) or a length, or the hash of the whole file is known. Certificates are always checked, and HTTPS never
redirects to HTTP. The environment gives proxies (HTTPS_PROXY, NO_PROXY) and authorities (REQUESTS_CA_BUNDLE).
"""

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from aiayn_cli import __version__, logs
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.errors import DataError
from aiayn_cli.files import open_locked

_SPARE_BYTES = 100_000_000  # that a download must leave free on the disk
_SLOWEST_BYTES_A_SECOND = 1_000  # a server that sends less for read_seconds counts as not responding
_MOST_REDIRECTS = 10
_READ_BYTES = 1 << 20  # from disk
_RECEIVE_BYTES = 1 << 18
_MEGABYTE = 1_000_000
_OK, _PARTIAL, _NO_SUCH_RANGE = 200, 206, 416
_RETRY = {408, 425, 429, 500, 502, 503, 504}
_NOT_FOUND = {404, 410}
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-[0-9]+|\*)/([0-9]{1,18}|\*)")


@dataclass(frozen=True)
class Network:
    """Timeouts and retries."""

    connect_seconds: float = 20.0  # to wait for a connection
    read_seconds: float = 60.0  # to wait for the next piece of a response
    attempts: int = 4  # consecutive ones at one URL that bring nothing new
    pause_seconds: float = 2.0  # before the second attempt; doubled before each further one


class TransferError(Exception):
    """A URL did not provide the file; `retry`: it may at the next attempt, `not_found`: the server has no such file."""

    def __init__(self, why: str, *, retry: bool = False, not_found: bool = False) -> None:
        super().__init__(why)
        self.retry = retry
        self.not_found = not_found


class _ChangedError(Exception):
    """The bytes on disk are not the beginning of the server's file."""


class Fingerprint:
    """The size and hashes of a file that should be an archive; `path` has the bytes so far, if any."""

    def __init__(self, archive: Archive, path: Path | None = None) -> None:
        self.bytes = 0
        self._archive = archive
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        if path is not None:
            with path.open("rb") as file:
                while piece := file.read(_READ_BYTES):
                    self.update(piece)

    def update(self, piece: bytes) -> None:
        self.bytes += len(piece)
        self._sha256.update(piece)
        if self._archive.md5:
            self._md5.update(piece)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def mismatch(self) -> str:
        """What differs from the archive; empty if nothing does."""
        expected = self._archive
        if expected.exact_bytes not in (None, self.bytes):
            return f"has {self.bytes:,} bytes, not {expected.exact_bytes:,}"
        if expected.sha256 and self.sha256 != expected.sha256:
            return f"has SHA-256 {self.sha256}, not {expected.sha256}"
        if expected.md5 and self._md5.hexdigest() != expected.md5:
            return f"has MD5 {self._md5.hexdigest()}, not {expected.md5}"
        return ""


class PartFile:
    """An unfinished download, FILE.part, of which `bytes` have arrived, locked; DataError if another process has it.

    Its `origin`, FILE.part.json, is the "url", the server's "validator" and the "bytes" of the whole file.
    """

    def __init__(self, whole: Path) -> None:
        self.path = whole.with_name(f"{whole.name}.part")
        self.whole = whole
        self._notes = whole.with_name(f"{whole.name}.part.json")
        try:
            self._file = open_locked(self.path, buffering=0)
        except BlockingIOError:
            problem = f"{whole} is being downloaded by another process"
            raise DataError(problem, "wait until it ends, or choose another folder with --downloads") from None
        self.bytes = self.path.stat().st_size
        try:
            notes = json.loads(self._notes.read_bytes()) if self.bytes else None
        except (OSError, ValueError):
            notes = None
        self.origin: dict[str, Any] = notes if isinstance(notes, dict) else {}

    def __enter__(self) -> "PartFile":
        return self

    def __exit__(self, *_: object) -> None:
        if not self.bytes:
            self.path.unlink(missing_ok=True)
            self._notes.unlink(missing_ok=True)
        self._file.close()

    def start_over(self, origin: dict[str, Any]) -> None:
        """Discard what has arrived, and note the origin of what follows."""
        self._file.truncate(0)
        self.bytes = 0
        self.origin = origin
        self._notes.write_bytes(json.dumps(origin).encode())

    def write(self, piece: bytes) -> None:
        """Append; raises DataError if the disk is full."""
        rest = memoryview(piece)
        try:
            while rest:
                written = self._file.write(rest)
                self.bytes += written
                rest = rest[written:]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            problem = f"{self.path}: the disk is full after {logs.size_text(self.bytes)}"
            hint = "free some space and run the same command again to resume, or choose another folder with --downloads"
            raise DataError(problem, hint) from error

    def finish(self) -> None:
        """Flush the complete file to the disk and rename it."""
        os.fsync(self._file.fileno())
        self.path.rename(self.whole)
        self.bytes = 0


def fetch(url: str, archive: Archive, part: PartFile, network: Network) -> Fingerprint:
    """Fetch what is missing of a file and check the hashes of the whole.

    Raises TransferError, after which the part is kept for the next attempt, or DataError if the disk is full.
    """
    if part.bytes and part.bytes == (archive.exact_bytes or part.origin.get("bytes")):
        fingerprint = Fingerprint(archive, part.path)  # stopped between the last byte and the new name
        if not fingerprint.mismatch():
            return fingerprint
    failures = 0  # since something new arrived
    started_over = False
    with requests.Session() as session:
        session.headers.update({"User-Agent": f"aiayn/{__version__}", "Accept-Encoding": "identity"})
        while True:
            before = part.bytes
            try:
                return _fetch_once(session, url, archive, part, network)
            except _ChangedError as error:
                if started_over:
                    raise TransferError(str(error)) from error
                logs.detail(f"{url}: {error}; starting over")
                part.start_over({})
                started_over = True
            except TransferError as error:
                failures = 1 if part.bytes > before else failures + 1
                if not error.retry or failures >= network.attempts:
                    raise
                logs.notice(f"{url}: {error}; trying again")
                time.sleep(network.pause_seconds * 2 ** (failures - 1))


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raise DataError, which begins with `what`, unless the disk has so many bytes and some to spare."""
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE_BYTES:
        problem = f"{what}, but the disk of {folder} has {logs.size_text(free)} free"
        raise DataError(problem, "free some space, or choose a folder on another disk with --downloads")


def _fetch_once(session: requests.Session, url: str, archive: Archive, part: PartFile, network: Network) -> Fingerprint:
    same_url = part.origin.get("url") == url
    can_join = archive.sha256 or archive.md5 or (same_url and not part.origin.keys().isdisjoint({"validator", "bytes"}))
    resume = bool(part.bytes and can_join)
    headers = {}
    if resume:
        headers["Range"] = f"bytes={part.bytes}-"
        if same_url and "validator" in part.origin:
            headers["If-Range"] = part.origin["validator"]
    fingerprint = Fingerprint(archive, part.path if resume else None)
    with _get(session, url, headers, network) as response:
        code, (start, total) = response.status_code, _extent(response)
        if code not in ((_OK, _PARTIAL, _NO_SUCH_RANGE) if resume else (_OK,)):
            problem = f"status {code} {response.reason or ''}".rstrip()
            raise TransferError(problem, retry=code in _RETRY, not_found=code in _NOT_FOUND)
        if code == _NO_SUCH_RANGE and total != part.bytes:
            raise _ChangedError(f"the server's file is shorter than the {part.bytes:,} bytes downloaded")
        if code == _PARTIAL and start != part.bytes:
            raise _ChangedError("the server sent another part than requested")
        resume = code != _OK
        for expected in (archive.exact_bytes, part.origin.get("bytes") if resume else None):
            if None not in (expected, total) and expected != total:
                problem = f"the server's file has {total:,} bytes, not {expected:,}"
                raise _ChangedError(problem) if resume else TransferError(problem)
        if not resume:
            fingerprint = Fingerprint(archive)
            etag = response.headers.get("ETag", "")
            # A weak ETag may stand for other bytes of the same meaning, so that it cannot join two parts.
            validator = response.headers.get("Last-Modified") if not etag or etag.startswith("W/") else etag
            origin = {"url": url, "validator": validator, "bytes": total}
            part.start_over({key: value for key, value in origin.items() if value not in (None, "")})
        if code != _NO_SUCH_RANGE:
            _receive(response, part, fingerprint, total, network)
    if mismatch := fingerprint.mismatch():
        if resume:
            raise _ChangedError(f"the file joined from parts {mismatch}")
        part.start_over({})
        raise TransferError(f"the server's file {mismatch}")
    return fingerprint


@contextmanager
def _get(
    session: requests.Session, url: str, headers: Mapping[str, str], network: Network
) -> Iterator[requests.Response]:
    """Request a file and follow redirects; raises TransferError."""
    for _ in range(_MOST_REDIRECTS + 1):
        try:
            response = session.get(
                url,
                headers=headers,
                stream=True,
                allow_redirects=False,
                timeout=(network.connect_seconds, network.read_seconds),
            )
        except requests.exceptions.SSLError as error:
            raise TransferError(f"its certificate cannot be trusted ({_innermost(error)})") from error
        except requests.Timeout as error:
            raise TransferError("the server does not respond", retry=True) from error
        except requests.RequestException as error:
            is_name_unknown = "NameResolutionError" in repr(error)
            raise TransferError(f"no connection ({_innermost(error)})", retry=not is_name_unknown) from error
        except ValueError as error:  # requests parses the target of a redirect, even if it does not follow
            raise TransferError(f"it redirects to an invalid URL ({error})") from error
        with response:
            target = session.get_redirect_target(response)
            if target is None:
                yield response
                return
        target = urljoin(url, target)
        if urlsplit(target).scheme not in ("https", urlsplit(url).scheme):
            raise TransferError(f"it redirects to {target}, without TLS")
        url = target
    raise TransferError(f"more than {_MOST_REDIRECTS} redirects")


def _innermost(error: BaseException) -> str:
    """Describe the cause of an error that HTTP libraries have wrapped, often several times."""
    while True:
        inner = getattr(error, "reason", None) or (error.args[0] if error.args else None)
        inner = inner if isinstance(inner, BaseException) else error.__cause__
        if inner is None:
            return (isinstance(error, OSError) and error.strerror) or str(error)
        error = inner


def _extent(response: requests.Response) -> tuple[int | None, int | None]:
    """The first byte that a response holds, and the size of the whole file; None where it does not say."""
    if response.status_code == _OK:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if re.fullmatch("[0-9]{1,18}", length) else None
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    start, total = match.groups() if match else (None, "*")
    return None if start is None else int(start), None if total == "*" else int(total)


def _receive(
    response: requests.Response, part: PartFile, fingerprint: Fingerprint, total: int | None, network: Network
) -> None:
    """Append the body to the part, and hash it on the way."""
    name, missing = part.whole.name, None if total is None else total - part.bytes
    if missing is not None:
        check_space(part.whole.parent, missing, f"{name} needs {logs.size_text(missing)} more")
    so_far = f", of which {logs.size_text(part.bytes)} are here" if part.bytes >= _MEGABYTE else ""
    megabytes = None if missing is None else missing // _MEGABYTE
    window_start, window_bytes, received = time.monotonic(), 0, 0
    with logs.progress(f"downloading {name}{so_far}", megabytes, "MB") as progress:
        while piece := _next_piece(response):
            part.write(piece)
            fingerprint.update(piece)
            if new := (received + len(piece)) // _MEGABYTE - received // _MEGABYTE:
                progress.advance(new)
            received += len(piece)
            window_bytes += len(piece)
            if (seconds := time.monotonic() - window_start) >= network.read_seconds:
                if window_bytes < _SLOWEST_BYTES_A_SECOND * seconds:
                    raise TransferError(f"only {window_bytes:,} bytes in {seconds:.0f} seconds", retry=True)
                window_start, window_bytes = time.monotonic(), 0
    if total is not None and part.bytes != total:
        raise TransferError(f"the connection ended after {part.bytes:,} of {total:,} bytes", retry=True)


def _next_piece(response: requests.Response) -> bytes:
    """Read what has arrived of a body; nothing at its end. Raises TransferError."""
    try:
        # Undecoded: some servers declare the compression of a .tgz as one of the transfer.
        return bytes(response.raw.read1(_RECEIVE_BYTES, decode_content=False) or b"")
    except urllib3.exceptions.HTTPError as error:
        raise TransferError(f"the connection broke ({_innermost(error)})", retry=True) from error
