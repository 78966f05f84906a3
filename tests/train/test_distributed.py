"""Two processes learn what one learns, and stop together."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from ranks import Ranks
from safetensors.torch import load_file, save_file
from torch import distributed as dist
from watched_trainer import watch_steps

from aiayn_cli.checkpoint.metrics_log import MetricsLog, read_metrics
from aiayn_cli.data.store import TokenStore
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import TrainingConfig
from aiayn_cli.train import distributed, gradient
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Hooks, Trainer

UPDATES = 5
ADDRESS = (("MASTER_ADDR", "there"), ("MASTER_PORT", "77"))
Learn = Callable[..., None]


@pytest.fixture
def learn(
    store_of: Callable[..., TokenStore], model_of: Callable[..., TranslationModel], monkeypatch: pytest.MonkeyPatch
) -> Learn:
    """Train as the rank that the environment says, and leave gradients, weights and state in a folder."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    store = store_of(90)
    config = TrainingConfig(batch_tokens=150, max_tokens=40, max_updates=99, warmup_steps=4, log_every_steps=1)

    def learn(
        out: Path, interrupted_rank: int, interrupted_update: int, *, dropout: float = 0.0, division: int = 1
    ) -> None:
        model = model_of(dropout=dropout)
        optimizer = MasterAdam(model, config)
        gradients = watch_steps(optimizer)
        worker = Worker.from_environment()
        metrics = MetricsLog(out / "metrics.jsonl" if worker.rank == 0 else None)
        stop = (interrupted_rank, interrupted_update)
        hooks = Hooks(
            save=lambda *_: worker.wait(),
            interrupted=lambda: "SIGTERM" if (worker.rank, len(gradients) + 1) == stop else "",
        )
        state = TrainingState(division=division).for_devices(worker.world_size)
        with worker.together():
            trainer = Trainer(model, optimizer, store, config, worker, metrics, hooks, state)
            stopped_by = trainer.train()
        weights = {name: weight.clone() for name, weight in optimizer.weights().items()}
        save_file(weights, out / f"weights-{worker.rank}.safetensors")
        named = {str(number): each for number, each in enumerate(gradients)}
        save_file(named, out / f"gradients-{worker.rank}.safetensors")
        (out / f"state-{worker.rank}.json").write_text(json.dumps([stopped_by, trainer.state.to_json()]))

    return learn


def test_two_processes_learn_what_one_does_and_stop_together(learn: Learn, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    learn(tmp_path / "one", 0, UPDATES)
    # A signal that only one of them receives.
    Ranks(lambda _: learn(tmp_path / "two", 1, UPDATES) or 0, 2, tmp_path / "written").wait([0, 0])

    files = ("one/state-0.json", "two/state-0.json", "two/state-1.json")
    states = [json.loads((tmp_path / name).read_text()) for name in files]
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
    learn: Learn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient, "_wants_few_shapes", lambda _: True)  # as on GPUs

    def first_gradient(ranks: int, division: int) -> torch.Tensor:
        out = tmp_path / f"{ranks} {division}"
        out.mkdir()
        if ranks == 1:
            learn(out, 0, 2, dropout=0.4, division=division)
        else:
            started = Ranks(lambda _: learn(out, 0, 2, dropout=0.4, division=division) or 0, ranks, out / "written")
            started.wait([0] * ranks)
        assert json.loads((out / "state-0.json").read_text())[1]["division"] == division
        return load_file(out / "gradients-0.safetensors")["0"]

    alone = first_gradient(1, division=4)
    for ranks in (2, 4):
        torch.testing.assert_close(first_gradient(ranks, division=4), alone, rtol=1e-5, atol=1e-7)
    undivided = first_gradient(1, division=1)  # in other micro-batches, so with other dropout
    assert float((undivided - alone).norm()) > 0.01 * float(undivided.norm())


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


@pytest.fixture
def together(tmp_path: Path) -> Callable[..., Ranks]:
    """Start ranks that do some work when all have come; an error of one is told as the command tells it."""

    def start(n: int, work: Callable[[Worker], object], before: Mapping[int, Callable[[], object]] = {}) -> Ranks:
        def each(rank: int) -> int:
            before.get(rank, lambda: None)()
            worker = Worker.from_environment()
            try:
                with worker.together():
                    work(worker)
            except (AiaynError, ZeroDivisionError) as error:
                print(f"error: {getattr(error, 'problem', repr(error))}", file=sys.stderr)
                return 1
            return 0

        return Ranks(each, n, tmp_path / "written")

    return start


def kill_me() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_while_rank_0_works_ends_all(
    together: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "_ROLL_CALL_SECONDS", 2.0)

    def work(worker: Worker) -> None:
        if worker.rank == 1:
            kill_me()
        worker.from_rank_0(lambda: time.sleep(1) or {})
        worker.wait()

    ended = together(2, work).wait([1, -9], 60)
    assert "error: rank 1 on " in ended[0].err


def test_a_process_that_dies_while_all_connect_is_named(
    together: Callable[..., Ranks], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        time.sleep(0.5)  # until the other has found it
        kill_me()

    before = {0: lambda: monkeypatch.setattr(dist, "init_process_group", killed)}
    ended = together(2, lambda _: None, before).wait([-9, 1], 60)
    assert "error: rank 0 on " in ended[1].err


def test_a_rank_0_that_ends_before_all_have_come_is_named(together: Callable[..., Ranks]) -> None:
    before = {0: threading.Timer(1.0, kill_me).start, 2: lambda: os._exit(0)}  # rank 2 never comes
    ended = together(3, lambda _: None, before).wait([-9, 1, 0], 60)
    assert "error: rank 1 lost rank 0 before all 3 had joined" in ended[1].err


def test_an_error_of_rank_0_at_work_alone_ends_all(together: Callable[..., Ranks]) -> None:
    ended = together(2, lambda worker: worker.from_rank_0(lambda: 1 / 0)).wait([1, 1], 60)
    assert "ZeroDivisionError" in ended[0].err
    assert max(e.seconds for e in ended) < 20


def test_a_pause_of_all_processes_is_no_failure(together: Callable[..., Ranks]) -> None:
    def work(worker: Worker) -> None:
        end = time.monotonic() + 2
        while worker.from_rank_0(lambda: {"go": time.monotonic() < end})["go"]:
            time.sleep(0.05)

    ranks = together(2, work)
    time.sleep(1)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in ranks.pids:
            os.kill(pid, number)
        time.sleep(1.5 if number == signal.SIGSTOP else 0)
    ranks.wait([0, 0], 60)
