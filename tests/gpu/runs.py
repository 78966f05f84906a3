"""Checks of whole runs on the built-in corpus: stopped and continued, launched, and translated with."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from figures import Figures
from setting import Setting
from torch import distributed as dist

from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.model.build import build_model
from aiayn_cli.prepare.pipeline import run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.score.metrics import bleu
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.options import TrainOptions
from aiayn_cli.train.session import run_train
from aiayn_cli.translate.line_translator import LineTranslator


def resume(setting: Setting) -> Figures:
    """A run that was stopped and continued ends where an unbroken one does."""
    first, second = (train_demo(setting, name, stops=()) for name in ("unbroken", "again"))
    continued = train_demo(setting, "continued", stops=(setting_updates(setting) // 2,))
    noise, difference = apart(first, second), apart(first, continued)
    places = [
        {name: state[name] for name in ("step", "position", "tgt_tokens", "flops", "skipped")}
        for state in (
            json.loads((list_checkpoints(run)[-1] / "training" / "state.json").read_bytes())
            for run in (first, continued)
        )
    ]
    return {
        # Where the device adds in an order of its own, two unbroken runs differ too, and resuming may add no more.
        "passed": difference <= 3 * noise and (difference == 0 or noise > 0) and places[0] == places[1],
        "bit_for_bit": difference == 0,
        "relative_difference": difference,
        "relative_difference_of_two_unbroken_runs": noise,
    }


def distributed(setting: Setting) -> Figures:
    """One process under the elastic launcher gives what a plain run gives; the device's collectives work."""
    plain = train_demo(setting, "unbroken", stops=())
    run = setting.folder / "runs" / "launched"
    command = [sys.executable, "-m", "aiayn_cli", "train", *demo_arguments(setting, run), "--gpus", "1", "--quiet"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if result.returncode != 0:
        return {"passed": False, "error": result.stderr[-2000:]}
    is_cuda = setting.device.device.type == "cuda"
    gradient = torch.ones(1 << 16 if setting.small else 213_000_000, device=setting.device.device)
    with group_of_one("nccl" if is_cuda else "gloo", setting.folder / "store"):
        worker = Worker(rank=0, world_size=2, local_rank=0)  # takes the way of several
        worker.sum(gradient)
        setting.wait()
        started = time.perf_counter()
        worker.sum(gradient)
        setting.wait()
        seconds = time.perf_counter() - started
    difference = apart(plain, run)
    return {
        "passed": difference < 1e-2 and bool((gradient == 1).all()),
        "relative_difference": difference,
        "all_reduce_seconds": round(seconds, 5),
    }


def decoding(setting: Setting) -> Figures:
    """What the device translates in float32 is what the CPU translates."""
    data = demo(setting)
    checkpoint = load_checkpoint(list_checkpoints(train_demo(setting, "unbroken", stops=()))[-1])
    count = 20 if setting.small else 200
    sources, references = data.read_text("valid", "src")[:count], data.read_text("valid", "tgt")[:count]
    outputs, seconds = {}, {}
    places = {"device": setting.device.device, "cpu": torch.device("cpu")}
    for name, place in places.items():
        model = build_model(checkpoint.model, checkpoint.vocab_size)
        checkpoint.load_into(model)
        device = replace(setting.device, device=place, dtype=torch.float32)
        translator = LineTranslator([model.eval()], data.codec(), device, checkpoint.decoding)
        started = time.perf_counter()
        outputs[name] = translator.translate(sources)
        seconds[name] = round(time.perf_counter() - started, 2)
    same = sum(a == b for a, b in zip(outputs["device"], outputs["cpu"], strict=True)) / count
    return {
        "passed": same >= 0.98,  # sums in another order may turn a near tie around
        "same_lines": same,
        "bleu_device": round(bleu(outputs["device"], [references]).score, 2),
        "bleu_cpu": round(bleu(outputs["cpu"], [references]).score, 2),
        "seconds_device": seconds["device"],
        "seconds_cpu": seconds["cpu"],
    }


def demo(setting: Setting) -> PreparedData:
    """The built-in corpus, prepared once."""
    folder = setting.folder / "prepared" / "demo"
    if not folder.exists():
        run_prepare(PrepareOptions(corpus="demo", recipe="tiny", out=folder, workers=1))
    return PreparedData.load(folder)


def setting_updates(setting: Setting) -> int:
    return 8 if setting.small else 400


def demo_arguments(setting: Setting, run: Path, updates: int | None = None) -> list[str]:
    """Of `aiayn train`, for a run on the built-in corpus."""
    settings = {
        "max_updates": updates or setting_updates(setting),
        "save_every_steps": max(1, setting_updates(setting) // 4),
        "validate_every_saves": 1000,
        "validation_bleu_pairs": 8,
        "compile": "off",
    }
    return [
        "--recipe", "tiny", "--data", str(demo(setting).folder), "--out", str(run), "--device", setting.device_name,
        *(text for name, value in settings.items() for text in ("--set", f"training.{name}={value}")),
    ]  # fmt: skip


def train_demo(setting: Setting, name: str, stops: tuple[int, ...]) -> Path:
    """Train on the built-in corpus, stopped after some updates and continued; once for each name."""
    run = setting.folder / "runs" / name
    if not run.exists():
        for updates in (*stops, setting_updates(setting)):
            arguments = demo_arguments(setting, run, updates)
            overrides = [text for flag, text in pairwise(arguments) if flag == "--set"]
            run_train(
                TrainOptions(
                    recipe="tiny", overrides=overrides, data=demo(setting).folder, out=run, device=setting.device_name
                )
            )
    return run


def apart(one: Path, other: Path) -> float:
    """How far the last weights of two runs are from each other: norm of the difference / norm."""
    weights, others = (load_checkpoint(list_checkpoints(run)[-1]).weights() for run in (one, other))
    difference = sum(float((weights[name] - others[name]).norm()) ** 2 for name in weights)
    return math.sqrt(difference / sum(float(weight.norm()) ** 2 for weight in weights.values()))


@contextmanager
def group_of_one(backend: str, store: Path) -> Iterator[None]:
    dist.init_process_group(backend, init_method=f"file://{store}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
