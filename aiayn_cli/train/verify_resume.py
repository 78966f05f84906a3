"""`aiayn train --verify-resume`: proof on the user's machine that a killed run resumes exactly."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.metrics_log import read_metrics, standing
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.errors import AiaynError, DataError, Terminated
from aiayn_cli.train.run_folder import held

_UPDATES = 4  # before the checkpoint that the killed run resumes from; it is killed one update later
_TRIES = 4  # each with twice as many updates as the last, which were over before the kill
_TIMES = ("seconds", "saved_seconds")  # of a state: what no two runs share


@dataclass(frozen=True)
class VerifyResult:
    """What `aiayn train --verify-resume` prints."""

    updates: int  # of each of the two runs
    killed_after: int  # last update of the killed run
    resumed_from: int  # update of the checkpoint that it went on from
    digest_unbroken: str  # SHA-256 of weights, optimizer's moments, state and losses of all updates
    digest_resumed: str
    losses: tuple[float, ...]  # of the unbroken run's updates

    def __str__(self) -> str:
        return (
            f"unbroken  {self.digest_unbroken}  {self.updates} updates\n"
            f"resumed   {self.digest_resumed}  killed after update {self.killed_after}, went on from "
            f"{self.resumed_from}\n"
            "the same weights, moments, state and losses, to the last bit"
        )


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """End as after Ctrl-C, so that the run at hand and the folder do not outlive the proof."""

    def end(*_: object) -> None:
        raise Terminated("stopped by SIGTERM", "nothing was proved, and nothing is left behind")

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@_sigterm_raises()
def run_verify_resume(arguments: Sequence[str], run: Path) -> VerifyResult:
    """Train twice in a folder next to the run, once unbroken and once killed with kill -9; nothing is left behind.

    The arguments are those of `aiayn train`, without --out.
    """
    parent = run.absolute().parent
    is_new = not parent.exists()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".verify-resume-", dir=parent))
    try:
        for number in range(_TRIES):
            result = _compare(arguments, folder / str(number), _UPDATES << number)
            if result is None:
                continue
            if result.digest_resumed != result.digest_unbroken:
                raise AiaynError(
                    f"the resumed run differs: {result.digest_resumed} instead of {result.digest_unbroken}",
                    "on a GPU some kernels sum in no fixed order; on a CPU this is a bug, please report it",
                )
            return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if is_new and not any(parent.iterdir()):
            parent.rmdir()
    raise AiaynError(
        f"{_UPDATES << _TRIES - 1} updates were over before they could be killed",
        "training is too fast for this proof: take a larger recipe",
    )


def _compare(arguments: Sequence[str], folder: Path, updates: int) -> VerifyResult | None:
    """Two runs of twice so many updates, the second killed after its first checkpoint; None where it was too fast."""
    settings = {
        "max_updates": 2 * updates, "save_every_steps": updates, "save_every_minutes": 0, "log_every_steps": 1,
        "average_last": 1, "validate_every_saves": 1, "best_metric": "loss", "validation_bleu_pairs": 0,
    }  # fmt: skip
    command = [sys.executable, "-m", "aiayn_cli", "train", *arguments, "--quiet"]
    command += [text for name, value in settings.items() for text in ("--set", f"training.{name}={value}")]
    unbroken, broken = folder / "unbroken", folder / "broken"
    with logs.progress("verifying resume", 3, "runs") as progress:
        _run(command, unbroken)
        progress.advance(1)
        killed_after = _run_and_kill(command, broken, updates)
        if killed_after is None:
            return None
        resumed_from = int(list_checkpoints(broken)[-1].name[5:])
        progress.advance(1)
        _run(command, broken)
        progress.advance(1)
    went_on_from = [record["step"] for record in read_metrics(broken / "metrics.jsonl") if record["event"] == "resume"]
    if went_on_from != [resumed_from]:
        raise AiaynError(
            f"the killed run went on from {went_on_from or 'its beginning'}, not from update {resumed_from}",
            "this is a bug, please report it",
        )
    (expected, losses), (found, _) = _digest(unbroken), _digest(broken)
    return VerifyResult(2 * updates, killed_after, resumed_from, expected, found, tuple(losses))


def _run(command: Sequence[str], run: Path) -> None:
    done = subprocess.run([*command, "--out", str(run)], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise _failed(done.returncode, done.stderr)


def _failed(code: int, err: str) -> AiaynError:
    return AiaynError(f"a run of the comparison ended with code {code}", err.strip()[-2_000:])


def _run_and_kill(command: Sequence[str], run: Path, updates: int) -> int | None:
    """Start a run and kill it when it has done one update more than its first checkpoint; return its last update."""
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen([*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=err)
        try:
            while process.poll() is None and _last_update(run) <= updates:
                time.sleep(0.002)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        if process.returncode not in (0, -signal.SIGKILL):
            err.seek(0)
            raise _failed(process.returncode, err.read().decode(errors="replace"))
    _wait_until_free(run)  # where it had processes of its own
    killed_after = _last_update(run)
    return killed_after if updates < killed_after < 2 * updates else None


def _last_update(run: Path) -> int:
    path = run / "metrics.jsonl"
    if not path.exists():
        return 0
    return max((int(record["step"]) for record in read_metrics(path) if record["event"] == "train"), default=0)


def _wait_until_free(run: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with held(run):
                return
        except DataError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _digest(run: Path) -> tuple[str, list[float]]:
    """SHA-256 of all that two equal runs share, and the loss of each update."""
    newest = list_checkpoints(run)[-1]
    training = load_training(newest)
    digest = hashlib.sha256()
    for tensors in (load_checkpoint(newest).weights(), training.moments):
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    state: dict[str, Any] = {name: value for name, value in training.state.items() if name not in _TIMES}
    losses = [r["loss"] for r in standing(read_metrics(run / "metrics.jsonl")) if r["event"] == "train"]
    digest.update(json.dumps([state, losses], sort_keys=True).encode())
    return digest.hexdigest(), losses
