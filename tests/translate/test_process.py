import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from checkpoints import copy_damaged

from aiayn_cli.app import main


def start(model: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "aiayn_cli", "translate", "-m", str(model), "--device", "cpu", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("scored", [False, True])
def test_each_line_of_a_slow_pipe_is_answered_before_the_next_and_a_signal_ends_it(
    model: Path, tmp_path: Path, sent: signal.Signals, code: int, scored: bool
) -> None:
    (tmp_path / "targets").write_text("maus\n\nmaus\nmaus\n")
    with start(model, *(["--score-against", str(tmp_path / "targets")] if scored else [])) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for line in (b"hund\n", b"\n", b"katze\n"):
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer.endswith(b"\n")
            assert answer.startswith(b"nan" if scored else b"") if line == b"\n" else answer > b"\n"
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
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.returncode == 141
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
