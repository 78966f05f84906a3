"""A web server on this machine that answers as badly as a test wants it to."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from typing import Any


@dataclass
class Answer:
    """How one request is answered."""

    body: bytes = b""  # the whole file
    status: int = 200  # anything else is answered with `headers` and no body
    ranges: bool = True  # whether a Range is obeyed
    etag: str | None = None  # as it is sent; If-Range is compared with it
    last_modified: str | None = None  # likewise
    cut_after: int | None = None  # close the connection after so many bytes of the body
    length: int | None = None  # what Content-Length says; None tells the truth, -1 leaves it out
    wrong_start: int = 0  # added to the first byte of the part that is given for a Range
    stall_seconds: float = 0  # wait so long before the last byte
    trickle_seconds: float = 0  # send one byte at a time, so far apart
    headers: Mapping[str, str] = field(default_factory=dict)  # further ones


class Loopback:
    """The server, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url  # without a slash at the end
        self.answers: dict[str, list[Answer]] = {}  # by path, for each request in turn; the last for all that follow
        self.asked: list[tuple[str, dict[str, str]]] = []  # the path and the headers of each request

    def put(self, path: str, *answers: Answer | bytes) -> str:
        """Set what a path answers, and give its URL."""
        self.answers[path] = [Answer(answer) if isinstance(answer, bytes) else answer for answer in answers]
        return self.url + path

    def ranges(self, path: str) -> list[str | None]:
        """List the Range of each request for a path."""
        return [headers.get("Range") for asked, headers in self.asked if asked == path]


@contextmanager
def serve(context: SSLContext | None = None) -> Iterator[Loopback]:
    """Run a server while a test runs; with a context it speaks TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            loopback.asked.append((self.path, dict(self.headers.items())))
            answers = loopback.answers.get(self.path, [Answer(status=404)])
            _answer(self, answers[0] if len(answers) == 1 else answers.pop(0))

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass  # clients that go away, or refuse the certificate

    server = Server(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "http" if context is None else "https"
    loopback = Loopback(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield loopback
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    if answer.status != 200:
        handler.send_response(answer.status)
        for name, value in {"Content-Length": "0", **answer.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        return
    start, size = _range_start(handler, answer), len(answer.body)
    if start is not None and start >= size:
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{size}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    if start is None:
        handler.send_response(200)
        body = answer.body
    else:
        start += answer.wrong_start
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        body = answer.body[start:]
    for name, value in (("ETag", answer.etag), ("Last-Modified", answer.last_modified), *answer.headers.items()):
        if value is not None:
            handler.send_header(name, value)
    if answer.length != -1:
        handler.send_header("Content-Length", str(len(body) if answer.length is None else answer.length))
    else:
        handler.send_header("Connection", "close")
    handler.end_headers()
    _send(handler, answer, body)


def _range_start(handler: BaseHTTPRequestHandler, answer: Answer) -> int | None:
    asked, condition = handler.headers.get("Range"), handler.headers.get("If-Range")
    if asked is None or not answer.ranges or (condition and condition not in (answer.etag, answer.last_modified)):
        return None
    return int(asked.removeprefix("bytes=").rstrip("-"))


def _send(handler: BaseHTTPRequestHandler, answer: Answer, body: bytes) -> None:
    if answer.trickle_seconds:
        for byte in body:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(answer.trickle_seconds)
    elif answer.stall_seconds:
        handler.wfile.write(body[:-1])
        handler.wfile.flush()
        time.sleep(answer.stall_seconds)
        handler.wfile.write(body[-1:])
    else:
        handler.wfile.write(body[: answer.cut_after])
    if answer.cut_after is not None or answer.length is not None:
        handler.close_connection = True
