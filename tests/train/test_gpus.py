"""The launchers' own processes: --gpus with restarts, torchrun under SLURM, and two hosts of which one is cut off."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranks import Ended, Ranks, free_port
from small_run import state_of, tensors_of

from aiayn_cli.app import main
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import checkpoint_path, list_checkpoints, newest_resumable
from aiayn_cli.data.prepared import PreparedData

pytestmark = pytest.mark.usefixtures("one_process")

CHECKOUT = Path(__file__).parent.parent.parent
# In the process of rank 1: as soon as the run has a checkpoint, kill -9 itself or send a signal to the launcher.
HOOK = """
import os, pathlib, signal, threading, time
def act(checkpoint, number):
    while not pathlib.Path(checkpoint).exists():
        time.sleep(0.005)
    os.kill(os.getpid() if number == signal.SIGKILL else os.getppid(), number)
plan = {plan!r}
if os.environ.get("RANK") == "1":
    threading.Thread(target=act, args=plan[int(os.environ["TORCHELASTIC_RESTART_COUNT"])], daemon=True).start()
"""


@pytest.fixture
def options(small_data: PreparedData, small_recipe: Path) -> list[str]:
    named = {"--recipe": small_recipe, "--data": small_data.folder, "--device": "cpu"}
    settings = ("--set", "training.validate_every_saves=1000", "--set", "training.ema_decay=0.9")
    return [*(str(word) for pair in named.items() for word in pair), *settings]


def test_processes_that_are_killed_restarted_stopped_and_continued_end_as_if_nothing_had_happened(
    options: list[str], tmp_path: Path
) -> None:
    run, hook = tmp_path / "run", tmp_path / "hook"
    hook.mkdir()
    environment = {"PYTHONPATH": os.pathsep.join([str(hook), str(CHECKOUT)])}

    def launched(*plan: tuple[int, signal.Signals], more: tuple[str, ...] = ()) -> Ended:
        """As a user types it, with a signal when the run has the checkpoint of an update, in each attempt."""
        signals = [(str(checkpoint_path(run, step)), int(number)) for step, number in plan]
        (hook / "sitecustomize.py").write_text(HOOK.format(plan=signals))
        words = ["train", *options, "--set", "training.max_updates=1000000", "--out", str(run), "--gpus", "2", *more]
        return Ranks(lambda _: main(words), 1, tmp_path / "typed", environment, address=None).wait(seconds=200)[0]

    stopped = launched((8, signal.SIGKILL), (20, signal.SIGTERM), more=("--max-restarts", "1"))
    assert (stopped.code, stopped.out) == (143, ""), stopped
    assert re.search(r"warning: torch's launcher: failed \(exitcode: -9\) local_rank: 1", stopped.err), stopped.err
    assert f"resuming {run} from update" in stopped.err
    assert f"error: stopped by SIGTERM at update {last_update(run)}; {run} is saved" in stopped.err
    assert "Traceback" not in stopped.err

    end = last_update(run) // 4 * 4 + 8
    for name in ("run", "unbroken"):
        words = ["train", *options, "--set", f"training.max_updates={end}", "--out", str(tmp_path / name)]
        ended = Ranks(lambda _, words=words: main(words), 2, tmp_path / "written").wait([0, 0])
        assert ended[0].out.startswith(f"{tmp_path / name}: {end} updates")
    assert state_of(run) == state_of(tmp_path / "unbroken")
    assert tensors_of(run) == tensors_of(tmp_path / "unbroken")


def last_update(run: Path) -> int:
    newest = newest_resumable(run)
    return load_checkpoint(newest).step


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "2", "--set", "training.max_updates=0"], "training.max_updates is 0"),
        (["--gpus", "2", "--data", "nowhere"], "nowhere has not been prepared yet"),
        (["--gpus", "2", "--device", "cuda:1"], "--gpus 2 and --device cuda:1 contradict each other"),
        (["--gpus", "999", "--device", "auto"], "--gpus 999, but"),
    ],
)
def test_what_would_fail_in_every_process_is_said_once_before_any_starts(
    arguments: list[str], message: str, options: list[str], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("aiayn_cli.train.launch.elastic_launch", lambda *_: pytest.fail("it started processes"))
    assert main(["train", *options, *arguments]) in (1, 2)
    assert message in capsys.readouterr().err


def test_gpus_under_torchrun_is_refused(
    options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", *options, "--gpus", "2"]) == 2
    assert "torchrun has started this one" in capsys.readouterr().err


# Starts what SLURM would start on each node, here, and ends with the first code above 0.
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
pids=
for node in $(seq "$SLURM_JOB_NUM_NODES"); do "$@" & pids="$pids $!"; done
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit "$code"
"""


def test_the_slurm_script_trains_on_two_nodes(options: list[str], tmp_path: Path) -> None:
    programs = {
        "srun": SRUN,
        "scontrol": '#!/bin/sh\n[ "$*" = "show hostnames node[1-2]" ] && printf "localhost\\nelsewhere\\n"\n',
        "torchrun": f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n',
    }
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    slurm = {
        "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "77", "SLURM_GPUS_ON_NODE": "1",
        "MASTER_PORT": str(free_port()), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(CHECKOUT),
        "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    run = tmp_path / "run"
    done = subprocess.run(
        ["bash", str(CHECKOUT / "recipes" / "train.slurm"), *options, "--out", str(run)],
        env={**os.environ, **slurm}, capture_output=True, text=True, check=False, timeout=200, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{run}: 12 updates")
    start = next(r for r in read_metrics(run / "metrics.jsonl") if r["event"] == "start")
    assert start["devices"] == 2


@pytest.fixture
def two_hosts() -> Iterator[Callable[[], None]]:
    """Two network namespaces, aiayn-PID-0 and -1, with a cable between; gives what cuts it."""
    ip = shutil.which("ip")
    if os.geteuid() != 0 or ip is None:
        pytest.skip("network namespaces need root and `ip`")
    names = [f"aiayn-{os.getpid()}-{number}" for number in (0, 1)]

    def run(*words: str, check: bool = True) -> bool:
        done = subprocess.run([ip, *words], capture_output=True, text=True, check=False)
        if check and done.returncode:
            pytest.skip(f"ip {' '.join(words)}: {done.stderr.strip()}")
        return done.returncode == 0

    try:
        for name in names:
            run("netns", "add", name)
        run("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for number, name in enumerate(names, 1):
            run("-n", name, "address", "add", f"10.231.77.{number}/24", "dev", "cable")
            for device in ("lo", "cable"):
                run("-n", name, "link", "set", device, "up")
        yield lambda: run("-n", names[1], "link", "set", "cable", "down") and None
    finally:
        for name in names:
            run("netns", "delete", name, check=False)


def test_two_hosts_train_one_run_and_a_cut_cable_ends_both_within_a_minute(
    two_hosts: Callable[[], None], options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(socket.socket, "connect", socket.SocketType.connect)  # no network but the cable
    many = ["--set", "training.max_updates=1000000", "--set", "training.keep_checkpoints=2"]

    def work(rank: int) -> int:
        return main(["train", *options, *many, "--out", str(tmp_path / f"host-{rank}" / "run")])

    environment = {"AIAYN_COLLECTIVE_SECONDS": "6", "GLOO_SOCKET_IFNAME": "cable"}
    namespaces = [f"/run/netns/aiayn-{os.getpid()}-{number}" for number in (0, 1)]
    ranks = Ranks(work, 2, tmp_path / "written", environment, address="10.231.77.1", namespaces=namespaces)
    metrics = tmp_path / "host-0" / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not (metrics.exists() and sum(r["event"] == "train" for r in read_metrics(metrics)) >= 10):
        assert time.monotonic() < deadline, ranks.wait(seconds=1)
        time.sleep(0.05)
    two_hosts()
    cut = time.monotonic()
    ended = ranks.wait()
    assert time.monotonic() - cut < 60
    assert [e.code for e in ended] == [1, 1]
    assert "error: rank 1 on " in ended[0].err
    assert "cut off from the network" in ended[0].err
    assert "error: rank 0 on " in ended[1].err
    assert not (tmp_path / "host-1").exists()  # only the first host needs the run's folder
    newest = list_checkpoints(tmp_path / "host-0" / "run")[-1]
    assert load_training(newest).state["step"] == load_checkpoint(newest).step > 0
