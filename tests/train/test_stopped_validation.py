"""A signal is obeyed within a validation, however long that is, and the run goes on as if nothing had happened."""

import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks
from training_runs import result_of, train_command

from aiayn_cli.app import main
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import newest_resumable
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.train import validation as validation_module
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


def start(
    n_ranks: int, run: Path, recipe: Path, data: PreparedData, before: Callable[[], None] = lambda: None
) -> Ranks:
    def work(_: int) -> int:
        before()
        return main(train_command(run, recipe, data, 8))

    return Ranks(work, n_ranks, run.with_name("written"), {"OMP_NUM_THREADS": "1"})


@pytest.fixture(scope="module")
def unbroken_of(
    small_data: PreparedData, small_recipe: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], dict[str, Any]]:
    """The result of so many ranks to which nothing happens."""

    @cache
    def result(n_ranks: int) -> dict[str, Any]:
        run = tmp_path_factory.mktemp("unbroken") / "run"
        assert [each.code for each in start(n_ranks, run, small_recipe, small_data).wait()] == [0] * n_ranks
        return {**result_of(run), "validated": validations(run)}

    return result


@pytest.mark.parametrize(
    ("what", "n_ranks", "to", "number"),
    [
        ("loss", 1, 0, signal.SIGTERM),
        ("bleu", 2, 1, signal.SIGINT),
    ],
)
def test_a_signal_within_a_validation_is_obeyed_at_once_and_the_run_goes_on_exactly(
    what: str, n_ranks: int, to: int, number: int, small_data: PreparedData, small_recipe: Path, tmp_path: Path,
    unbroken_of: Callable[[int], dict[str, Any]],
) -> None:  # fmt: skip
    run, begun = tmp_path / "run", tmp_path / "begun"
    ranks = start(n_ranks, run, small_recipe, small_data, lambda: make_endless(what, begun))
    deadline = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(ranks.pids[to], number)
    ended = ranks.wait()
    assert [each.code for each in ended] == [{signal.SIGTERM: 143, signal.SIGINT: 130}[number]] * n_ranks, ended
    assert "at update 4; " in ended[0].err
    assert f"{run} is saved" in ended[0].err
    assert "Traceback" not in "".join(each.err for each in ended)
    newest = newest_resumable(run)
    assert newest is not None
    assert newest.name == "interrupted-00000004"
    assert validations(run) == []

    assert [each.code for each in start(n_ranks, run, small_recipe, small_data).wait()] == [0] * n_ranks
    assert {**result_of(run), "validated": validations(run)} == unbroken_of(n_ranks)
    assert validations(run) == [4, 8]
