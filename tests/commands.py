"""What a command of `aiayn` says when it runs in this process: for the fixture `aiayn` of conftest.py."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Aiayn = Callable[..., "Said"]  # words of a command line, and stdin=; the fixture `aiayn`


class Said(NamedTuple):
    """What a command did: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.split("\n")[:-1]

    @property
    def records(self) -> list[Any]:
        return records(self.out)

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def records(written: str | Path) -> list[Any]:
    """JSON lines, or those of a file."""
    text = written.read_text(encoding="utf-8") if isinstance(written, Path) else written
    return [json.loads(line) for line in text.split("\n") if line]


def feed_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))
