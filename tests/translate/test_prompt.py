"""`aiayn translate` at a terminal: line editing and history, answers with scores, Ctrl-C and Ctrl-D."""

import contextlib
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

LEFT, UP = "\x1b[D", "\x1b[A"
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._child, self._ours = pty.fork()
        if self._child == 0:
            environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
            os.execve(sys.executable, [sys.executable, "-m", "aiayn_cli", *arguments], environment)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """What was shown up to and with the text, since the last call."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} never came: {self.shown!r}"
            try:
                self.shown += os.read(self._ours, 1024).decode("utf-8", "replace")
            except OSError:  # the command has ended
                pytest.fail(f"{text!r} never came: {self.shown!r}")
        before, found, self.shown = self.shown.partition(text)
        return before + found

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)
        os.close(self._ours)


def test_lines_are_edited_answered_dropped_and_ended(model: Path) -> None:
    terminal = Terminal("translate", "-m", str(model), "--device", "cpu")
    try:
        terminal.wait_for("Ctrl-D ends")
        terminal.wait_for("> ")
        terminal.type("der hund")
        terminal.type(LEFT * 4 + "alte " + "\r")  # der alte hund
        answered = terminal.wait_for("score -")
        assert "\x1b" not in answered.rsplit("\n", 2)[1], "an arrow key reached the model"
        terminal.wait_for("> ")
        terminal.type(UP)
        terminal.wait_for("der alte hund")
        time.sleep(0.5)  # readline loses a signal that comes while it still draws
        terminal.type(CTRL_C)
        terminal.wait_for("> ")
        terminal.type("katze\r")
        terminal.wait_for("score -")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        terminal.wait_for("translated 2 lines")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()


@pytest.mark.parametrize("text", [["der hund"], ["der hund", "", "die katze"]])
def test_text_is_an_argument(text: list[str], model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from aiayn_cli.app import main

    assert main(["translate", "-m", str(model), "--device", "cpu", *text]) == 0
    assert len(capsys.readouterr().out.split("\n")) == len(text) + 1
    file = tmp_path / "text"
    file.write_text("der hund\n")
    assert main(["translate", "-m", str(model), str(file)]) == 2
    assert f"write -i {file}" in capsys.readouterr().err
    assert main(["translate", "-m", str(model), "-i", str(file), *text]) == 2
