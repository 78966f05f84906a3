"""Two processes learn what one learns, and stop together."""

import json
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ranks import Ranks
from safetensors.torch import load_file
from torch import distributed as dist

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.data.store import TokenStore
from aiayn_cli.errors import AiaynError
from aiayn_cli.train import distributed, gradient
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.resume import TrainingState

learn = runpy.run_path(str(Path(__file__).parent.with_name("one_rank.py")))["learn"]
UPDATES = 5
ADDRESS = (("MASTER_ADDR", "there"), ("MASTER_PORT", "77"))
TWO_STATES = ("two/state-0.json", "two/state-1.json")


def two_ranks(store: TokenStore, out: Path, *, interrupted_rank: int) -> None:
    out.mkdir()

    def work(_: int) -> int:
        learn(store.folder, out, interrupted_rank, UPDATES)
        return 0

    ended = Ranks(work, 2, out / "written").wait()
    assert [e.code for e in ended] == [0, 0], ended


def one_rank(store: TokenStore, out: Path) -> None:
    out.mkdir()
    learn(store.folder, out, 0, UPDATES)


def test_two_processes_learn_what_one_does_and_stop_together(
    tmp_path: Path, store_of: Callable[..., TokenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(90)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    one_rank(store, tmp_path / "one")
    two_ranks(store, tmp_path / "two", interrupted_rank=1)  # a signal that only one of them receives

    states = [json.loads((tmp_path / name).read_text()) for name in ("one/state-0.json", *TWO_STATES)]
    assert [(stopped_by, state["step"]) for stopped_by, state in states] == [("SIGTERM", UPDATES)] * 3
    norm = states[0][1]["usual_norm"]
    for _, state in states:
        del state["seconds"]
        del state["division"]
        assert state.pop("usual_norm") == pytest.approx(norm, rel=1e-3)
    assert states[0] == states[1] == states[2]

    weights = [load_file(tmp_path / f"two/weights-{rank}.safetensors") for rank in (0, 1)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())

    expected, found = (load_file(tmp_path / name / "gradients-0.safetensors") for name in ("one", "two"))
    torch.testing.assert_close(found["0"], expected["0"], rtol=1e-5, atol=1e-6)
    for update in expected:  # later ones follow Adam's steps, in which a rounded gradient near 0 counts as a whole one
        assert float((found[update] - expected[update]).norm() / expected[update].norm()) < 1e-2

    losses = [[r["loss"] for r in read_metrics(tmp_path / name / "metrics.jsonl")] for name in ("one", "two")]
    assert len(losses[0]) == UPDATES
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_1x4_and_2x2_and_4x1_learn_the_same_with_dropout(
    tmp_path: Path, store_of: Callable[..., TokenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient, "_wants_few_shapes", lambda _: True)  # as on GPUs
    store = store_of(90)
    monkeypatch.delenv("WORLD_SIZE", raising=False)

    def work(out: Path) -> Callable[[int], int]:
        def learns(_: int) -> int:
            learn(store.folder, out, 0, 2, dropout=0.4, division=4)
            return 0

        return learns

    gradients = []
    for ranks in (1, 2, 4):
        out = tmp_path / str(ranks)
        out.mkdir()
        if ranks == 1:
            work(out)(0)
        else:
            assert [e.code for e in Ranks(work(out), ranks, out / "written").wait()] == [0] * ranks
        gradients.append(load_file(out / "gradients-0.safetensors"))
        state = json.loads((out / "state-0.json").read_text())[1]
        assert state["division"] == 4
    for other in gradients[1:]:
        torch.testing.assert_close(other["0"], gradients[0]["0"], rtol=1e-5, atol=1e-7)
    (tmp_path / "divided").mkdir()
    learn(store.folder, tmp_path / "divided", 0, 2, dropout=0.4)  # in other micro-batches, so with other dropout
    divided = load_file(tmp_path / "divided" / "gradients-0.safetensors")
    assert float((divided["0"] - gradients[0]["0"]).norm()) > 0.01 * float(divided["0"].norm())


@pytest.mark.parametrize(("before", "devices", "after"), [(1, 1, 1), (4, 2, 4), (4, 1, 4), (2, 4, 4), (4, 3, 3)])
def test_fewer_devices_keep_the_division_of_more(before: int, devices: int, after: int) -> None:
    assert TrainingState(step=3, division=before).for_devices(devices) == TrainingState(step=3, division=after)


def test_the_worker_is_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert Worker.from_environment() == Worker(rank=0, world_size=1, local_rank=0)
    world = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "3"}
    for name, value in (world | dict(ADDRESS)).items():
        monkeypatch.setenv(name, value)
    assert Worker.from_environment() == Worker(rank=5, world_size=8, local_rank=1, attempt=3)
    monkeypatch.delenv("WORLD_SIZE")  # other programs set RANK too; there is one process, so its number is 0
    assert Worker.from_environment() == Worker()


def test_one_process_needs_no_others() -> None:
    worker, tensor = Worker(), torch.tensor([1.5, -2.0])
    with worker.together():
        assert worker.sum(tensor) is tensor
        worker.spread(tensor)
        assert tensor.tolist() == [1.5, -2.0]
        assert worker.exchange([3, 4]) == [[3, 4]]
        assert worker.from_rank_0(lambda: {"step": 3}) == {"step": 3}
        assert worker.agree("SIGINT") == "SIGINT"
        worker.check_same({"data": "any"})
        worker.wait()
    assert not torch.distributed.is_initialized()


def test_what_ranks_exchange_comes_to_all(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        worker = Worker.from_environment()
        with worker.together():
            assert worker.exchange([rank, 10 * rank, -7]) == [[0, 0, -7], [1, 10, -7], [2, 20, -7]]
            values = worker.from_rank_0(lambda: {"name": f"Zürich {rank}", "value": rank})
            assert values == {"name": "Zürich 0", "value": 0}
            tensor = torch.full((2, 3), float(rank))
            assert worker.sum(tensor.clone()).tolist() == [[3.0] * 3] * 2
            worker.spread(tensor)
            assert tensor.tolist() == [[0.0] * 3] * 2
            assert worker.agree("SIGTERM" if rank == 2 else "") == "SIGTERM"
            assert worker.agree("") == ""
            gathered = [["Zürich 0", ""], ["Zürich 1", ""], ["Zürich 2", ""]]
            assert worker.gather([f"Zürich {rank}", ""]) == (gathered if rank == 0 else [])
            worker.check_same({"data": "the same"})
        return 0

    ended = Ranks(work, 3, tmp_path / "written").wait()
    assert [e.code for e in ended] == [0, 0, 0], ended


def test_a_process_that_dies_while_rank_0_works_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_ROLL_CALL_SECONDS", 2.0)

    def work(rank: int) -> int:
        worker = Worker.from_environment()
        try:
            with worker.together():
                if rank == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                worker.from_rank_0(lambda: time.sleep(1) or {})
                worker.wait()
        except AiaynError as error:
            print(f"error: {error.problem}", file=sys.stderr)
            return 1
        return 0

    ended = Ranks(work, 2, tmp_path / "written").wait(60)
    assert [e.code for e in ended] == [1, -9], ended
    assert "error: rank 1 on " in ended[0].err


def test_a_process_that_dies_while_all_connect_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        time.sleep(0.5)  # until the other has found it
        os.kill(os.getpid(), signal.SIGKILL)

    def work(rank: int) -> int:
        if rank == 0:
            monkeypatch.setattr(dist, "init_process_group", killed)
        try:
            with Worker.from_environment().together():
                return 0
        except AiaynError as error:
            print(f"error: {error.problem}", file=sys.stderr)
            return 1

    ended = Ranks(work, 2, tmp_path / "written").wait(60)
    assert [e.code for e in ended] == [-9, 1], ended
    assert "error: rank 0 on " in ended[1].err


def test_an_error_of_rank_0_at_work_alone_ends_all(tmp_path: Path) -> None:
    def work(_: int) -> int:
        worker = Worker.from_environment()
        try:
            with worker.together():
                worker.from_rank_0(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        except (AiaynError, ZeroDivisionError) as error:
            print(repr(error), file=sys.stderr)
            return 1
        return 0

    ended = Ranks(work, 2, tmp_path / "written").wait(60)
    assert [e.code for e in ended] == [1, 1], ended
    assert "ZeroDivisionError" in ended[0].err
    assert max(e.seconds for e in ended) < 20


def test_a_pause_of_all_processes_is_no_failure(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        worker = Worker.from_environment()
        with worker.together():
            end = time.monotonic() + 2
            while worker.from_rank_0(lambda: {"go": time.monotonic() < end})["go"]:
                time.sleep(0.05)
        return 0

    ranks = Ranks(work, 2, tmp_path / "written")
    time.sleep(1)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in ranks.pids:
            os.kill(pid, number)
        time.sleep(1.5 if number == signal.SIGSTOP else 0)
    assert [e.code for e in ranks.wait(60)] == [0, 0]


def test_a_rank_0_that_ends_before_all_have_come_is_named(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        worker = Worker.from_environment()
        try:
            with worker.together():
                return 0
        except AiaynError as error:
            print(f"error: {error.problem}", file=sys.stderr)
            return 1

    def dying(rank: int) -> int:
        if rank == 0:
            timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL))
            timer.start()
        return work(rank) if rank < 2 else 0  # rank 2 never comes

    ended = Ranks(dying, 3, tmp_path / "written").wait(60)
    assert [e.code for e in ended] == [-9, 1, 0]
    assert "error: rank 1 has lost rank 0 before all 3 had come" in ended[1].err
