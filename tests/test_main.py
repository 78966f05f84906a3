"""Ctrl-C outside of any command."""

import signal
from collections.abc import Iterator

import pytest

import aiayn_cli.app
from aiayn_cli.__main__ import main


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupted() -> int:
    signal.raise_signal(signal.SIGINT)
    return 0


def test_an_interrupt_outside_of_every_command_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiayn_cli.app, "main", _interrupted)
    assert main() == 130


def test_an_interrupt_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind nohup."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(aiayn_cli.app, "main", _interrupted)
    assert main() == 0
