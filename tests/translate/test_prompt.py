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

from aiayn_cli.app import main
from aiayn_cli.translate.options import TextOptions

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


def test_ctrl_c_during_a_search_drops_the_line_and_prompts_again(model: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("katze\nhund\n")
    slow = ["--beam", "300", "--max-extra", "900", "--min-length", "900", "--prefix", str(tmp_path / "prefixes")]
    terminal = Terminal("translate", "-m", str(model), "--device", "cpu", *slow, "--report", str(tmp_path / "report"))
    try:
        terminal.wait_for("Ctrl-D ends")
        for _ in range(2):
            terminal.wait_for("> ")
            terminal.type("der hund\r")
            terminal.wait_for("der hund\r\n")
            time.sleep(1)  # into the search
            terminal.type(CTRL_C)
        assert "score" not in terminal.wait_for("> ")
        time.sleep(0.5)  # as above
        terminal.type(CTRL_C)  # an empty line
        terminal.wait_for("> ")
        terminal.type("\r")
        terminal.wait_for("> ")
        terminal.type(CTRL_D)
        terminal.wait_for("prefixes has more")  # the second one: dropped lines take none
        assert terminal.exit_code() == 1
        assert '"line": 1' in (tmp_path / "report.unfinished").read_text()
    finally:
        terminal.close()


@pytest.mark.parametrize("text", [["der hund"], ["der hund", "", "die katze"]])
def test_text_is_an_argument(text: list[str], model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["translate", "-m", str(model), "--device", "cpu", *text]) == 0
    assert len(capsys.readouterr().out.split("\n")) == len(text) + 1
    assert main(["translate", "-m", str(model), "-i", str(tmp_path / "text"), *text]) == 2


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (["text"], "text is a file, not text", "write aiayn translate -i text"),
        (["text", "text"], "text text are files, not text", "write cat text text | aiayn translate"),
        (["hello.txt"], "hello.txt looks like the name of a file", "-i hello.txt; for text, echo hello.txt | aiayn"),
        (["data/test.de.gz"], "data/test.de.gz looks like the name of a file", "-i data/test.de.gz"),
        (["-5 degrees"], "-5 degrees starts with a dash", '-- "-5 degrees"'),
        (["-5"], "-5 starts with a dash", '-- "-5"'),
        (["- and so on"], "- and so on starts with a dash", '-- "- and so on"'),
        (["--beam", "-1"], "--beam is -1, but must be at least 1", "--help"),
    ],
)
def test_what_is_hardly_text_is_refused_with_the_way_out(
    arguments: list[str], problem: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("der hund\n")
    assert main(["translate", *arguments]) == 2
    err = capsys.readouterr().err
    assert f"error: {problem}" in err
    assert hint in err


@pytest.mark.parametrize(
    "text", ["hund.", "z.B.", "3.5", "Hallo, Welt.txt ist da", "www.example.de", "a@b.de", "ü" * 300]
)
def test_what_only_resembles_a_file_name_is_text(text: str) -> None:
    assert TextOptions(lines=(text,)).lines == (text,)


@pytest.mark.parametrize("stdin", ["file", "empty", "null", "pipe", "idle pipe"])
def test_text_in_stdin_next_to_an_argument_is_noticed_and_never_waited_for(
    stdin: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = os.pipe()
    path = Path(os.devnull) if stdin == "null" else tmp_path / "stdin"
    if stdin != "null":
        path.write_text("katze\n" if stdin == "file" else "")
    if stdin == "pipe":
        os.write(theirs, b"katze\n")
    with os.fdopen(ours) as pipe, path.open() as file:
        monkeypatch.setattr("sys.stdin", pipe if "pipe" in stdin else file)
        assert main(["translate", "-m", str(model), "--device", "cpu", "--", "der hund"]) == 0
    os.close(theirs)
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert ("stdin is ignored" in err) == (stdin in ("file", "pipe"))
