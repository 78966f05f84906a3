"""What a person reads: on stderr, from rank 0, as much as was asked for."""

import io
import os
import pty
import re
import select
import subprocess
import sys

import pytest

from aiayn_cli import logs


@pytest.mark.parametrize(
    ("verbosity", "said"),
    [
        (logs.QUIET, ["warning: odd"]),
        (logs.NORMAL, ["picked", "warning: odd"]),
        (logs.VERBOSE, ["picked", "inner", "warning: odd"]),
    ],
)
def test_verbosity_decides_what_is_said_and_stdout_stays_empty(
    capsys: pytest.CaptureFixture[str], verbosity: int, said: list[str]
) -> None:
    logs.setup(verbosity)
    logs.notice("picked")
    logs.detail("inner")
    logs.warning("odd")
    out, err = capsys.readouterr()
    assert (out, err.split("\n")[:-1]) == ("", said)


def test_only_rank_0_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_LINES", 0.0)
    logs.setup(logs.VERBOSE, rank=3)
    logs.notice("picked")
    logs.warning("odd")
    with logs.progress("training", 5, "updates") as progress:
        progress.advance()
    assert capsys.readouterr() == ("", "")


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(logs, "time", clock)
    return clock


@pytest.mark.parametrize(
    ("total", "done", "facts", "steps", "lines"),
    [
        # An end has no line of its own where the last one said it all, or where work is over at once.
        (3000, 0, [], [(1, 50)] * 30, ["500 of 3,000 updates (17 %), 50 a second, 0:50 left",
                                       "1,000 of 3,000 updates (33 %), 50 a second, 0:40 left",
                                       "1,500 of 3,000 updates (50 %), 50 a second, 0:30 left"]),
        (100, 0, [], [(10, 50), (0, 50)], ["50 of 100 updates (50 %), 5 a second, 0:10 left",
                                           "100 of 100 updates (100 %), 10 a second, 0:10 so far"]),
        (7, 0, [], [(9, 7)], []),
        (None, 0, [], [(4000, 10_000)], ["10,000 updates, 2.5 a second, 1:06:40 so far"]),
        (3000, 0, ["loss 2.500", "MFU 41 %"], [(10, 500)],
         ["500 of 3,000 updates (17 %), loss 2.500, MFU 41 %, 50 a second, 0:50 left"]),
        # Work that goes on takes its speed from what is new.
        (3000, 2000, [], [(10, 100)], ["2,100 of 3,000 updates (70 %), 10 a second, 1:30 left"]),
    ],
)  # fmt: skip
def test_progress_in_a_file_is_a_line_every_ten_seconds(
    total: int | None, done: int, facts: list[str], steps: list[tuple[int, int]], lines: list[str], clock: _Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with logs.progress("reading", total, "updates", done=done) as progress:
        progress.describe("training")
        progress.show(facts)
        for seconds, count in steps:
            clock.now += seconds
            progress.advance(count)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "".join(f"training: {line}\n" for line in lines)


def test_no_progress_under_quiet(capsys: pytest.CaptureFixture[str], clock: _Clock) -> None:
    logs.setup(logs.QUIET)
    with logs.progress("reading", 7, "lines") as progress:
        progress.describe("still reading")
        clock.now += 1000
        progress.advance(7)
    assert capsys.readouterr().err == ""


def test_an_error_passes_through_progress(clock: _Clock) -> None:
    with pytest.raises(ValueError, match="ours"), logs.progress("reading", 7, "lines"):
        raise ValueError("ours")


ON_A_TERMINAL = """
from aiayn_cli import logs
with logs.progress("reading [odd] text", 40, "lines") as progress:
    progress.advance(13)
    logs.notice("a notice with [brackets]")
    progress.describe("still reading")
    progress.show(["loss 2.500", "MFU 41 %"])
    progress.advance(27)
logs.notice("after")
"""


def _on_a_terminal(**environment: str) -> str:
    """Run ON_A_TERMINAL with a terminal as stderr and return what it shows."""
    ours, theirs = pty.openpty()
    env = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "COLUMNS": "100", "TERM": "xterm", **environment}
    with subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL], stderr=theirs, stdout=subprocess.PIPE, env=env
    ) as child:
        os.close(theirs)
        shown = io.BytesIO()
        while select.select([ours], [], [], 30)[0]:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            shown.write(piece)
        out, _ = child.communicate(timeout=30)
    os.close(ours)
    assert child.returncode == 0
    assert out == b""
    return shown.getvalue().decode()


def test_a_terminal_shows_a_bar_and_notices_above_it() -> None:
    shown = _on_a_terminal()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "40/40 lines" in text
    assert "still reading" in text
    assert "loss 2.500  MFU 41 %" in text
    assert "a notice with [brackets]\r\n" in text
    assert text.endswith("after\r\n")
    assert "\x1b[3" in shown  # colour


def test_a_narrow_terminal_cuts_the_bar_and_folds_what_is_said() -> None:
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", _on_a_terminal(COLUMNS="20")).replace("\r", "\n").split("\n")
    assert "a notice with [brackets]" in lines  # whole, for the terminal to fold
    assert "loss 2.500  MFU 41 %" in lines
    assert max(map(len, lines)) == len("a notice with [brackets]")
    assert any("40/40" in line for line in lines)


def test_no_color_is_obeyed_and_a_dumb_terminal_gets_lines() -> None:
    assert not re.search(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", _on_a_terminal(NO_COLOR="1"))
    assert _on_a_terminal(TERM="dumb") == "a notice with [brackets]\r\nafter\r\n"
