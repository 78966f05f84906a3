"""Downloads end complete, checked and under their name, or not at all; what has arrived is never fetched twice."""

import errno
import fcntl
import hashlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from loopback import Answer, Loopback, serve

from aiayn_cli.corpora import http_fetch
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.corpora.http_fetch import Network
from aiayn_cli.errors import DataError

BODY = bytes(i * i % 251 for i in range(300_000))
SHA256, MD5 = hashlib.sha256(BODY).hexdigest(), hashlib.md5(BODY).hexdigest()
HALF = 120_000
REST = f"bytes={HALF}-"
FAST = Network(connect_seconds=5, read_seconds=5, attempts=3, pause_seconds=0)
ONCE = Network(attempts=1)
UNKNOWN: dict[str, Any] = {"bytes": None, "sha256": ""}
NOT_FOUND = Answer(status=404)


def archive(*urls: str, **known: Any) -> Archive:
    return Archive("corpus.tgz", urls, **({"bytes": len(BODY), "sha256": SHA256} | known))


def fetch(folder: Path, wanted: Archive, network: Network = FAST, **options: Any) -> Path:
    downloads = Downloads(folder, network=network, **options)
    downloads.fetch([wanted])
    assert downloads.sha256(wanted) == hashlib.sha256(downloads.path(wanted).read_bytes()).hexdigest()
    return downloads.path(wanted)


def fetch_in_vain(folder: Path, wanted: Archive, network: Network = FAST, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        fetch(folder, wanted, network, **options)
    return caught.value


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def redirect(location: str) -> Answer:
    return Answer(status=302, headers={"Location": location})


def test_a_file_comes_whole_under_its_name_and_is_not_requested_again(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, headers={"Content-Encoding": "gzip"})))
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        path = fetch(folder, wanted)
        assert (path, path.read_bytes(), names(folder)) == (folder / "corpus.tgz", BODY, ["corpus.tgz"])
    ((_, headers),) = server.asked
    assert headers["Accept-Encoding"] == "identity"  # bytes as they are, though the server calls them compressed
    assert headers["User-Agent"].startswith("aiayn/")


def test_a_connection_cut_midway_is_resumed_where_it_broke_a_few_times(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY, cut_after=HALF), Answer(BODY, cut_after=50_000), BODY)
    assert fetch(tmp_path, archive(url)).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [None, REST, f"bytes={HALF + 50_000}-"]
    server.asked.clear()
    url = server.put("/corpus.tgz", Answer(BODY, cut_after=HALF), Answer(BODY, cut_after=0))
    assert "the connection broke" in fetch_in_vain(tmp_path / "b", archive(url)).problem
    assert len(server.asked) == 1 + FAST.attempts - 1
    assert names(tmp_path / "b") == ["corpus.tgz.part", "corpus.tgz.part.json"]


DATE = "Mon, 06 Oct 2025 10:00:00 GMT"
LONGER = b"another version " + BODY


@pytest.mark.parametrize(
    ("known", "first", "later", "ranges"),
    [
        ({}, {}, Answer(BODY), [REST]),
        (UNKNOWN, {}, Answer(BODY), [REST]),
        (UNKNOWN, {"etag": '"v1"'}, Answer(BODY, etag='"v1"'), [REST]),
        (UNKNOWN, {"etag": 'W/"v1"'}, Answer(BODY, etag='W/"v1"'), [REST]),
        (UNKNOWN, {"last_modified": DATE}, Answer(BODY, last_modified=DATE), [REST]),
        ({**UNKNOWN, "md5": MD5}, {"etag": '"v1"'}, Answer(BODY, etag='"v1"'), [REST]),
        ({**UNKNOWN, "md5": MD5}, {}, Answer(BODY), [REST]),
        # Below, the rest does not fit, or the server sends the whole file again.
        ({}, {"etag": '"old"'}, Answer(BODY, etag='"new"'), [REST]),
        (UNKNOWN, {"etag": '"old"'}, Answer(BODY, etag='"new"'), [REST]),
        (UNKNOWN, {}, Answer(LONGER), [REST, None]),
        ({}, {}, Answer(BODY, ranges=False), [REST]),
        ({}, {}, Answer(BODY, wrong_start=-7), [REST, None]),
        ({}, {}, Answer(BODY, wrong_start=7), [REST, None]),
    ],
)
def test_an_interrupted_download_is_resumed_by_the_next_call_if_the_rest_fits(
    tmp_path: Path, server: Loopback, known: dict[str, Any], first: dict[str, str], later: Answer, ranges: list[Any]
) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, cut_after=HALF, **first), NOT_FOUND), **known)
    fetch_in_vain(tmp_path, wanted)
    assert (tmp_path / "corpus.tgz.part").read_bytes() == BODY[:HALF]
    server.asked.clear()
    server.put("/corpus.tgz", later)
    assert fetch(tmp_path, wanted).read_bytes() == later.body
    assert server.ranges("/corpus.tgz") == ranges
    validators = [value for value in first.values() if not value.startswith("W/")]  # a weak one proves nothing
    assert server.asked[0][1].get("If-Range") == next(iter(validators), None)
    assert names(tmp_path) == ["corpus.tgz"]


@pytest.mark.parametrize(("known", "expected"), [(UNKNOWN, None), ({}, REST)])
def test_another_url_resumes_only_what_a_hash_can_prove(
    tmp_path: Path, server: Loopback, known: dict[str, Any], expected: str | None
) -> None:
    first = server.put("/corpus.tgz", Answer(BODY, cut_after=HALF, etag='"1"'), NOT_FOUND)
    second = server.put("/other", Answer(BODY, etag='"2"'))
    assert fetch(tmp_path, archive(first, second, **known)).read_bytes() == BODY
    assert server.ranges("/other") == [expected]
    assert "If-Range" not in server.asked[-1][1]


@pytest.mark.parametrize(
    ("part", "known", "ranges"),
    [
        (BODY, {}, []),
        (BODY, {"bytes": None}, [f"bytes={len(BODY)}-"]),
        (BODY[:5], {}, ["bytes=5-"]),
        (BODY[::-1], {}, [f"bytes={len(BODY)}-", None]),
        (BODY + b"more", {}, [f"bytes={len(BODY) + 4}-", None]),
    ],
    ids=["whole", "whole, of unknown size", "short", "other", "too long"],
)
def test_a_part_is_completed_or_dropped(
    tmp_path: Path, server: Loopback, part: bytes, known: dict[str, Any], ranges: list[Any]
) -> None:
    (tmp_path / "corpus.tgz.part").write_bytes(part)
    (tmp_path / "corpus.tgz.part.json").write_bytes(b"not JSON")
    assert fetch(tmp_path, archive(server.put("/corpus.tgz", BODY), **known)).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == ranges


@pytest.mark.parametrize("length", [None, -1], ids=["truth", "unknown length"])
def test_a_truncated_body_is_never_taken_for_complete(tmp_path: Path, server: Loopback, length: int | None) -> None:
    url = server.put("/corpus.tgz", Answer(BODY[:-1], length=length))
    assert "299,999 bytes" in fetch_in_vain(tmp_path, archive(url)).problem
    assert names(tmp_path) == []


@pytest.mark.parametrize(("known", "kind"), [({}, f"SHA-256 {SHA256}"), ({"sha256": "", "md5": MD5}, f"MD5 {MD5}")])
def test_a_wrong_hash_leads_to_the_next_url(tmp_path: Path, server: Loopback, known: dict[str, Any], kind: str) -> None:
    wrong, right = server.put("/wrong", BODY[:-1] + b"!"), server.put("/right", BODY)
    assert fetch(tmp_path, archive(wrong, right, **known)).read_bytes() == BODY
    problem = fetch_in_vain(tmp_path / "b", archive(wrong, **known)).problem
    name, expected = kind.split()
    assert f"the server's file has {name} " in problem
    assert f", not {expected}" in problem
    assert names(tmp_path / "b") == []


def test_another_size_is_refused_before_the_body_unless_the_size_is_approximate(
    tmp_path: Path, server: Loopback
) -> None:
    url = server.put("/corpus.tgz", Answer(BODY + b"more", stall_seconds=60))
    assert "the server's file has 300,004 bytes, not 300,000" in fetch_in_vain(tmp_path, archive(url)).problem
    server.put("/corpus.tgz", BODY)
    assert fetch(tmp_path, archive(url, bytes=1, approximate=True)).read_bytes() == BODY


@pytest.mark.parametrize(("status", "attempts"), [(403, 1), (404, 1), (410, 1), (500, FAST.attempts)])
def test_a_url_that_fails_leads_to_the_next(
    tmp_path: Path, server: Loopback, capsys: pytest.CaptureFixture[str], status: int, attempts: int
) -> None:
    first, second = server.put("/first", Answer(status=status)), server.put("/second", Answer(status=429), BODY)
    assert fetch(tmp_path, archive(first, second)).read_bytes() == BODY
    assert len(server.ranges("/first")) == attempts
    assert f"/first: status {status}" in capsys.readouterr().err


def test_the_same_members_in_another_container_come_last(tmp_path: Path, server: Loopback) -> None:
    body = b"the same in a zip"
    other = Archive("corpus.zip", (server.put("/corpus.zip", body),), sha256=hashlib.sha256(body).hexdigest())
    wanted = archive(server.put("/corpus.tgz", NOT_FOUND), instead=other)
    for asked in (2, 2):  # the second call has it already
        assert fetch(tmp_path, wanted) == tmp_path / "corpus.zip"
        assert names(tmp_path) == ["corpus.zip"]
        assert len(server.asked) == asked


def test_redirects_are_followed_and_a_part_belongs_to_the_first_url(tmp_path: Path, server: Loopback) -> None:
    server.put("/real", Answer(BODY, cut_after=HALF, etag='"v"'), NOT_FOUND, Answer(BODY, etag='"v"'))
    server.put("/hop", redirect("/real"))
    wanted = archive(server.put("/corpus.tgz", redirect(f"{server.url}/hop")), **UNKNOWN)
    assert "status 404" in fetch_in_vain(tmp_path, wanted).problem
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/real") == [None, REST, REST]


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("/corpus.tgz", "more than 10 redirects"),
        ("http://[::1", "it redirects to an invalid URL"),
        ("/\xff", "it redirects to an invalid URL"),
        ("http://[x]/", "it redirects to an invalid URL"),
    ],
)
def test_redirects_in_a_circle_or_to_no_url_are_reported(
    tmp_path: Path, server: Loopback, location: str, problem: str
) -> None:
    assert problem in fetch_in_vain(tmp_path, archive(server.put("/corpus.tgz", redirect(location)))).problem


def test_impossible_sizes_are_ignored() -> None:
    digits = "9" * 5_000
    for code, name, value in ((200, "Content-Length", digits), (206, "Content-Range", f"bytes 0-{digits}/{digits}")):
        response: Any = SimpleNamespace(status_code=code, headers={name: value})
        assert http_fetch._extent(response)[1] is None


def test_what_each_url_answered_is_reported_with_the_way_out(tmp_path: Path, server: Loopback) -> None:
    urls = server.put("/first/corpus.tgz", NOT_FOUND), "http://127.0.0.1:1/corpus-v2.tgz"
    error = fetch_in_vain(tmp_path, archive(*urls))
    assert error.problem == (
        f"corpus.tgz cannot be downloaded ({urls[0]}: status 404 Not Found; "
        f"{urls[1]}: no connection (Connection refused))"
    )
    assert (
        error.hint
        == "run the same command again to resume; or download corpus.tgz elsewhere and give its folder with --from"
    )
    assert names(tmp_path) == []
    urls = server.put("/a", NOT_FOUND), server.put("/b", Answer(status=410))
    hint = fetch_in_vain(tmp_path, archive(*urls)).hint
    assert hint.startswith("check the corpus's name, version and languages; or download a ")


@pytest.mark.parametrize("folder", ["file", "file/in"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    error = fetch_in_vain(tmp_path / folder, archive("http://127.0.0.1:1/corpus.tgz"))
    assert error.problem.startswith(f"{tmp_path / folder} cannot be created: ")
    assert error.hint == "choose another folder with --downloads"


def test_an_unknown_host_is_looked_up_once(tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def getaddrinfo(host: str, *_: object, **__: object) -> None:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    error = fetch_in_vain(tmp_path, archive("http://nowhere.invalid/corpus.tgz"))
    assert "no connection (Name or service not known)" in error.problem
    assert asked == ["nowhere.invalid"]


# ---- time


def test_a_stalled_transfer_is_resumed(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY, stall_seconds=20), BODY)
    assert fetch(tmp_path, archive(url), Network(read_seconds=0.5, pause_seconds=0)).read_bytes() == BODY
    assert server.ranges("/corpus.tgz")[-1] == f"bytes={len(BODY) - 1}-"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(Answer(BODY[:1], stall_seconds=20), "timed out"), (Answer(BODY, trickle_seconds=0.02), " bytes in ")],
)
def test_a_server_that_is_too_slow_is_given_up(tmp_path: Path, server: Loopback, answer: Answer, problem: str) -> None:
    wanted = archive(server.put("/corpus.tgz", answer), **UNKNOWN)
    network = Network(read_seconds=0.2, attempts=1)
    assert problem in fetch_in_vain(tmp_path, wanted, network).problem


def test_pauses_between_attempts_grow(tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("aiayn_cli.corpora.http_fetch.time.sleep", pauses.append)
    url = server.put("/corpus.tgz", Answer(status=503))
    fetch_in_vain(tmp_path, archive(url), Network(attempts=4, pause_seconds=1.5))
    assert [pause for pause in pauses if pause >= 1] == [1.5, 3.0, 6.0]  # the server's own short waits are heard too


# ---- disk


def test_a_disk_without_space_is_refused(tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 700_000_000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    archives = [Archive(name, (server.put(f"/{name}", BODY),), bytes=350_000_000) for name in "ab"]
    with pytest.raises(DataError) as caught:
        Downloads(tmp_path, network=FAST).fetch(archives)
    assert caught.value.problem == f"the downloads need 700.0 MB, but the disk of {tmp_path} has 700.0 MB free"
    assert "--downloads" in caught.value.hint
    assert server.asked == []
    # An unknown size is checked when the server gives it.
    url = server.put("/corpus.tgz", Answer(b"", length=900_000_000))
    problem = fetch_in_vain(tmp_path, archive(url, bytes=None)).problem
    assert problem == f"corpus.tgz needs 900.0 MB more, but the disk of {tmp_path} has 700.0 MB free"


class FullAfterHalf:
    """A file on a disk that has space for HALF bytes, whose last write is a short one."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, piece: memoryview) -> int:
        space = HALF - self.file.seek(0, 2)
        if space <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self.file.write(piece[:space]))


def test_a_disk_that_fills_up_stops_and_keeps_what_came(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_locked = http_fetch.open_locked
    wanted = archive(server.put("/corpus.tgz", BODY))
    with monkeypatch.context() as patch:
        patch.setattr(http_fetch, "open_locked", lambda *args, **how: FullAfterHalf(open_locked(*args, **how)))
        problem = fetch_in_vain(tmp_path, wanted).problem
    assert problem.endswith("corpus.tgz.part: the disk is full after 0.1 MB")
    assert (tmp_path / "corpus.tgz.part").read_bytes() == BODY[:HALF]
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [None, REST]


def test_a_killed_process_leaves_what_came_for_the_next(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY, stall_seconds=30))
    program = (
        "from pathlib import Path; from aiayn_cli.corpora.corpus import Archive\n"
        "from aiayn_cli.corpora.download import Downloads\n"
        f"archive = Archive('corpus.tgz', ({url!r},), bytes={len(BODY)}, sha256={SHA256!r})\n"
        f"Downloads(Path({str(tmp_path)!r})).fetch([archive])\n"
    )
    part = tmp_path / "corpus.tgz.part"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size == len(BODY) - 1) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    server.put("/corpus.tgz", BODY)
    assert fetch(tmp_path, archive(url)).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [None, f"bytes={len(BODY) - 1}-"]


def test_two_processes_never_write_the_same_file(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, flock = tmp_path / "corpus.tgz.part", fcntl.flock
    wanted = archive(server.put("/corpus.tgz", NOT_FOUND))
    part.write_bytes(BODY)
    with part.open("ab") as other:
        flock(other, fcntl.LOCK_EX)
        assert "corpus.tgz is being downloaded by another process" in fetch_in_vain(tmp_path, wanted).problem

    def rename_before_locking(file: Any, how: int) -> None:  # the other process finishes just then
        if part.exists() and part.stat().st_size:
            part.rename(tmp_path / "corpus.tgz")
        flock(file, how)

    monkeypatch.setattr("fcntl.flock", rename_before_locking)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert names(tmp_path) == ["corpus.tgz"]


# ---- files at hand


@pytest.mark.parametrize("name", ["corpus.tgz", "de-en.tgz"])
def test_files_at_hand_have_the_archive_s_name_or_that_of_its_url(tmp_path: Path, server: Loopback, name: str) -> None:
    (tmp_path / name).write_bytes(BODY)
    url = server.put("/some/where/de-en.tgz", BODY)
    assert fetch(tmp_path / "kept", archive(url), from_folder=tmp_path) == tmp_path / name
    assert names(tmp_path) == [name]
    assert server.asked == []


def test_what_is_not_at_hand_is_fetched(tmp_path: Path, server: Loopback) -> None:
    (tmp_path / "hand").mkdir()
    wanted = archive(server.put("/corpus.tgz", BODY))
    assert fetch(tmp_path / "kept", wanted, from_folder=tmp_path / "hand") == tmp_path / "kept" / "corpus.tgz"
    assert names(tmp_path / "hand") == []
    error = fetch_in_vain(tmp_path, wanted, from_folder=tmp_path / "nowhere")
    assert error.problem.endswith("nowhere: there is no such folder")
    assert error.hint == "name a folder with archives"


@pytest.mark.parametrize(("content", "why"), [(BODY[:-1], "has 299,999 bytes"), (BODY[::-1], "has SHA-256")])
@pytest.mark.parametrize("where", ["hand", "kept"])
def test_a_wrong_file_at_hand_is_refused_and_left(
    tmp_path: Path, server: Loopback, content: bytes, why: str, where: str
) -> None:
    for folder in ("hand", "kept"):
        (tmp_path / folder).mkdir()
    path = tmp_path / where / "corpus.tgz"
    path.write_bytes(content)
    wanted = archive(server.put("/corpus.tgz", BODY))
    assert f"{path} {why}" in fetch_in_vain(tmp_path / "kept", wanted, from_folder=tmp_path / "hand").problem
    assert path.read_bytes() == content
    assert server.asked == []


# ---- trust


@pytest.fixture(scope="module")
def https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loopback, Path]]:
    """A server with a certificate for 127.0.0.1, and the file of the authority that signed it."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    path = tmp_path_factory.mktemp("tls") / "authority.pem"
    authority.cert_pem.write_to_path(str(path))
    with serve(context) as loopback:
        loopback.put("/corpus.tgz", BODY)
        yield loopback, path


def test_authorities_are_those_of_the_environment(
    tmp_path: Path, server: Loopback, https: tuple[Loopback, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(https[1]))
    assert fetch(tmp_path, archive(f"{https[0].url}/corpus.tgz"), ONCE).read_bytes() == BODY


@pytest.mark.parametrize("case", ["unknown authority", "another host"])
def test_other_certificates_are_refused(
    tmp_path: Path, server: Loopback, https: tuple[Loopback, Path], monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    secure, authority = https
    secure.asked.clear()
    wanted = archive(secure.url)
    if case == "another host":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        wanted = archive(secure.url.replace("127.0.0.1", "localhost"))
    problem = fetch_in_vain(tmp_path, wanted, Network()).problem
    assert "its certificate cannot be trusted" in problem
    assert ("ostname" if case == "another host" else "certificate verify failed") in problem
    assert (secure.asked, names(tmp_path)) == ([], [])


def test_https_never_leads_to_http(
    tmp_path: Path, server: Loopback, https: tuple[Loopback, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    secure, authority = https
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    plain = server.put("/corpus.tgz", BODY)
    down = archive(secure.put("/down.tgz", redirect(plain)))
    assert f"it redirects to {plain}, without TLS" in fetch_in_vain(tmp_path, down, ONCE).problem
    assert server.asked == []
    up = archive(server.put("/up.tgz", redirect(f"{secure.url}/corpus.tgz")))
    assert fetch(tmp_path, up, ONCE).read_bytes() == BODY


def test_proxies_are_those_of_the_environment(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    server.put("http://far.example/corpus.tgz", BODY)  # the request that a proxy gets
    assert fetch(tmp_path, archive("http://far.example/corpus.tgz")).read_bytes() == BODY


# ---- messages


def test_progress_counts_megabytes_and_a_missing_hash_is_reported(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aiayn_cli.logs.SECONDS_BETWEEN_LINES", 0.0)
    body = bytes(5_600_000)
    wanted = archive(server.put("/corpus.tgz", Answer(body, cut_after=2_000_000), body), bytes=len(body), sha256="")
    fetch(tmp_path, wanted)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"downloading 1 file, 5.6 MB, to {tmp_path}"
    assert lines[-2].startswith("downloading corpus.tgz, of which 2.0 MB are here: 3 of 3 MB (100 %), ")
    trust = "unverified, transferred without TLS (no hash is published)"
    assert lines[-1] == f"corpus.tgz: {trust}; SHA-256 {hashlib.sha256(body).hexdigest()}"
