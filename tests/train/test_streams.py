"""Training goes on where nobody can read how far it is; a result that cannot be written is told after all is saved."""

import io
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ranks import Ended, Ranks

from aiayn_cli.app import main
from aiayn_cli.checkpoint.checkpoint import load_training
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import newest_resumable

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")


def full(descriptor: int) -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)


def closed(descriptor: int) -> None:
    os.close(descriptor)


def read_only(descriptor: int) -> None:  # what `nice` and its like leave where stderr was closed
    os.dup2(os.open(os.devnull, os.O_RDONLY), descriptor)


def without_reader(descriptor: int) -> None:
    ours, theirs = os.pipe()
    os.dup2(theirs, descriptor)
    os.close(ours)


def vanished_terminal(descriptor: int) -> None:
    ours, theirs = pty.openpty()
    os.dup2(theirs, descriptor)
    os.close(ours)
    os.environ["TERM"] = "xterm"


@pytest.fixture
def train_with(command: Callable[..., list[str]], tmp_path: Path) -> Callable[..., Ended]:
    """Train four updates in another process, one of whose standard streams is changed first."""

    def train(change: Callable[[int], None], descriptor: int) -> Ended:
        def work(_: int) -> int:
            change(descriptor)
            name = "stdout" if descriptor == 1 else "stderr"
            try:  # as the interpreter does when it begins
                stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)))
            except OSError:
                stream = None
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
            code = main(command("max_updates=4"))
            sys.stderr.flush()  # at its end the interpreter does that, and exits with 120 where it fails
            return code

        return Ranks(work, 1, tmp_path / "written", {"OMP_NUM_THREADS": "1"}, address=None).wait()[0]

    return train


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
@pytest.mark.parametrize("change", [full, closed, read_only, without_reader, vanished_terminal])
def test_a_log_that_cannot_be_written_ends_no_training(
    change: Callable[[int], None], train_with: Callable[..., Ended], tmp_path: Path
) -> None:
    ended = train_with(change, 2)
    assert ended.code == 0, ended
    assert ended.out.startswith(f"{tmp_path / 'run'}: 4 updates")
    newest = newest_resumable(tmp_path / "run")
    assert load_training(newest).state["step"] == 4
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in records if r["event"] == "validation"] == [4]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_result_that_cannot_be_written_is_told_when_all_is_saved(
    train_with: Callable[..., Ended], tmp_path: Path
) -> None:
    ended = train_with(full, 1)
    assert ended.code == 1
    assert ended.err.endswith(
        "error: stdout: No space left on device\nhint: free some space, or write to another disk\n"
    )
    assert "Traceback" not in ended.err
    newest = newest_resumable(tmp_path / "run")
    assert newest.name == "step-00000004"
