"""A signal is noted, and obeyed even within a long validation; the run goes on as if nothing had happened."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks
from small_run import result_of

from aiayn_cli.app import main
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import newest_resumable
from aiayn_cli.train import validation as validation_module
from aiayn_cli.train.session import signals
from aiayn_cli.translate.search.scorer import ModelScorer

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")


def make_endless(what: str, begun: Path) -> None:
    """Make the loss or BLEU of this process's validation go on until it is stopped; `begun` tells when it is at it."""
    if what == "loss":
        in_order, teacher_forced = validation_module.in_order, validation_module.teacher_forced

        def noted(*args: Any) -> Any:
            begun.touch()
            return teacher_forced(*args)

        validation_module.in_order = lambda *args: list(in_order(*args)) * 1_000_000
        validation_module.teacher_forced = noted
    else:
        step = ModelScorer.step

        def slow(self: ModelScorer, *args: Any) -> Any:
            begun.touch()
            time.sleep(0.3)
            return step(self, *args)

        ModelScorer.step = slow  # type: ignore[method-assign]


def validations(run: Path) -> list[int]:
    return [r["step"] for r in read_metrics(run / "metrics.jsonl") if r["event"] == "validation"]


@pytest.fixture
def start(command: Callable[..., list[str]], tmp_path: Path) -> Callable[..., Ranks]:
    def begin(n_ranks: int, run: str, before: Callable[[], None] = lambda: None) -> Ranks:
        def work(_: int) -> int:
            before()
            return main(command("max_updates=8", run=run))

        return Ranks(work, n_ranks, tmp_path / "written", {"OMP_NUM_THREADS": "1"})

    return begin


@pytest.mark.parametrize(
    ("what", "n_ranks", "to", "number"),
    [("loss", 1, 0, signal.SIGTERM), ("bleu", 2, 1, signal.SIGINT), ("loss", 1, 0, signal.SIGUSR1)],
)
def test_a_signal_within_a_validation_is_obeyed_at_once_and_the_run_goes_on_exactly(
    what: str, n_ranks: int, to: int, number: int, start: Callable[..., Ranks], tmp_path: Path
) -> None:
    run, begun = tmp_path / "run", tmp_path / "begun"
    ranks = start(n_ranks, "run", lambda: make_endless(what, begun))
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(ranks.pids[to], number)
    ended = ranks.wait([130 if number == signal.SIGINT else 143] * n_ranks)
    assert "at update 4; " in ended[0].err
    assert f"{run} is saved" in ended[0].err
    assert "Traceback" not in "".join(each.err for each in ended)
    newest = newest_resumable(run)
    assert newest.name == "interrupted-00000004"
    assert validations(run) == []

    for name in ("run", "unbroken"):
        start(n_ranks, name).wait([0] * n_ranks)
        assert validations(tmp_path / name) == [4, 8]
    assert result_of(run) == result_of(tmp_path / "unbroken")


def test_hang_up_and_user_signal_are_obeyed_unless_they_are_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals() as interrupted:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupted() == ""
            os.kill(os.getpid(), signal.SIGUSR1)
            assert interrupted() == "SIGUSR1"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_does_not_wait() -> None:
    child = os.fork()
    if child == 0:
        with signals() as interrupted:
            os.kill(os.getpid(), signal.SIGTERM)
            if interrupted() != "SIGTERM":
                os._exit(1)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_signals_mean_afterwards_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with signals() as interrupted:
        assert interrupted() == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted() == "SIGINT"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
