"""Several processes train what one does, and end together: within seconds, with the rank and the reason."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ended, Ranks

from aiayn_cli.app import main
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.train import distributed
from aiayn_cli.train import gradient as gradient_module
from aiayn_cli.translate.trust import flags

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")

QUICK = {"OMP_NUM_THREADS": "1"}
Start = Callable[..., Ranks]
Command = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _quick_roll_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_ROLL_CALL_SECONDS", 2.0)


@pytest.fixture
def start(command: Command, tmp_path: Path) -> Start:
    """Start ranks that run the command; `before` is called in each first, with its rank."""

    def begin(n: int, *settings: str, before: Callable[[int], None] = lambda _: None, run: str = "run") -> Ranks:
        def work(rank: int) -> int:
            before(rank)
            return main(command(*settings, run=run))

        return Ranks(work, n, tmp_path / "written", QUICK)

    return begin


def on_update(number: int, act: Callable[[], None]) -> None:
    """Do something in the middle of an update of this process, before its gradients are summed."""
    count, split = iter(range(1, 1_000)), gradient_module.split_update

    def watched(*args: Any) -> Any:
        if next(count) == number:
            act()
        return split(*args)

    gradient_module.split_update = watched


def raising(act: Callable[[], None], in_rank: int = 1) -> Callable[[int], None]:
    return lambda rank: on_update(3, act) if rank == in_rank else None


def fail_with_bug() -> None:
    raise ZeroDivisionError("a fault of ours")


def check_all_ended(ended: list[Ended], message: str) -> None:
    assert [e.code for e in ended] == [1] * len(ended), ended
    assert all(e.seconds < 60 for e in ended)
    told = [line for line in ended[0].err.split("\n") if line.startswith("error:")]
    assert len(told) == 1, ended
    assert message in told[0]


def test_an_error_of_one_rank_ends_all_and_names_it(start: Start) -> None:
    ended = start(3, before=raising(fail_with_bug)).wait()
    check_all_ended(ended, "rank 1 on ")
    assert "ZeroDivisionError: a fault of ours" in ended[0].err
    assert "ZeroDivisionError" in ended[1].err
    assert ended[2].err == ""  # it ends without a word


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_named_by_the_other(rank: int, start: Start) -> None:
    ended = start(2, before=raising(lambda: os.kill(os.getpid(), signal.SIGKILL), rank)).wait()
    assert ended[rank].code == -9
    check_all_ended([ended[1 - rank]], f"rank {rank} on ")
    assert rank == 0 or "killed, stuck, or cut off from the network" in ended[0].err


def test_a_rank_that_hangs_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUICK, "AIAYN_COLLECTIVE_SECONDS", "2")
    ended = start(2, before=raising(lambda: time.sleep(8))).wait()
    check_all_ended(ended, "rank 1 on ")
    assert "stuck" in ended[0].err
    assert "rank 0 on " in ended[1].err


def test_a_validation_divided_over_processes_gives_what_one_gives(
    start: Start, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flags, "_FEWEST_OUTPUTS", 7)

    def validation(run: str) -> list[dict[str, Any]]:
        records = read_metrics(tmp_path / run / "metrics.jsonl")
        return [
            {name: value for name, value in r.items() if name not in ("time", "seconds", "validation_seconds")}
            for r in records
            if r["event"] in ("validation", "samples")
        ]

    # With so small a rate all have the same weights.
    settings = ("max_updates=1", "save_every_steps=1", "validation_bleu_pairs=7", "learning_rate_scale=1e-30")
    start(3, *settings).wait([0] * 3)
    assert main(command(*settings, run="one")) == 0
    assert validation("run") == validation("one")
    assert len(validation("run")) == 2
    thresholds = [load_checkpoint(list_checkpoints(tmp_path / run)[-1]).low_confidence for run in ("run", "one")]
    assert thresholds[0] is not None
    assert thresholds[0] == thresholds[1]


def test_a_rank_that_runs_out_of_memory_makes_all_divide_further_and_lose_nothing(start: Start, tmp_path: Path) -> None:
    def in_its_passes(rank: int) -> None:
        forward, count = gradient_module.teacher_forced, iter(range(1_000))

        def limited(*args: Any) -> Any:
            if rank == 1 and next(count) == 3:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return forward(*args)

        gradient_module.teacher_forced = limited

    ended = start(2, "max_updates=4", before=in_its_passes).wait([0, 0])
    assert "out of memory with 70 tokens per micro-batch" in ended[0].err
    state = load_training(list_checkpoints(tmp_path / "run")[-1]).state
    assert (state["step"], state["max_tokens"], state["skipped"]) == (4, 35, 0)
    assert "out of memory" not in ended[1].err


def test_a_run_goes_on_with_fewer_processes_as_with_all(start: Start, command: Command, tmp_path: Path) -> None:
    def losses(run: str) -> dict[int, float]:
        records = read_metrics(tmp_path / run / "metrics.jsonl")
        return {r["step"]: r["loss"] for r in records if r["event"] == "train"}

    ended = start(2, "max_updates=8", run="two").wait([0, 0])
    assert ended[0].out.startswith(f"{tmp_path / 'two'}: 8 updates")
    assert ended[1].out == ended[1].err == ""  # one of them speaks
    start(2, "max_updates=4").wait([0, 0])
    assert main(command("max_updates=8")) == 0  # alone, with dropout of the division for two
    assert losses("run") == pytest.approx(losses("two"), rel=1e-3)
    states = [load_training(list_checkpoints(tmp_path / name)[-1]).state for name in ("two", "run")]
    assert [state["division"] for state in states] == [2, 2]
    for name in ("position", "tgt_tokens"):
        assert states[0][name] == states[1][name]


def test_a_mistake_that_all_make_is_told_once(start: Start) -> None:
    ended = start(2, "label_smoothing=7").wait([1, 1])
    assert ended[0].err.count("error:") == 1
    assert "label_smoothing is 7" in ended[0].err
    assert ended[1].err == ""


def test_other_data_on_another_machine_is_named(other_data: PreparedData, command: Command, tmp_path: Path) -> None:
    words = [command(), command(data=other_data)]
    ended = Ranks(lambda rank: main(words[rank]), 2, tmp_path / "written", QUICK).wait()
    check_all_ended(ended, "rank 1 has another data than rank 0")


def test_a_signal_to_one_rank_stops_all_after_the_same_update(start: Start, tmp_path: Path) -> None:
    ended = start(2, before=raising(lambda: os.kill(os.getpid(), signal.SIGTERM))).wait([143, 143])
    assert "stopped by SIGTERM at update 3" in ended[0].err
    assert ended[1].err == ""
    assert (tmp_path / "run" / "checkpoints" / "interrupted-00000003").is_dir()


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x'"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK is '-1'"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK is 2, but WORLD_SIZE 2"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR is not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1"}, "MASTER_PORT is not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "p"}, "MASTER_PORT is 'p'"),
        ({"WORLD_SIZE": "1", "AIAYN_COLLECTIVE_SECONDS": "soon"}, "AIAYN_COLLECTIVE_SECONDS is 'soon'"),
    ],
)
def test_an_environment_that_makes_no_sense_is_one_message(
    variables: dict[str, str], problem: str, command: Command, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(command()) == 1
    err = capsys.readouterr().err
    assert problem in err
    assert "hint: " in err


def test_a_rank_that_never_comes_is_named(start: Start, command: Command, tmp_path: Path) -> None:
    environment = {**QUICK, "AIAYN_COLLECTIVE_SECONDS": "1.5"}
    ended = Ranks(lambda rank: 0 if rank else main(command()), 2, tmp_path / "written", environment).wait()
    assert ended[0].code == 1
    assert "rank 1 of 2 did not join within 1.5 s" in ended[0].err
