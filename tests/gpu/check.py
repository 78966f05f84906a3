"""Speed, memory and exactness on one GPU; see check.sh.

Each check prints a line and adds its figures to the JSON; what is wrong makes the exit code 1. Speed is measured, and
set beside the goals, but decides nothing. Everything is made here: sentences with lengths like those of WMT14
English-German in 37,000 sub-words, and the built-in corpus for the runs that are stopped, continued and translated.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import torch
from figures import Figures, as_text, graphs_made, machine
from made_sentences import sentences_like_wmt
from torch import distributed as dist

from aiayn_cli import logs
from aiayn_cli.checkpoint import load_checkpoint
from aiayn_cli.config import ModelConfig, TrainingConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import TokenStore
from aiayn_cli.decoding.translator import Translator
from aiayn_cli.device import Device, choose_device, matmul_rate
from aiayn_cli.evaluation.bleu import bleu
from aiayn_cli.model.build import build_model
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel, count_parameters
from aiayn_cli.recipe import load_recipe
from aiayn_cli.run_checkpoints import list_checkpoints
from aiayn_cli.stages.prepare import run_prepare
from aiayn_cli.stages.train import run_train
from aiayn_cli.training.compilation import compile_layers
from aiayn_cli.training.distributed import Worker
from aiayn_cli.training.metrics import MetricsLog, read_metrics
from aiayn_cli.training.optimizer import MasterAdam
from aiayn_cli.training.trainer import Hooks, Trainer, TrainingState

GOALS = {"base": 0.40, "big": 0.50}  # MFU on one H100, as a share of its measured rate in large products
TINY = ModelConfig(n_encoder_layers=2, n_decoder_layers=2, d_model=64, d_ff=128, n_heads=4, d_k=16, d_v=16)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--small", action="store_true", help="tiny networks for seconds: does this program work?")
    parser.add_argument("--compile", default="auto", choices=("auto", "on", "off"), help="auto = on a GPU only")
    parser.add_argument("--seconds", type=float, help="measured seconds of each size; default 25, with --small 1")
    parser.add_argument("--only", default="", help="names of checks, with commas; default: all")
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="the JSON to write")
    arguments = parser.parse_args()
    logs.setup(logs.QUIET)
    device = choose_device(arguments.device)
    print(device.explanation)
    checks: dict[str, Callable[[Setting], Figures]] = {
        "base": lambda setting: speed(setting, "base"),
        "big": lambda setting: speed(setting, "big"),
        "precision": precision,
        "resume": resume,
        "distributed": distributed,
        "decoding": decoding,
    }
    wanted = [name for name in arguments.only.split(",") if name] or list(checks)
    results: Figures = {"machine": machine(device), "checks": {}}
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(arguments, device, Path(folder))
        for name in wanted:
            started = time.perf_counter()
            try:
                figures = checks[name](setting)
            except Exception as error:  # the other checks are worth their time all the same
                figures = {"passed": False, "error": f"{type(error).__name__}: {error}"}
                if arguments.small:
                    raise
            figures["check_seconds"] = round(time.perf_counter() - started, 1)
            results["checks"][name] = figures
            print(f"{'ok    ' if figures['passed'] else 'WRONG '} {name}: {as_text(figures)}", flush=True)
    results["passed"] = all(figures["passed"] for figures in results["checks"].values())
    results["seconds"] = round(sum(figures["check_seconds"] for figures in results["checks"].values()), 1)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"{results['seconds']:.0f} s; all figures: {arguments.out}")
    return 0 if results["passed"] else 1


class Setting:
    """Where and how large the checks are."""

    def __init__(self, arguments: argparse.Namespace, device: Device, folder: Path) -> None:
        self.device, self.device_name, self.folder = device, arguments.device, folder
        self.small, self.compile = arguments.small, arguments.compile
        self.seconds = arguments.seconds if arguments.seconds is not None else 1.0 if self.small else 25.0

    def wait(self) -> None:
        """Until the device has done what it was asked to do."""
        if self.device.device.type == "cuda":
            torch.cuda.synchronize(self.device.device)


def speed(setting: Setting, size: str) -> Figures:
    """Train the paper's base or big model with its own recipe for a while."""
    recipe = load_recipe(size)
    shape, config = (TINY, recipe.training) if setting.small else (recipe.model, recipe.training)
    vocab_size = 1_000 if setting.small else 37_000
    tokens = 1_000 if setting.small else 25_000
    config = replace(config, batch_tokens=tokens, max_tokens=tokens, max_updates=10**9, save_every_steps=10**9)
    if setting.small:
        config = replace(config, warmup_steps=100)  # so that few updates learn something
    store = sentences_like_wmt(setting.folder / size, 2_000 if setting.small else 200_000, vocab_size)
    if setting.device.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(setting.device.device)
    rate = matmul_rate(setting.device)
    torch.manual_seed(1)
    model = build_model(shape, vocab_size).to(setting.device.device, setting.device.dtype)
    compiled = compile_layers(model, setting.compile, setting.device.device)
    marks: list[tuple[float, TrainingState]] = []
    started, graphs = time.perf_counter(), 0

    def enough() -> str:
        nonlocal graphs
        now, state = time.perf_counter(), trainer.state
        if graphs != (graphs := graphs_made()):
            marks.clear()  # something was compiled: a batch without padding, perhaps the first one
        if not marks and state.step >= 20 and now - started > setting.seconds / 5:  # compiled, and caches are warm
            setting.wait()
            marks.append((time.perf_counter(), state))
        elif marks and now - marks[0][0] > setting.seconds:
            setting.wait()
            marks.append((time.perf_counter(), state))
            return "SIGINT"
        return ""

    log = setting.folder / f"{size}.jsonl"
    trainer = a_trainer(
        model, shape, store, replace(config, log_every_steps=10), setting, enough, MetricsLog(log), rate
    )
    trainer.train()
    (began, before), (ended, after) = marks
    seconds, flops = ended - began, after.flops - before.flops
    losses = [record["loss"] for record in read_metrics(log) if record["event"] == "train"]
    figures: Figures = {
        "parameters": count_parameters(model),
        "target_tokens_per_second": round((after.tgt_tokens - before.tgt_tokens) / seconds),
        "updates_per_second": round((after.step - before.step) / seconds, 2),
        "mfu": round(flops / seconds / rate, 4),
        "mfu_goal": GOALS[size],
        "matmul_tflops": round(rate / 1e12, 2),
        "model_tflops": round(flops / seconds / 1e12, 2),
        "seconds_before": round(began - started, 1),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "compiled": compiled,
    }
    if compiled:
        figures["graphs"] = graphs_made()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
    if setting.device.device.type == "cuda":
        figures["peak_memory_gib"] = round(torch.cuda.max_memory_allocated(setting.device.device) / 2**30, 2)
    learnt = math.isfinite(losses[-1]) and losses[-1] < losses[0] and after.skipped == 0
    return {"passed": learnt, **figures}


def precision(setting: Setting) -> Figures:
    """The loss in bf16 follows the loss in float32 over the first updates of the same run."""
    shape = replace(TINY if setting.small else ModelConfig(), dropout=0.0)
    vocab_size, tokens, updates = (1_000, 1_000, 6) if setting.small else (37_000, 5_000, 40)
    store = sentences_like_wmt(setting.folder / "precision", 2_000, vocab_size)
    config = TrainingConfig(
        batch_tokens=tokens,
        max_tokens=tokens,
        max_updates=updates,
        warmup_steps=updates,
        learning_rate_scale=0.05 if setting.small else 0.1,
        log_every_steps=1,
        save_every_steps=10**6,
    )
    losses = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        torch.manual_seed(3)
        model = build_model(shape, vocab_size).to(setting.device.device)
        weights = {key: weight.detach().clone() for key, weight in model.named_parameters()}
        if name == "bf16":  # as it is trained; float32 as it is written
            compile_layers(model, setting.compile, setting.device.device)
        log = MetricsLog(setting.folder / f"{name}.jsonl")
        trainer = a_trainer(model.to(dtype), shape, store, config, setting, lambda: "", log, math.nan, weights)
        trainer.train()
        records = read_metrics(setting.folder / f"{name}.jsonl")
        losses[name] = [record["loss"] for record in records if record["event"] == "train"]
    differences = [abs(a - b) / b for a, b in zip(losses["bf16"], losses["fp32"], strict=True)]
    return {
        "passed": max(differences) < 0.02 and losses["fp32"][-1] < losses["fp32"][0],
        "updates": updates,
        "largest_relative_difference": max(differences),
        "last_loss_bf16": losses["bf16"][-1],
        "last_loss_fp32": losses["fp32"][-1],
    }


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
    sources, references = data.valid_src_text()[:count], data.valid_tgt_text()[:count]
    outputs, seconds = {}, {}
    places = {"device": setting.device.device, "cpu": torch.device("cpu")}
    for name, place in places.items():
        model = build_model(checkpoint.model, checkpoint.vocab_size)
        checkpoint.load_into(model)
        device = replace(setting.device, device=place, dtype=torch.float32)
        translator = Translator([model.eval()], data.codec(), device, checkpoint.decoding)
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


def a_trainer(
    model: TranslationModel,
    shape: ModelConfig,
    store: TokenStore,
    config: TrainingConfig,
    setting: Setting,
    interrupted: Callable[[], str],
    metrics: MetricsLog,
    rate: float,
    weights: dict[str, torch.Tensor] | None = None,
) -> Trainer:
    """The real trainer without validation and checkpoints."""
    return Trainer(
        model,
        MasterAdam(model, config, weights),
        store,
        None,
        config,
        d_model=shape.d_model,
        device=setting.device.device,
        worker=Worker(),
        metrics=metrics,
        hooks=Hooks(
            save=lambda *_: None,
            bleu=None,
            interrupted=interrupted,
            cost=TrainingCost(shape, model.output.num_embeddings),
            matmul_rate=rate,
        ),
        state=TrainingState(),
    )


def demo(setting: Setting) -> PreparedData:
    """The built-in corpus, prepared once."""
    folder = setting.folder / "prepared" / "demo"
    if not folder.exists():
        run_prepare(corpus="demo", out=folder, settings=asdict(load_recipe("tiny").data), workers=1)
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
            run_train("tiny", overrides, data=demo(setting).folder, out=run, device_name=setting.device_name)
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


if __name__ == "__main__":
    sys.exit(main())
