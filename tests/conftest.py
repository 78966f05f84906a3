"""What holds in every test: one torch thread, no network beyond this machine, the same examples in every run."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from commands import Aiayn, Said, feed_stdin
from loopback import Loopback, serve

pytest_plugins = ["small_run"]  # prepared data, a recipe and a model, all small

hypothesis.settings.register_profile("aiayn", derandomize=True, deadline=None, max_examples=100)
hypothesis.settings.load_profile("aiayn")

# Also in the processes that tests start, which would otherwise take all cores from other tests (pytest -n).
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Where tests run in the background, Ctrl-C is ignored, and whatever they start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

_connect = socket.socket.connect


def _connect_on_this_machine(self: socket.socket, address: Any) -> None:
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise AssertionError(f"a test tried to reach {address}; tests use no network")
    _connect(self, address)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _connect_on_this_machine)


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    # Many small tensors run faster on one thread, and results do not depend on the number of cores. Tests that
    # do not use torch do not load it here either.
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fresh_logs() -> None:
    from aiayn_cli import logs

    logs.setup()


@pytest.fixture
def aiayn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Aiayn:
    """Run `aiayn` with the words of a command line."""
    from aiayn_cli.app import main

    def run(*words: object, stdin: bytes = b"") -> Said:
        feed_stdin(monkeypatch, stdin)
        capsys.readouterr()
        code = main(list(map(str, words)))
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk, hundreds of times; the real kills of processes have the real call."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    """Bytes to save as a checkpoint's vocabulary."""
    path = tmp_path / "some.vocab"
    path.write_bytes(bytes(range(256)) * 3)
    return path


@pytest.fixture
def saved(tmp_path: Path, vocab: Path) -> Callable[..., Path]:
    """Write a resumable checkpoint of a run, or one at a path."""
    from checkpoints import save_some  # here, because it loads torch

    def save(step: int = 7, *, seed: int = 0, path: Path | None = None, run: str = "run") -> Path:
        return save_some(path or tmp_path / run / "checkpoints" / f"step-{step:08d}", step, seed, vocab)

    return save


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    """A web server on this machine, which no proxy stands before."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "requests_ca_bundle", "curl_ca_bundle"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serve() as loopback:
        yield loopback
