"""Fetches one file from one address over HTTP(S), and goes on where an earlier try stopped.

A server is asked for the rest (Range) only where the rest is sure to fit: where it has given a validator (ETag or
Last-Modified, sent as If-Range) or a length that must be the same again, or where the hash of the whole file is
known, which everything is compared with at the end.
"""

import re
import shutil
import time
from typing import Any

import requests

from aiayn_cli import logs
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.corpora.http import Network, TransferError, get, new_session, next_piece
from aiayn_cli.corpora.part_file import Fingerprint, PartFile
from aiayn_cli.errors import DataError

SPARE_BYTES = 100_000_000  # of the disk; a download that would take them is not begun
SLOWEST_BYTES_A_SECOND = 1_000  # a server that sends less for read_seconds is taken for one that does not answer
MEGABYTE = 1_000_000
_OK, _PARTIAL, _NO_SUCH_RANGE = 200, 206, 416
_LATER = {408, 425, 429, 500, 502, 503, 504}  # statuses that may be others a moment later
_UNKNOWN = {404, 410}
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-[0-9]+|\*)/([0-9]{1,18}|\*)")


class _ChangedError(Exception):
    """What has come so far is no beginning of what the server has."""


def fetch(url: str, archive: Archive, part: PartFile, network: Network) -> Fingerprint:
    """Fetch what is missing of a file, and check the whole.

    Args:
        url: where it is.
        archive: what it should be.
        part: what has come so far; at the end, the whole.
        network: how long to wait, and how often to try.
    Returns:
        The hashes of the whole file, which agree with the archive's.
    Raises:
        TransferError: this address does not give it; what has come is kept for the next try.
        DataError: the disk is full, or would be.
    """
    in_vain = 0
    started_over = False
    whole = archive.exact_bytes or part.origin.get("bytes")
    if part.bytes and part.bytes == whole:  # stopped between the last byte and the new name
        fingerprint = part.fingerprint(archive)
        if not fingerprint.mismatch():
            return fingerprint
    with new_session() as session:
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
                in_vain = 1 if part.bytes > before else in_vain + 1
                if not error.again or in_vain >= network.attempts:
                    raise
                logs.notice(f"{url}: {error}; trying again")
                time.sleep(network.pause_seconds * 2 ** (in_vain - 1))


def _fetch_once(session: requests.Session, url: str, archive: Archive, part: PartFile, network: Network) -> Fingerprint:
    is_hash_known = bool(archive.sha256 or archive.md5)
    from_here = part.origin.get("url") == url
    resume = part.bytes > 0 and (is_hash_known or (from_here and bool({"validator", "bytes"} & part.origin.keys())))
    headers = {}
    if resume:
        headers["Range"] = f"bytes={part.bytes}-"
        if from_here and "validator" in part.origin:
            headers["If-Range"] = part.origin["validator"]
    fingerprint = part.fingerprint(archive) if resume else Fingerprint(archive)
    with get(session, url, headers, network) as response:
        if response.status_code == _NO_SUCH_RANGE and resume:
            if _total(response) != part.bytes:
                raise _ChangedError(f"the server has no byte {part.bytes:,} of it")
        elif response.status_code == _PARTIAL and resume:
            _check_rest(response, archive, part)
            _receive(response, part, fingerprint, _total(response), network)
        elif response.status_code == _OK:
            resume, fingerprint = False, Fingerprint(archive)
            total = _length(response)
            if total is not None and archive.exact_bytes not in (None, total):
                raise TransferError(f"it has {total:,} bytes there, not {archive.exact_bytes:,}")
            part.start_over(_origin(url, response, total))
            _receive(response, part, fingerprint, total, network)
        else:
            status = f"status {response.status_code} {response.reason or ''}".rstrip()
            raise TransferError(
                status, again=response.status_code in _LATER, is_unknown=response.status_code in _UNKNOWN
            )
    if mismatch := fingerprint.mismatch():
        if resume:
            raise _ChangedError(f"what came in several parts {mismatch}")
        part.start_over({})
        raise TransferError(f"what came {mismatch}")
    return fingerprint


def _origin(url: str, response: requests.Response, total: int | None) -> dict[str, Any]:
    origin: dict[str, Any] = {"url": url}
    etag = response.headers.get("ETag", "")
    # A weak ETag may stand for other bytes of the same meaning, so that it cannot join two parts.
    validator = response.headers.get("Last-Modified") if not etag or etag.startswith("W/") else etag
    if validator:
        origin["validator"] = validator
    if total is not None:
        origin["bytes"] = total
    return origin


def _check_rest(response: requests.Response, archive: Archive, part: PartFile) -> None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not match or match[1] is None or int(match[1]) != part.bytes:
        raise _ChangedError("the server gave another part than asked for")
    total = _total(response)
    for expected in (archive.exact_bytes, part.origin.get("bytes")):
        if None not in (expected, total) and expected != total:
            raise _ChangedError(f"it has {total:,} bytes there, not {expected:,}")


def _total(response: requests.Response) -> int | None:
    """Read the size of the whole file from the answer to a Range."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return int(match[2]) if match and match[2] != "*" else None


def _length(response: requests.Response) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch("[0-9]{1,18}", length) else None


def _receive(
    response: requests.Response, part: PartFile, fingerprint: Fingerprint, total: int | None, network: Network
) -> None:
    """Write the body behind what has come so far, and hash it on the way."""
    missing = total - part.bytes if total is not None else None
    if missing is not None and (free := shutil.disk_usage(part.path.parent).free) < missing + SPARE_BYTES:
        problem = f"{part.path.name.removesuffix('.part')} needs {missing / 1e6:,.0f} MB more, but the disk of "
        problem += f"{part.path.parent} has {free / 1e6:,.0f} MB free"
        raise DataError(problem, "free some space, or choose a folder on another disk with --downloads")
    name = part.path.name.removesuffix(".part")
    so_far = f", the first {part.bytes // MEGABYTE:,} MB at hand" if part.bytes >= MEGABYTE else ""
    megabytes = None if missing is None else missing // MEGABYTE
    window_start, window_bytes = time.monotonic(), 0
    with logs.progress(f"downloading {name}{so_far}", megabytes, "MB") as progress:
        shown, received = 0, 0
        while piece := next_piece(response):
            part.write(piece)
            fingerprint.update(piece)
            received += len(piece)
            if received // MEGABYTE > shown:
                progress.advance(received // MEGABYTE - shown)
                shown = received // MEGABYTE
            window_bytes += len(piece)
            if (seconds := time.monotonic() - window_start) >= network.read_seconds:
                if window_bytes < SLOWEST_BYTES_A_SECOND * seconds:
                    raise TransferError(f"only {window_bytes:,} bytes came in {seconds:.0f} seconds", again=True)
                window_start, window_bytes = time.monotonic(), 0
    if total is not None and part.bytes != total:
        raise TransferError(f"the connection ended after {part.bytes:,} of {total:,} bytes", again=True)
