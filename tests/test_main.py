"""How a process begins: Ctrl-C while libraries are loaded, and outside of every command."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


LIBRARY = """
import signal, time
try:
    signal.raise_signal(signal.SIGINT)
    time.sleep(0.2)
except KeyboardInterrupt:  # as numpy's is by torch
    pass
"""
WORK = """
def run():
    import library
    print('loaded', flush=True)
    time.sleep(60)
    return 0
"""
PROGRAM = """
import time
import aiayn_cli.__main__
import aiayn_cli.app
space = {"time": time}
exec(compile(WORK, FILE, "exec"), space)
aiayn_cli.app.main = space["run"]
raise SystemExit(aiayn_cli.__main__.main())
"""


@pytest.mark.parametrize(("folder", "printed"), [("commands", ""), ("stages", "loaded\n")])
def test_an_interrupt_within_an_import_is_never_forgotten(folder: str, printed: str, tmp_path: Path) -> None:
    """It ends a command that only loads libraries at once, and one at work after the import."""
    file = Path(aiayn_cli.app.__file__).parent / folder / "translate.py"
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "program.py").write_text(f"WORK, FILE = {WORK!r}, {str(file)!r}\n{PROGRAM}")
    process = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stdout, process.stderr) == (130, printed, "")


def test_an_interrupt_outside_of_every_command_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiayn_cli.app, "main", _interrupted)
    assert main() == 130


def test_an_interrupt_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind nohup."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(aiayn_cli.app, "main", _interrupted)
    assert main() == 0
