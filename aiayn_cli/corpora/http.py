"""Speaks HTTP(S): sessions, redirects, and errors in a few words.

Certificates are always checked, and an address with TLS never leads to one without. Proxies are those of the
environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), and so are further authorities (REQUESTS_CA_BUNDLE).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from aiayn_cli import __version__

CHUNK_BYTES = 1 << 18
MOST_REDIRECTS = 10


@dataclass(frozen=True)
class Network:
    """Network settings: timeouts and retries.

    Attributes:
        connect_seconds: to wait for a connection.
        read_seconds: to wait for the next piece of an answer.
        attempts: consecutive attempts at one URL without progress.
        pause_seconds: before the second try; doubled before each further one.
        authorities: a file of certificates to trust; None takes those of certifi, or REQUESTS_CA_BUNDLE.
    """

    connect_seconds: float = 20.0
    read_seconds: float = 60.0
    attempts: int = 4
    pause_seconds: float = 2.0
    authorities: Path | None = None


class TransferError(Exception):
    """One address did not give the file.

    Args:
        why: in a few words.
        again: whether a retry may succeed.
        is_unknown: whether the server says that there is no such file.
    """

    def __init__(self, why: str, *, again: bool = False, is_unknown: bool = False) -> None:
        super().__init__(why)
        self.again = again
        self.is_unknown = is_unknown


def new_session() -> requests.Session:
    """Open a session that asks for bytes as they are, and never for compressed ones."""
    session = requests.Session()
    session.headers.update({"User-Agent": f"aiayn/{__version__}", "Accept-Encoding": "identity"})
    return session


@contextmanager
def get(
    session: requests.Session, url: str, headers: Mapping[str, str], network: Network
) -> Iterator[requests.Response]:
    """Ask for a file, and follow redirects.

    Raises:
        TransferError: no answer, or an untrusted one.
    """
    for _ in range(MOST_REDIRECTS + 1):
        try:
            response = session.get(
                url,
                headers=dict(headers),
                stream=True,
                allow_redirects=False,
                verify=True if network.authorities is None else str(network.authorities),
                timeout=(network.connect_seconds, network.read_seconds),
            )
        except requests.exceptions.SSLError as error:
            raise TransferError(f"its certificate cannot be trusted ({_innermost(error)})") from error
        except requests.Timeout as error:
            raise TransferError("the server does not answer", again=True) from error
        except requests.RequestException as error:
            is_name_unknown = "NameResolutionError" in repr(error)
            raise TransferError(f"no connection ({_innermost(error)})", again=not is_name_unknown) from error
        except ValueError as error:  # requests looks at where a redirect leads, even where it does not follow
            raise TransferError(f"it redirects to an invalid URL ({error})") from error
        with response:
            target = session.get_redirect_target(response)
            if target is None:
                yield response
                return
        target = urljoin(url, target)
        if urlsplit(target).scheme not in ("https", urlsplit(url).scheme):
            raise TransferError(f"it leads to {target}, which has no TLS")
        url = target
    raise TransferError(f"more than {MOST_REDIRECTS} redirects")


def next_piece(response: requests.Response) -> bytes:
    """Read what has come of a body; nothing at its end.

    Raises:
        TransferError: the connection broke, or nothing came for too long.
    """
    try:
        # Undecoded: some servers declare the compression of a .tgz as one of the transfer.
        piece = response.raw.read1(CHUNK_BYTES, decode_content=False)
    except urllib3.exceptions.HTTPError as error:
        raise TransferError(f"the connection broke ({_innermost(error)})", again=True) from error
    return bytes(piece or b"")


def _innermost(error: BaseException) -> str:
    """Say what is at the bottom of an error that HTTP libraries have wrapped, often several times."""
    seen: BaseException = error
    while True:
        inner = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        inner = inner if isinstance(inner, BaseException) else seen.__cause__
        if inner is None:
            break
        seen = inner
    return (isinstance(seen, OSError) and seen.strerror) or str(seen)
