"""Lines divided over processes: on the CPU, which is the same path as on several GPUs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from translation_models import LINES, feed_stdin

from aiayn_cli.app import main

LONG = " ".join(["der hund läuft und die katze springt."] * 14)  # more than one pass
MANY = [*LINES, LONG, *(f"{word} hund {number}" for number, word in enumerate("abcdefgh"))]


def test_all_that_two_processes_write_is_what_one_writes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aiayn_cli.translate.input._LINES_TOGETHER", 4)
    data = b"".join(json.dumps({"id": str(number), "text": text}).encode() + b"\n" for number, text in enumerate(MANY))
    data += b"\n" + json.dumps({"id": "last", "text": "maus", "prefix": "\u4e2d maus"}).encode()

    def run(name: str, *options: str) -> list[Any]:
        folder = tmp_path / name
        folder.mkdir()
        feed_stdin(monkeypatch, data)
        options = (*options, "--format", "jsonl", "--nbest", "2", "--scores", "--alignments", "--markup")
        files = ("--report", str(folder / "report"), "--attention", str(folder / "page"), "-o", str(folder / "out"))
        arguments = ["translate", "-m", str(model), "--precision", "fp32", "--device", "cpu", "--json"]
        assert main([*arguments, *options, *files]) == 0
        out, err = capsys.readouterr()
        result = json.loads(out)
        assert result.pop("seconds") > 0
        assert result.pop("lines_per_second") > 0
        said = sorted(line for line in err.split("\n") if line.startswith(("line ", "warning")))
        return [result, said, *((folder / name).read_bytes() for name in ("out", "report", "page"))]

    one = run("one")
    assert run("two", "--gpus", "2") == one
    assert len(one[1]) == 2, "a long line and a prefix"


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (["--gpus", "0"], 2, "gpus"),
        (["--gpus", "2", "--device", "cuda:0"], 2, "--gpus 2 and --device cuda:0 contradict each other"),
        (["--gpus", "99"], 1, "--gpus 99, but "),
        (["--gpus", "2", "--score-against", "x"], 2, "--gpus has no effect with --score-against"),
    ],
)
def test_devices_that_are_not_there_are_named(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], code: int,
    problem: str,
) -> None:  # fmt: skip
    feed_stdin(monkeypatch, b"hund\n")
    assert main(["translate", "-m", str(model), *options]) == code
    out, err = capsys.readouterr()
    assert (out, problem in err) == ("", True)


def start(model: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "aiayn_cli", "translate", "-m", str(model), "--device", "cpu", "--gpus", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *options], stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


def answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """PIDs of the processes that it started and that load models."""
    children = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    return [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the children of a process")
@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_each_line_is_answered_at_once_and_an_end_from_outside_leaves_no_process(model: Path, how: str) -> None:
    with start(model) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for line in (b"hund\n", b"\n", b"katze\n"):
            assert (answer(process, line) == b"\n") == (line == b"\n")
        pids = workers(process)
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
        wait_until_gone(pids)
