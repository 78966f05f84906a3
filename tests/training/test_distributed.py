"""Two processes learn what one learns, and stop together."""

import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aiayn_cli.data.store import TokenStore
from aiayn_cli.training.distributed import Worker
from aiayn_cli.training.metrics import read_metrics

PROGRAM = Path(__file__).with_name("one_rank.py")
UPDATES = 5
TWO_STATES = ("two/state-0.json", "two/state-1.json")


def start_rank(rank: int, n_ranks: int, port: int, arguments: list[str]) -> subprocess.Popen[str]:
    world = {"WORLD_SIZE": n_ranks, "RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments],
        env={**os.environ, **{name: str(value) for name, value in world.items()}, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )


def two_ranks(store: TokenStore, out: Path, *, interrupted_rank: int) -> None:
    out.mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    arguments = [str(store.folder), str(out), str(interrupted_rank), str(UPDATES)]
    processes = [start_rank(rank, 2, port, arguments) for rank in (0, 1)]
    try:
        for process in processes:
            _, err = process.communicate(timeout=100)
            assert process.returncode == 0, err
    finally:
        for process in processes:
            process.kill()


def one_rank(store: TokenStore, out: Path) -> None:
    out.mkdir()
    runpy.run_path(str(PROGRAM))["learn"](store.folder, out, 0, UPDATES)


def test_two_processes_learn_what_one_does_and_stop_together(
    tmp_path: Path, store_of: Callable[..., TokenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(90)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    one_rank(store, tmp_path / "one")
    two_ranks(store, tmp_path / "two", interrupted_rank=1)  # a signal that only one of them receives

    states = [json.loads((tmp_path / name).read_text()) for name in ("one/state-0.json", *TWO_STATES)]
    assert [(stopped_by, state["step"]) for stopped_by, state in states] == [("SIGTERM", UPDATES)] * 3
    for _, state in states:
        del state["seconds"]
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


def test_the_worker_is_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert Worker.from_environment() == Worker(rank=0, world_size=1, local_rank=0)
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert Worker.from_environment() == Worker(rank=5, world_size=8, local_rank=1)


def test_a_rank_without_a_world_is_not_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other programs set RANK too; there is one process, so its number is 0.
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("RANK", "3")
    assert Worker.from_environment() == Worker()


def test_one_process_needs_no_others() -> None:
    worker, tensor = Worker(), torch.tensor([1.5, -2.0])
    worker.join(torch.device("cpu"))
    assert worker.sum(tensor) is tensor
    assert tensor.tolist() == [1.5, -2.0]
    worker.wait()
    worker.leave()
    assert not torch.distributed.is_initialized()
