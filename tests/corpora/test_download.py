"""Downloads end whole, checked and under their name, or not at all; what has come is never fetched twice."""

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
from typing import Any, NamedTuple

import pytest
import trustme
from loopback import Answer, Loopback, serve

from aiayn_cli.corpora import download, http_fetch
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.corpora.http_fetch import Network, PartFile
from aiayn_cli.errors import DataError

BODY = bytes(i * i % 251 for i in range(300_000))
SHA256, MD5 = hashlib.sha256(BODY).hexdigest(), hashlib.md5(BODY).hexdigest()
HALF = 120_000
FAST = Network(connect_seconds=5, read_seconds=5, attempts=3, pause_seconds=0)


def archive(*urls: str, **known: Any) -> Archive:
    return Archive("corpus.tgz", urls, **({"bytes": len(BODY), "sha256": SHA256} | known))


def fetch(folder: Path, wanted: Archive, network: Network = FAST, **options: Any) -> Path:
    downloads = Downloads(folder, network=network, **options)
    downloads.fetch([wanted])
    assert downloads.sha256(wanted) == hashlib.sha256(downloads.path(wanted).read_bytes()).hexdigest()
    return downloads.path(wanted)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupt(folder: Path, server: Loopback, wanted: Archive, path: str = "/corpus.tgz") -> None:
    """Fetch the first HALF bytes, with a server that then goes away."""
    first = server.answers[path][0]
    server.answers[path] = [
        Answer(BODY, cut_after=HALF, etag=first.etag, last_modified=first.last_modified),
        Answer(status=404),
    ]
    with pytest.raises(DataError, match="cannot be downloaded"):
        fetch(folder, wanted)
    assert (folder / "corpus.tgz.part").read_bytes() == BODY[:HALF]
    server.asked.clear()
    server.answers[path] = [first]


def test_a_file_comes_whole_under_its_name_and_is_not_asked_for_again(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", BODY))
    path = fetch(tmp_path / "new" / "folder", wanted)
    assert path == tmp_path / "new" / "folder" / "corpus.tgz"
    assert path.read_bytes() == BODY
    assert names(path.parent) == ["corpus.tgz"]
    fetch(tmp_path / "new" / "folder", wanted)
    assert len(server.asked) == 1


def test_servers_are_asked_for_bytes_as_they_are(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, headers={"Content-Encoding": "gzip"})))
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    headers = server.asked[0][1]
    assert headers["Accept-Encoding"] == "identity"
    assert headers["User-Agent"].startswith("aiayn/")


def test_a_connection_cut_midway_is_taken_up_where_it_broke(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY, cut_after=HALF), Answer(BODY, cut_after=50_000), BODY)
    assert fetch(tmp_path, archive(url)).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [None, f"bytes={HALF}-", f"bytes={HALF + 50_000}-"]


def test_an_interrupted_download_is_taken_up_by_the_next_call(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", BODY))
    interrupt(tmp_path, server, wanted)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [f"bytes={HALF}-"]
    assert names(tmp_path) == ["corpus.tgz"]


@pytest.mark.parametrize("known", [{"bytes": None, "sha256": ""}, {"md5": MD5, "sha256": "", "bytes": None}])
@pytest.mark.parametrize("validator", [{"etag": '"v1"'}, {"last_modified": "Mon, 06 Oct 2025 10:00:00 GMT"}, {}])
def test_without_a_hash_too_the_rest_alone_is_fetched(
    tmp_path: Path, server: Loopback, known: dict[str, Any], validator: dict[str, str]
) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, **validator)), **known)
    interrupt(tmp_path, server, wanted)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [f"bytes={HALF}-"]
    assert server.asked[0][1].get("If-Range") == next(iter(validator.values()), None)


@pytest.mark.parametrize("known", [{}, {"bytes": None, "sha256": ""}])
def test_a_file_that_changed_meanwhile_is_fetched_anew(tmp_path: Path, server: Loopback, known: dict[str, Any]) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, etag='"old"')), **known)
    interrupt(tmp_path, server, wanted)
    server.put("/corpus.tgz", Answer(BODY, etag='"new"'))
    assert fetch(tmp_path, wanted).read_bytes() == BODY


def test_a_weak_etag_joins_nothing(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, etag='W/"v1"')), bytes=None, sha256="")
    interrupt(tmp_path, server, wanted)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert "If-Range" not in server.asked[0][1]


def test_without_hash_and_validator_another_length_starts_over(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", BODY), bytes=None, sha256="")
    interrupt(tmp_path, server, wanted)
    longer = b"another version " + BODY
    server.put("/corpus.tgz", longer)
    assert fetch(tmp_path, wanted).read_bytes() == longer
    assert server.ranges("/corpus.tgz") == [f"bytes={HALF}-", None]


def test_without_a_hash_another_address_never_adds_to_what_one_gave(tmp_path: Path, server: Loopback) -> None:
    unknown: dict[str, Any] = {"bytes": None, "sha256": ""}
    interrupt(tmp_path, server, archive(server.put("/corpus.tgz", BODY), **unknown))
    other = server.put("/other", BODY[::-1])
    assert fetch(tmp_path, archive(other, **unknown)).read_bytes() == BODY[::-1]
    assert server.ranges("/other") == [None]


def test_with_a_hash_another_address_goes_on(tmp_path: Path, server: Loopback) -> None:
    first = server.put("/corpus.tgz", Answer(BODY, cut_after=HALF), Answer(status=404))
    second = server.put("/other", Answer(BODY, etag='"other"'))
    assert fetch(tmp_path, archive(first, second)).read_bytes() == BODY
    assert server.ranges("/other") == [f"bytes={HALF}-"]
    assert "If-Range" not in server.asked[-1][1]


def test_a_server_without_ranges_gives_all_again(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, ranges=False)))
    interrupt(tmp_path, server, wanted)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [f"bytes={HALF}-"]


@pytest.mark.parametrize("wrong_start", [-7, 7])
def test_a_server_that_gives_another_part_is_asked_for_all(tmp_path: Path, server: Loopback, wrong_start: int) -> None:
    wanted = archive(server.put("/corpus.tgz", Answer(BODY, wrong_start=wrong_start)))
    interrupt(tmp_path, server, wanted)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("known", [{}, {"bytes": None}])
def test_what_is_whole_but_has_not_its_name_yet_is_not_fetched_again(
    tmp_path: Path, server: Loopback, known: dict[str, Any]
) -> None:
    (tmp_path / "corpus.tgz.part").write_bytes(BODY)
    wanted = archive(server.put("/corpus.tgz", BODY), **known)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == ([] if "bytes" not in known else [f"bytes={len(BODY)}-"])


@pytest.mark.parametrize("rest", [BODY[:5], BODY[::-1], BODY + b"more"], ids=["short", "other", "too long"])
def test_a_rest_that_does_not_fit_is_thrown_away(tmp_path: Path, server: Loopback, rest: bytes) -> None:
    (tmp_path / "corpus.tgz.part").write_bytes(rest)
    (tmp_path / "corpus.tgz.part.json").write_bytes(b"not JSON")
    assert fetch(tmp_path, archive(server.put("/corpus.tgz", BODY))).read_bytes() == BODY


@pytest.mark.parametrize("length", [None, -1], ids=["truth", "unknown length"])
def test_a_truncated_body_is_never_taken_for_whole(tmp_path: Path, server: Loopback, length: int | None) -> None:
    url = server.put("/corpus.tgz", Answer(BODY[:-1], length=length))
    with pytest.raises(DataError) as caught:
        fetch(tmp_path, archive(url))
    assert "299,999 bytes" in caught.value.problem
    assert names(tmp_path) == []


def test_a_body_shorter_than_its_length_is_asked_for_again_a_few_times(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY, cut_after=HALF), Answer(BODY, cut_after=0))
    with pytest.raises(DataError, match="the connection broke"):
        fetch(tmp_path, archive(url))
    assert len(server.asked) == 1 + FAST.attempts - 1
    assert names(tmp_path) == ["corpus.tgz.part", "corpus.tgz.part.json"]


@pytest.mark.parametrize("known", [{}, {"sha256": "", "md5": MD5}], ids=["SHA-256", "MD5"])
def test_a_wrong_hash_leads_to_the_next_address(tmp_path: Path, server: Loopback, known: dict[str, Any]) -> None:
    wrong = server.put("/wrong", BODY[:-1] + b"!")
    right = server.put("/right", BODY)
    assert fetch(tmp_path, archive(wrong, right, **known)).read_bytes() == BODY
    with pytest.raises(DataError) as caught:
        fetch(tmp_path / "b", archive(wrong, **known))
    expected = "SHA-256" if not known else "MD5"
    assert f"the file has {expected} " in caught.value.problem
    assert f", not {SHA256 if not known else MD5}" in caught.value.problem
    assert names(tmp_path / "b") == []


def test_another_size_is_refused_before_anything_comes(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY + b"more", stall_seconds=60))
    with pytest.raises(DataError, match="it has 300,004 bytes there, not 300,000"):
        fetch(tmp_path, archive(url))


def test_a_size_that_is_rough_refuses_nothing(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", BODY)
    assert fetch(tmp_path, archive(url, bytes=1, approximate=True)).read_bytes() == BODY


@pytest.mark.parametrize("status", [403, 404, 410, 500])
def test_an_address_that_fails_leads_to_the_next(
    tmp_path: Path, server: Loopback, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    first, second = server.put("/first", Answer(status=status)), server.put("/second", BODY)
    assert fetch(tmp_path, archive(first, second)).read_bytes() == BODY
    assert len(server.ranges("/first")) == (FAST.attempts if status == 500 else 1)
    assert f"/first: status {status}" in capsys.readouterr().err


def test_a_server_that_is_busy_is_asked_again(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(status=503), Answer(status=429), BODY)
    assert fetch(tmp_path, archive(url)).read_bytes() == BODY


def test_the_same_members_in_another_container_are_taken_last(tmp_path: Path, server: Loopback) -> None:
    other_body = b"the same in a zip"
    other = Archive(
        "corpus.zip", (server.put("/corpus.zip", other_body),), sha256=hashlib.sha256(other_body).hexdigest()
    )
    wanted = archive(server.put("/corpus.tgz", Answer(status=404)), instead=other)
    assert fetch(tmp_path, wanted) == tmp_path / "corpus.zip"
    assert names(tmp_path) == ["corpus.zip"]
    server.asked.clear()
    assert fetch(tmp_path, wanted) == tmp_path / "corpus.zip"
    assert server.asked == []


def test_redirects_are_followed_and_what_has_come_counts_for_the_first_address(
    tmp_path: Path, server: Loopback
) -> None:
    server.put("/real", Answer(BODY, cut_after=HALF, etag='"v"'), Answer(status=404), Answer(BODY, etag='"v"'))
    server.put("/hop", Answer(status=307, headers={"Location": "/real"}))
    url = server.put("/corpus.tgz", Answer(status=302, headers={"Location": f"{server.url}/hop"}))
    wanted = archive(url, bytes=None, sha256="")
    with pytest.raises(DataError, match="status 404"):
        fetch(tmp_path, wanted)
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/real") == [None, f"bytes={HALF}-", f"bytes={HALF}-"]


def test_redirects_in_a_circle_end(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(status=301, headers={"Location": "/corpus.tgz"}))
    with pytest.raises(DataError, match="more than 10 redirects"):
        fetch(tmp_path, archive(url))


@pytest.mark.parametrize("location", ["http://[::1", "/\xff", "http://[x]/"])
def test_a_redirect_to_no_address_is_told(tmp_path: Path, server: Loopback, location: str) -> None:
    url = server.put("/corpus.tgz", Answer(status=302, headers={"Location": location}))
    with pytest.raises(DataError, match="it redirects to an invalid URL"):
        fetch(tmp_path, archive(url))


def test_sizes_that_no_file_has_are_taken_for_unknown(tmp_path: Path, server: Loopback) -> None:
    digits = "9" * 5_000
    url = server.put("/corpus.tgz", Answer(BODY, length=-1, headers={"X-Length": digits}))
    assert fetch(tmp_path, archive(url)).read_bytes() == BODY
    for name, value in (("Content-Length", digits), ("Content-Range", f"bytes 0-{digits}/{digits}")):
        response = SimpleNamespace(headers={name: value})
        assert (http_fetch._length(response), http_fetch._total(response)) == (None, None)  # type: ignore[arg-type]


def test_a_file_that_no_server_has_is_perhaps_misspelt(tmp_path: Path, server: Loopback) -> None:
    urls = server.put("/a", Answer(status=404)), server.put("/b", Answer(status=410))
    with pytest.raises(DataError) as caught:
        fetch(tmp_path, archive(*urls))
    assert caught.value.hint.startswith("check the name of the corpus, its version and its languages; or fetch a ")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "in"):
        with pytest.raises(DataError, match=f"{folder} cannot be made: ") as caught:
            fetch(folder, archive("http://127.0.0.1:1/corpus.tgz"))
        assert caught.value.hint == "choose another folder with --downloads"


def test_all_addresses_and_what_each_answered_are_told(tmp_path: Path, server: Loopback) -> None:
    urls = server.put("/first/corpus.tgz", Answer(status=404)), "http://127.0.0.1:1/corpus-v2.tgz"
    with pytest.raises(DataError) as caught:
        fetch(tmp_path, archive(*urls))
    problem = caught.value.problem
    assert problem == (
        f"corpus.tgz cannot be downloaded ({urls[0]}: status 404 Not Found; "
        f"{urls[1]}: no connection (Connection refused))"
    )
    assert caught.value.hint == (
        "run this again: it resumes; or fetch corpus.tgz elsewhere and give its folder with --from"
    )
    assert names(tmp_path) == []


def test_a_name_that_nobody_knows_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def getaddrinfo(host: str, *_: object, **__: object) -> None:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(DataError, match=r"no connection \(Name or service not known\)"):
        fetch(tmp_path, archive("http://nowhere.invalid/corpus.tgz"))
    assert asked == ["nowhere.invalid"]


# ---- time


def test_a_server_that_stalls_is_left_and_taken_up_again(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY, stall_seconds=20), BODY)
    network = Network(read_seconds=1.5, attempts=2, pause_seconds=0)
    assert fetch(tmp_path, archive(url), network).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [None, f"bytes={len(BODY) - 1}-"]


def test_a_server_that_never_answers_is_given_up(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY[:1], stall_seconds=20))
    network = Network(read_seconds=0.2, attempts=2, pause_seconds=0)
    with pytest.raises(DataError, match=r"the connection broke .*timed out"):
        fetch(tmp_path, archive(url, bytes=1, sha256=""), network)
    assert len(server.asked) == 2


def test_a_server_that_trickles_is_given_up(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/corpus.tgz", Answer(BODY, trickle_seconds=0.02))
    network = Network(read_seconds=1.5, attempts=1, pause_seconds=0)
    with pytest.raises(DataError, match=r"only \d+ bytes came in \d seconds"):
        fetch(tmp_path, archive(url), network)


def test_pauses_between_tries_grow(tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("aiayn_cli.corpora.http_fetch.time.sleep", pauses.append)
    url = server.put("/corpus.tgz", Answer(status=503))
    with pytest.raises(DataError):
        fetch(tmp_path, archive(url), Network(attempts=4, pause_seconds=1.5))
    assert [pause for pause in pauses if pause >= 1] == [1.5, 3.0, 6.0]  # the server's own short waits are heard too


# ---- disk


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_disk_without_space_for_all_is_refused_before_anything_is_asked(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 700_000_000))
    first = Archive("a", (server.put("/a", BODY),), bytes=400_000_000)
    second = Archive("b", (server.put("/b", BODY),), bytes=300_000_000)
    with pytest.raises(DataError) as caught:
        Downloads(tmp_path, network=FAST).fetch([first, second])
    assert caught.value.problem == (f"the downloads need 700 MB, but the disk of {tmp_path} has 700 MB free")
    assert "--downloads" in caught.value.hint
    assert server.asked == []


def test_an_unknown_size_is_checked_when_the_server_tells_it(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.put("/corpus.tgz", Answer(b"", length=900_000_000))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**12, 0, 200_000_000))
    with pytest.raises(DataError, match=r"corpus\.tgz needs 900 MB more, but the disk of .* has 200 MB free"):
        fetch(tmp_path, archive(url, bytes=None))


def test_a_disk_that_fills_up_stops_and_keeps_what_came(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    open_and_lock = PartFile._open_and_lock
    wanted = archive(server.put("/corpus.tgz", BODY))
    with monkeypatch.context() as patch:
        patch.setattr(PartFile, "_open_and_lock", lambda self: FullAfterHalf(open_and_lock(self)))
        with pytest.raises(DataError, match=r"corpus\.tgz\.part: no space is left on its disk after 120,000 bytes"):
            fetch(tmp_path, wanted)
    assert (tmp_path / "corpus.tgz.part").read_bytes() == BODY[:HALF]
    assert fetch(tmp_path, wanted).read_bytes() == BODY
    assert server.ranges("/corpus.tgz") == [None, f"bytes={HALF}-"]


def test_a_process_that_is_killed_leaves_what_came_for_the_next(tmp_path: Path, server: Loopback) -> None:
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


def test_two_processes_never_write_the_same_file(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", BODY))
    with (tmp_path / "corpus.tgz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match=r"corpus\.tgz is being downloaded by another process"):
            fetch(tmp_path, wanted)
    assert fetch(tmp_path, wanted).read_bytes() == BODY


def test_a_file_that_another_process_finished_is_left_as_it_is(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "corpus.tgz.part"
    part.write_bytes(BODY)
    flock = fcntl.flock

    def rename_before_locking(file: Any, how: int) -> None:
        if part.exists() and part.stat().st_size:
            part.rename(tmp_path / "corpus.tgz")
        flock(file, how)

    monkeypatch.setattr("fcntl.flock", rename_before_locking)
    assert fetch(tmp_path, archive(server.put("/corpus.tgz", Answer(status=404)))).read_bytes() == BODY
    assert names(tmp_path) == ["corpus.tgz"]


# ---- files at hand


def test_files_at_hand_are_taken_by_name_or_by_the_name_of_their_address(tmp_path: Path, server: Loopback) -> None:
    url = server.put("/some/where/de-en.tgz", BODY)
    for name in ("corpus.tgz", "de-en.tgz"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(BODY)
        assert fetch(tmp_path / "kept", archive(url), from_folder=folder) == folder / name
        assert names(folder) == [name]
    assert server.asked == []
    assert not (tmp_path / "kept").exists()


def test_what_is_not_at_hand_is_fetched(tmp_path: Path, server: Loopback) -> None:
    wanted = archive(server.put("/corpus.tgz", BODY))
    (tmp_path / "hand").mkdir()
    assert fetch(tmp_path / "kept", wanted, from_folder=tmp_path / "hand") == tmp_path / "kept" / "corpus.tgz"
    assert names(tmp_path / "hand") == []


@pytest.mark.parametrize(("content", "why"), [(BODY[:-1], "has 299,999 bytes"), (BODY[::-1], "has SHA-256")])
@pytest.mark.parametrize("where", ["hand", "kept"])
def test_a_file_at_hand_that_is_another_is_refused_and_left(
    tmp_path: Path, server: Loopback, content: bytes, why: str, where: str
) -> None:
    for folder in ("hand", "kept"):
        (tmp_path / folder).mkdir()
    path = tmp_path / where / "corpus.tgz"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        fetch(tmp_path / "kept", archive(server.put("/corpus.tgz", BODY)), from_folder=tmp_path / "hand")
    assert caught.value.problem.startswith(f"{path} {why}")
    assert path.read_bytes() == content
    assert server.asked == []


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere is not a folder") as caught:
        fetch(tmp_path, archive(), from_folder=tmp_path / "nowhere")
    assert caught.value.hint == "--from names a folder with archives"


# ---- trust


@pytest.fixture
def https(server: Loopback, tmp_path: Path) -> Iterator[tuple[Loopback, Path]]:
    """A server with a certificate for 127.0.0.1, and the file of the authority that signed it."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    with serve(context) as loopback:
        yield loopback, tmp_path / "authority.pem"


def test_a_certificate_of_a_known_authority_is_trusted(tmp_path: Path, https: tuple[Loopback, Path]) -> None:
    server, authority = https
    network = Network(attempts=1, authorities=authority)
    assert fetch(tmp_path / "kept", archive(server.put("/corpus.tgz", BODY)), network).read_bytes() == BODY


def test_authorities_can_be_named_by_the_environment(
    tmp_path: Path, https: tuple[Loopback, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, authority = https
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    assert fetch(tmp_path / "kept", archive(server.put("/corpus.tgz", BODY))).read_bytes() == BODY


def test_a_certificate_of_nobody_is_refused(tmp_path: Path, https: tuple[Loopback, Path]) -> None:
    server, _ = https
    with pytest.raises(DataError, match=r"its certificate cannot be trusted .*certificate verify failed"):
        fetch(tmp_path / "kept", archive(server.put("/corpus.tgz", BODY)))
    assert server.asked == []
    assert names(tmp_path / "kept") == []


def test_a_certificate_for_another_host_is_refused(tmp_path: Path, https: tuple[Loopback, Path]) -> None:
    server, authority = https
    server.put("/corpus.tgz", BODY)
    url = server.url.replace("127.0.0.1", "localhost") + "/corpus.tgz"
    with pytest.raises(DataError, match=r"its certificate cannot be trusted .*[Hh]ostname"):
        fetch(tmp_path / "kept", archive(url), Network(attempts=1, authorities=authority))
    assert server.asked == []


def test_an_address_with_tls_never_leads_to_one_without(
    tmp_path: Path, server: Loopback, https: tuple[Loopback, Path]
) -> None:
    secure, authority = https
    plain = server.put("/corpus.tgz", BODY)
    url = secure.put("/corpus.tgz", Answer(status=302, headers={"Location": plain}))
    network = Network(attempts=1, authorities=authority)
    with pytest.raises(DataError, match=f"it redirects to {plain}, without TLS"):
        fetch(tmp_path / "kept", archive(url), network)
    assert server.asked == []
    url = server.put("/up.tgz", Answer(status=302, headers={"Location": secure.put("/up.tgz", BODY)}))
    assert fetch(tmp_path / "kept", archive(url), network).read_bytes() == BODY


def test_proxies_are_those_of_the_environment(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    server.put("http://far.example/corpus.tgz", BODY)  # what a proxy is asked for
    assert fetch(tmp_path, archive("http://far.example/corpus.tgz")).read_bytes() == BODY


def test_what_nobody_has_published_a_hash_of_is_said(
    tmp_path: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(tmp_path, archive(server.put("/corpus.tgz", BODY), sha256=""))
    expected = (
        f"corpus.tgz: no published hash to compare with, and it was transferred without TLS; its SHA-256 is {SHA256}\n"
    )
    assert capsys.readouterr().err.endswith(expected)


def test_progress_counts_megabytes_and_says_what_is_at_hand(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aiayn_cli.logs.SECONDS_BETWEEN_LINES", 0.0)
    body = bytes(5_600_000)
    (tmp_path / "corpus.tgz.part").write_bytes(body[:2_000_000])
    wanted = archive(server.put("/corpus.tgz", body), bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
    fetch(tmp_path, wanted)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"downloading 1 file, 5.6 MB, to {tmp_path}"
    assert lines[-1].startswith("downloading corpus.tgz, the first 2 MB at hand: 3 of 3 MB (100 %), ")


def test_the_default_folder_lies_with_the_prepared_data() -> None:
    assert str(download.DOWNLOADS_FOLDER) == "prepared/.downloads"
