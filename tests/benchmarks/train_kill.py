"""A soak of `aiayn train`: killed at random moments, and in the end the same to the last bit as a run left alone.

    python tests/benchmarks/train_kill.py [--times 50] [--seed 1] [--updates 40]

A tiny network with dropout, several micro-batches in an update, a moving average, validation by BLEU and patience
learns made-up pairs. The runs after the first are ended by a signal again and again, each time in one of three ways: at
a random moment of the whole run; a few milliseconds after something unfinished appears in the run's folder, which
is inside the writing or the removal of a checkpoint; or while it validates. One signal in five is a SIGTERM, which
saves. Then the same command goes on; what it does after so many signals in all it does undisturbed.

Compared are weights, moments, moving average and state of the last checkpoint, which checkpoints there are and which
is the best, losses and gradient norms of all updates, all validations, and the average of the last checkpoints.
Prints where the runs were when they died, and exits with 1 where anything differs.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
RECIPE = """
data: {corpus: none}
model: {n_encoder_layers: 1, n_decoder_layers: 1, d_model: 16, d_ff: 24, n_heads: 2, d_k: 8, d_v: 8, dropout: 0.2}
training:
  {batch_tokens: 120, max_tokens: 70, max_updates: UPDATES, learning_rate_scale: 0.3, warmup_steps: 8, precision: fp32,
   save_every_steps: 3, keep_checkpoints: 3, average_last: 3, validate_every_saves: 2, validation_bleu_pairs: 6,
   patience: 1000, ema_decay: 0.9, log_every_steps: 1}
decoding: {beam_size: 2, max_extra: 2}
"""
TIMES = ("seconds", "saved_seconds")  # of a state: what no two runs share


def start(words: list[str], log: Path) -> int:
    """Run `aiayn WORDS` in a process forked from this one, which has torch loaded already; return its id."""
    from aiayn_cli.app import main

    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for number in (1, 2):
                os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
            code = main(words)
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid


def has_ended(pid: int) -> int | None:
    """The exit code of a process, minus the signal that ended it; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def unfinished(run: Path) -> bool:
    """Whether something that is not whole yet is in the run's folder."""
    names = [*_names(run), *_names(run / "checkpoints")]
    return any(name.startswith(".unfinished-") for name in names)


def validating(run: Path) -> bool:
    """Whether the newest record is of an update after which a validation is due."""
    try:
        last = json.loads((run / "metrics.jsonl").read_bytes().rstrip(b"\n").rpartition(b"\n")[2])
    except (OSError, ValueError):
        return False
    return last["event"] == "train" and last["step"] % 6 == 0


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def where(run: Path) -> str:
    """What a run was doing when it died, as far as its folder shows it."""
    from aiayn_cli.checkpoint.run_checkpoints import newest_resumable

    newest = newest_resumable(run)
    step = -1 if newest is None else int(newest.name.rpartition("-")[2])
    for name in _names(run / "checkpoints"):
        if name == ".unfinished-best":
            return "marking the best"
        if name.startswith(".unfinished-"):
            return "writing a checkpoint" if int(name.rpartition("-")[2]) > step else "removing a checkpoint"
    if any(name.startswith(".unfinished-") for name in _names(run)):
        return "writing the report or the recipe"
    if not (run / "metrics.jsonl").exists():
        return "starting a new run"
    if validating(run):
        return "validating"
    last = (run / "metrics.jsonl").read_bytes().rstrip(b"\n").rpartition(b"\n")[2]
    try:
        event = json.loads(last)["event"]
    except ValueError:
        return "within a line of metrics.jsonl"
    started = {"resume": "going on", "start": "the largest batch, or the first update"}
    return started.get(event, "between validation and checkpoint" if event == "validation" else "in updates")


def outcome(run: Path) -> dict[str, str]:
    """What two equal runs share, as digests by name."""
    from aiayn_cli.average.session import AverageOptions, run_average
    from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
    from aiayn_cli.checkpoint.metrics_log import read_metrics, standing
    from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints

    checkpoints = list_checkpoints(run)
    training = load_training(checkpoints[-1])
    records = standing(read_metrics(run / "metrics.jsonl"))

    def values(event: str, *names: str) -> list[list[object]]:
        return [[record[name] for name in ("step", *names)] for record in records if record["event"] == event]

    found: dict[str, object] = {
        "state": {name: value for name, value in training.state.items() if name not in TIMES},
        "folder": sorted(path.name for path in (run / "checkpoints").iterdir()),
        "best": str((run / "checkpoints" / "best").readlink()),
        "updates": values("train", "loss", "gradient_norm", "learning_rate", "pairs", "epoch", "flops"),
        "validations": values("validation", "loss", "bleu", "best"),
        "samples": values("samples", "translations"),
        "recipe": (run / "recipe.yaml").read_text(encoding="utf-8"),
    }
    tensors = {
        "weights": load_checkpoint(checkpoints[-1]).weights(),
        "moments": training.moments,
        "average": load_checkpoint(run_average([run], AverageOptions(out=run / "averaged")).model).weights(),
    }
    digests = {name: hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16] for name, value in found.items()}
    for name, some in tensors.items():
        digest = hashlib.sha256()
        for key, tensor in sorted(some.items()):
            digest.update(key.encode() + tensor.contiguous().numpy().tobytes())
        digests[name] = digest.hexdigest()[:16]
    return digests


def life(words: list[str], run: Path, log: Path, chance: random.Random, whole_seconds: float) -> tuple[int, str]:
    """Start a run and end it at some moment; return its exit code and what it was doing."""
    moments: list[Callable[[Path], bool] | None] = [None, unfinished, validating]
    moment = chance.choice(moments)
    delay = chance.uniform(0, whole_seconds / 4) if moment is None else chance.expovariate(1 / 0.004)
    times = chance.randint(1, 3)  # of the moment that are let pass
    number = signal.SIGTERM if chance.random() < 0.2 else signal.SIGKILL
    pid = start(words, log)
    began = is_now = False
    while (code := has_ended(pid)) is None:
        was, is_now = is_now, moment is None or moment(run)
        times -= is_now and not was
        if moment is None or times <= 0 or began:
            began = True
            time.sleep(delay)
            os.kill(pid, number)
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status), where(run)
        time.sleep(0.0005)
    return code, "at its end"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--updates", type=int, default=40)
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ["OMP_NUM_THREADS"] = "1"
    from small_run import prepare_small_data  # loads torch, which is to have one thread

    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = folder / "tiny-kill.yaml"
        recipe.write_text(RECIPE.replace("UPDATES", str(arguments.updates)), encoding="utf-8")
        prepared = prepare_small_data(folder, seed=5).folder
        common = ["train", "--recipe", str(recipe), "--data", str(prepared), "--device", "cpu", "--quiet"]
        began = time.perf_counter()
        pid = start([*common, "--out", str(folder / "unbroken")], folder / "log")
        _, status = os.waitpid(pid, 0)
        assert status == 0, (folder / "log").read_text(encoding="utf-8")
        whole_seconds = time.perf_counter() - began
        expected = outcome(folder / "unbroken")
        died: Counter[str] = Counter()
        signals: Counter[str] = Counter()
        runs, faults = 0, 0
        while sum(died.values()) < arguments.times:
            runs += 1
            run, log = folder / f"run-{runs}", folder / f"log-{runs}"
            words = [*common, "--out", str(run)]
            code = -1
            while code != 0:
                if sum(died.values()) < arguments.times:
                    code, doing = life(words, run, log, chance, whole_seconds)
                    if code in (-signal.SIGKILL, -signal.SIGTERM, 143):
                        died[doing] += 1
                        signals["SIGKILL" if code == -signal.SIGKILL else "SIGTERM"] += 1
                else:
                    _, status = os.waitpid(start(words, log), 0)
                    code = os.waitstatus_to_exitcode(status)
                if code not in (0, -signal.SIGKILL, -signal.SIGTERM, 143):
                    print(f"run {runs} ended with code {code}:\n{log.read_text(encoding='utf-8')[-3_000:]}")
                    sys.exit(1)
            different = [key for key, value in outcome(run).items() if value != expected[key]]
            faults += bool(different)
            print(
                f"run {runs}: {sum(died.values())} signals so far, "
                + (f"DIFFERENT: {different}" if different else "the same")
            )
    print(f"\n{sum(died.values())} signals ({dict(signals)}) in {runs} runs of {arguments.updates} updates; they came")
    for doing, count in died.most_common():
        print(f"  {count:4}  {doing}")
    digest = hashlib.sha256(json.dumps(expected).encode()).hexdigest()
    print(f"{runs - faults} of {runs} runs ended as the one that nothing happened to: {digest[:16]}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
