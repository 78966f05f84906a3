import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from checkpoints import copy_damaged
from translation_models import LINES, Translate, assert_answers_at_once, start

from aiayn_cli.app import main
from aiayn_cli.translate.options import TextOptions


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("scored", [False, True])
def test_each_line_of_a_slow_pipe_is_answered_before_the_next_and_a_signal_ends_it(
    model: Path, tmp_path: Path, sent: signal.Signals, code: int, scored: bool
) -> None:
    (tmp_path / "targets").write_text("maus\n\nmaus\nmaus\n")
    with start(model, *(["--score-against", str(tmp_path / "targets")] if scored else [])) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert_answers_at_once(process, b"nan" if scored else b"\n")
        process.send_signal(sent)
        assert process.wait(timeout=30) == code
        assert process.stdout.read() == b""
        err = process.stderr.read()
        assert b"Traceback" not in err
        assert (b"scored 3 pairs" if scored else b"translated 3 lines") in err
        assert b"; then it was stopped" in err
        assert (b"error: stopped by SIGTERM" in err) == (sent == signal.SIGTERM)


def test_ctrl_c_does_not_wait_for_a_slow_named_pipe(model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    output = tmp_path / "out"
    with (
        start(model, "-i", str(tmp_path / "pipe"), "-o", str(output), "--attention", str(tmp_path / "page")) as process,
        (tmp_path / "pipe").open("wb") as pipe,
    ):
        assert process.stderr is not None
        pipe.write(b"hund\n")
        pipe.flush()
        unfinished = tmp_path / "out.unfinished"
        deadline = time.monotonic() + 60
        while not (unfinished.exists() and unfinished.read_bytes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        err = process.stderr.read().decode()
    assert "Traceback" not in err
    assert f"what was translated so far is in {unfinished}" in err
    assert unfinished.read_bytes().count(b"\n") == 1
    assert "translated 1 line in " in err
    assert '"label": "line 1"' in (tmp_path / "page").read_text(encoding="utf-8")
    assert not output.exists()


def test_a_reader_that_goes_away_ends_it_quietly(model: Path) -> None:
    with start(model) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"hund\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"hund\n" * 50)
        process.stdin.close()
        assert process.wait(timeout=30) == 141
        err = process.stderr.read()
        assert b"Traceback" not in err
        assert b"rror" not in err


def test_a_terminal_gets_no_answer_of_a_damaged_model(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = copy_damaged(model, tmp_path / "model")
    master, slave = pty.openpty()
    os.write(master, b"hund\n")
    with os.fdopen(slave, encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(["translate", "-m", str(damaged), "--device", "cpu"]) == 1
    os.close(master)
    out, err = capsys.readouterr()
    assert out == ""
    assert "weights.safetensors is not as it was written: its SHA-256 has changed" in err


def test_a_terminal_shows_a_prompt_and_gets_each_answer_at_once(model: Path) -> None:
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    command = [sys.executable, "-m", "aiayn_cli", "translate", "-m", str(model), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "dumb"}
    shown = b""

    def read_until(text: bytes, times: int) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while shown.count(text) < times and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 1 << 16)
        assert shown.count(text) >= times, shown

    with subprocess.Popen(command, stdin=slave, stderr=slave, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        read_until(b"\n> ", 1)
        for number, line in enumerate((b"hund\n", b"\n", b"katze\n"), start=1):
            os.write(master, line)
            answer = process.stdout.readline()
            assert (answer == b"\n") == (line == b"\n")
            read_until(b"> ", number + 1)
        os.write(master, b"hund\n" * 30)  # pasted
        assert [process.stdout.readline() == b"\n" for _ in range(30)] == [False] * 30
        read_until(b"> ", 34)
        os.write(master, b"\x04")
        assert process.wait(timeout=30) == 0
    read_until(b"> \r\n", 1)
    read_until(b"translated 33 lines", 1)
    assert b"Ctrl-D ends" in shown
    os.close(master)
    os.close(slave)


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


LONG = " ".join(["der hund läuft und die katze springt."] * 14)  # more than one pass
MANY = [*LINES, LONG, *(f"{word} hund {number}" for number, word in enumerate("abcdefgh"))]


def test_all_that_two_processes_write_is_what_one_writes(
    tmp_path: Path, translate: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiayn_cli.translate.input._LINES_TOGETHER", 4)
    lines = [json.dumps({"id": str(number), "text": text}) for number, text in enumerate(MANY)]
    lines += ["", json.dumps({"id": "last", "text": "maus", "prefix": "\u4e2d maus"})]

    def run(name: str, *options: str) -> list[Any]:
        folder = tmp_path / name
        folder.mkdir()
        options = (*options, "--json", "--format", "jsonl", "--nbest", "2", "--scores", "--alignments", "--markup")
        files = ("--report", folder / "report", "--attention", folder / "page", "-o", folder / "out")
        code, out, err = translate(*options, *files, lines=lines)
        result = json.loads(out)
        assert code == 0
        assert result.pop("seconds") > 0
        assert result.pop("lines_per_second") > 0
        said = sorted(line for line in err.split("\n") if line.startswith(("line ", "warning")))
        return [result, said, *((folder / name).read_bytes() for name in ("out", "report", "page"))]

    one = run("one")
    assert run("two", "--gpus", "2") == one
    assert len(one[1]) == 2, "a long line and a prefix"


def workers(process: int) -> list[int]:
    """PIDs of the processes that it started and that load models."""
    children = map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    return [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the children of a process")
@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_each_line_is_answered_at_once_and_an_end_from_outside_leaves_no_process(model: Path, how: str) -> None:
    with start(model, "--gpus", "2") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        assert_answers_at_once(process)
        pids = workers(process.pid)
        assert len(pids) == 2
        if how == "ctrl-c":
            process.send_signal(signal.SIGINT)
        else:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            process.stdin.write(b"maus\n")
            process.stdin.flush()
        assert process.wait(timeout=60) == {"ctrl-c": 130, "kill": 1}[how]
        err = process.stderr.read().decode()
    assert "Traceback" not in err
    if how == "kill":
        assert err.count("error: process ") == 1
        assert "of 2 (cpu) was ended by SIGKILL" in err
    else:
        assert "rror" not in err
    assert "translated 3 lines" in err
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.05)
