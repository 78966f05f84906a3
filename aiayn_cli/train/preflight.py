"""Before a run trains: checks of data, memory and disk; --dry-run, which measures a few updates; --verify-resume."""

import hashlib
import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.metrics_log import read_metrics, standing
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints, resumable, update_of
from aiayn_cli.checkpoint.tensor_files import bytes_of
from aiayn_cli.data.batches import plan_updates, split_update
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device, free_memory, is_out_of_memory, peak_memory
from aiayn_cli.errors import AiaynError, ConfigError, DataError, Terminated
from aiayn_cli.model.build import build_empty
from aiayn_cli.recipe_keys import Recipe, TrainingConfig
from aiayn_cli.train.resume import held
from aiayn_cli.train.trainer import Hooks, Trainer

# Bytes of training for each parameter: float32 weights, gradient and two moments; in bf16 also the weights that
# compute, and their gradient. A moving average of the weights adds four.
_BYTES = {torch.float32: 16, torch.bfloat16: 20}
# Of --dry-run: updates in which kernels are chosen and memory is allocated; updates and seconds that are measured;
# seconds after which one measured update is enough.
_WARM_UP_UPDATES, _LEAST_UPDATES, _MOST_UPDATES, _ENOUGH_SECONDS, _LONGEST_SECONDS = 2, 3, 50, 20.0, 35.0
# Of --verify-resume: updates before the checkpoint that the killed run resumes from, and what doubles them if they were
# over before the kill, one update later.
_UPDATES, _TRIES = 4, 4


def check_data(data: PreparedData, recipe: Recipe) -> None:
    if len(data.train) == 0:
        raise DataError(f"{data.folder} has no training pairs", "manifest.json counts what prepare dropped, and why")
    if recipe.data.trees and not data.text.trees:
        hint = "take a recipe for text (--recipe auto), or --data with a treebank that `aiayn prepare --trees` read"
        raise ConfigError(f"the recipe is for trees, but {data.folder} holds parallel text", hint)
    if data.text.trees and recipe.training.validation_bleu_pairs:
        hint = "take a recipe for trees (--recipe auto), or one without BLEU: validation_bleu_pairs=0, best_metric=loss"
        problem = f"training.validation_bleu_pairs is {recipe.training.validation_bleu_pairs}"
        raise ConfigError(f"{problem}, but {data.folder} holds trees, and BLEU is for text", hint)
    if data.separate_vocabs and recipe.model.share_embeddings == "all":
        hint = "add --set model.share_embeddings=decoder, or prepare with --set data.separate_vocabs=false"
        raise ConfigError(f"model.share_embeddings is all, but {data.folder} has a vocabulary for each side", hint)
    longest = 1 + max(data.train.longest)
    if recipe.model.positions == "learned" and longest > recipe.model.max_positions:
        problem = f"model.max_positions is {recipe.model.max_positions:,}, but a training pair has {longest:,} tokens"
        hint = f"set it to {longest} or more, use positions: sinusoidal, or prepare with a lower --max-length"
        raise ConfigError(problem, hint)


def check_memory(recipe: Recipe, vocab_size: int, device: Device) -> None:
    """Check that weights, gradient and moments fit into the device's memory, before the network is built."""
    free = free_memory(device.device)
    try:
        model = build_empty(recipe.model, vocab_size)
        parameters = sum(math.prod(p.shape) for p in model.parameters())  # in Python's integers, which do not overflow
    except (MemoryError, RuntimeError) as error:
        if not (is_out_of_memory(error) or "overflow" in str(error).lower()):
            raise
        parameters = 1 << 62  # too many for torch to count
    needed = parameters * (_BYTES[device.dtype] + (4 if recipe.training.ema_decay else 0))
    if free is not None and needed > free:
        problem = f"{parameters:,} parameters take {logs.size_text(needed)} to train, {logs.size_text(free)} are free"
        hint = "lower model.d_model, d_ff or the number of layers, or train on a device with more memory"
        raise AiaynError(f"the network is too large for this device: {problem}", hint)


def disk_needed(weights: Iterable[Tensor], config: TrainingConfig) -> tuple[int, int]:
    """Bytes of one checkpoint, and of all kept ones, with the best and one being written."""
    one = (4 if config.ema_decay else 3) * bytes_of(weights)  # perhaps a moving average too
    kept = config.keep_checkpoints
    if not config.save_every_minutes:  # a short run makes fewer
        kept = min(kept, -(-config.max_updates // config.save_every_steps))
    return one, one * (kept + 2)


def warn_of_disk(run: Path, weights: Iterable[Tensor], config: TrainingConfig) -> None:
    """Warn if the checkpoints that a run keeps will not fit on its disk."""
    one, needed = disk_needed(weights, config)
    needed -= min(needed, one * len(resumable(run)))
    if (free := shutil.disk_usage(run).free) < needed:
        logs.warning(
            f"checkpoints will take up to {logs.size_text(needed)} more, and {logs.size_text(free)} are free; training "
            "stops at one that does not fit, and earlier ones stay intact"
        )


def time_text(hours: float) -> str:
    """Write a time in hours, or in minutes or seconds if it is short."""
    if hours >= 100:
        return f"{float(f'{hours:.2g}'):,.0f} hours ({hours / 24:,.0f} days)"
    if hours >= 1:
        return f"{hours:,.2f} hours"
    return logs.counted(round(60 * hours), "minute") if hours >= 1 / 60 else logs.counted(round(3600 * hours), "second")


@dataclass(frozen=True)
class DryRunResult:
    """What `aiayn train --dry-run` prints."""

    batch_pairs: int  # of the largest micro-batch; its longest sides follow
    batch_src_tokens: int
    batch_tgt_tokens: int
    max_tokens: int  # padded tokens of a micro-batch, so that the largest one fits
    micro_batches: int  # of the next update, on each device
    memory_bytes: int  # peak of one process, on its device
    memory_free_bytes: int | None  # still free there; None if unknown
    checkpoint_bytes: int  # of one
    disk_bytes: int  # of all kept ones, with one being written
    disk_free_bytes: int  # on the disk of the run's folder
    updates: int  # measured
    tokens_per_second: float  # target tokens without padding, over all devices
    seconds_per_update: float  # without validation and checkpoints
    updates_left: int  # of the run
    hours: float  # that these take

    def __str__(self) -> str:
        size, counted = logs.size_text, logs.counted
        free = "" if self.memory_free_bytes is None else f", {size(self.memory_free_bytes)} free"
        rows = {
            "largest batch": f"{counted(self.batch_pairs, 'pair')} of up to {self.batch_src_tokens:,} source and "
            f"{self.batch_tgt_tokens:,} target tokens; it fits, with {self.max_tokens:,} tokens per micro-batch",
            "memory": f"{size(self.memory_bytes)} at most on each device{free}",
            "disk": f"{size(self.disk_bytes)} for checkpoints of {size(self.checkpoint_bytes)}, "
            f"{size(self.disk_free_bytes)} free",
            "speed": f"{self.tokens_per_second:,.0f} target tokens/s, {self.seconds_per_update:.3g} s per update of "
            f"{counted(self.micro_batches, 'micro-batch')} on each device; from "
            f"{counted(self.updates, 'measured update')}",
            "time": f"about {time_text(self.hours)} for {counted(self.updates_left, 'update')}, without validation",
        }
        return "\n".join(f"{name:<13}  {text}" for name, text in rows.items())


def dry_run(
    make_trainer: Callable[[TrainingConfig, Hooks], Trainer], config: TrainingConfig, run: Path, devices: int
) -> DryRunResult:
    """Run the largest batch and a few updates, each of one micro-batch per device, and leave no trace."""
    marks: list[tuple[float, int, int]] = []  # when each update ended: seconds, updates, target tokens
    start = time.perf_counter()

    def interrupted() -> str:
        marks.append((time.perf_counter(), trainer.state.step, trainer.state.tgt_tokens))
        measured = len(marks) - 1 - _WARM_UP_UPDATES
        is_enough = measured >= _LEAST_UPDATES and marks[-1][0] - marks[_WARM_UP_UPDATES][0] > _ENOUGH_SECONDS
        is_slow = measured > -_WARM_UP_UPDATES and marks[-1][0] - start > _LONGEST_SECONDS
        return "SIGINT" if is_enough or is_slow or measured >= _MOST_UPDATES else ""

    quiet = replace(
        config, max_updates=1 << 40, save_every_steps=1 << 40, save_every_minutes=0.0, patience=0,
        log_every_steps=1 << 40, batch_tokens=min(config.batch_tokens, config.max_tokens * devices),
    )  # fmt: skip
    trainer = make_trainer(quiet, Hooks(save=lambda *_: None, interrupted=interrupted))
    before = trainer.state
    with logs.progress("measuring", unit="updates") as progress:
        trainer.train(progress)
    pairs, src, tgt = trainer.largest_batch()
    warm_up = min(_WARM_UP_UPDATES, len(marks) - 2)
    (began, first, tokens_before), (ended, last, tokens_after) = marks[warm_up], marks[-1]
    checkpoint, disk = disk_needed(trainer.optimizer.weights().values(), config)
    left = max(0, config.max_updates - before.step)
    plan = plan_updates(trainer.store, config.batch_tokens, config.seed, before.position, before.pool_pairs)
    micro_batches = split_update(trainer.store, next(plan).pairs, trainer.max_tokens, before.division)
    in_one = len(micro_batches) // devices
    seconds = in_one * (ended - began) / max(last - first, 1)  # the optimizer's step is counted with each
    return DryRunResult(
        batch_pairs=pairs, batch_src_tokens=src, batch_tgt_tokens=tgt, max_tokens=trainer.max_tokens,
        micro_batches=in_one, memory_bytes=peak_memory(trainer.device), memory_free_bytes=free_memory(trainer.device),
        checkpoint_bytes=checkpoint, disk_bytes=disk, disk_free_bytes=shutil.disk_usage(_existing(run)).free,
        updates=last - first, tokens_per_second=(tokens_after - tokens_before) / (ended - began),
        seconds_per_update=seconds, updates_left=left, hours=left * seconds / 3600,
    )  # fmt: skip


def _existing(folder: Path) -> Path:
    """The folder itself, or the nearest one around it that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


@dataclass(frozen=True)
class VerifyResult:
    """What `aiayn train --verify-resume` prints."""

    updates: int  # of each of the two runs
    killed_after: int  # last update of the killed run
    resumed_from: int  # update of the checkpoint that it resumed from
    digest_unbroken: str  # SHA-256 of weights, optimizer's moments, state and losses of all updates
    digest_resumed: str
    losses: tuple[float, ...]  # of the unbroken run's updates

    def __str__(self) -> str:
        return (
            f"unbroken  {self.digest_unbroken}  {logs.counted(self.updates, 'update')}\n"
            f"resumed   {self.digest_resumed}  killed after update {self.killed_after}, resumed from "
            f"{self.resumed_from}\n"
            "the same weights, moments, state and losses, to the last bit"
        )


def run_verify_resume(arguments: Sequence[str], run: Path) -> VerifyResult:
    """Train with these arguments twice in a temporary folder, once unbroken and once killed with kill -9."""

    def end(*_: object) -> None:
        raise Terminated("stopped by SIGTERM", "nothing was verified; temporary files are removed")

    before = signal.signal(signal.SIGTERM, end)
    parent = _existing(run.absolute().parent)
    try:
        with tempfile.TemporaryDirectory(prefix=".verify-resume-", dir=parent, ignore_cleanup_errors=True) as folder:
            for number in range(_TRIES):
                if result := _compare(arguments, Path(folder) / str(number), _UPDATES << number):
                    return result
    finally:
        signal.signal(signal.SIGTERM, before)
    problem = f"{_UPDATES << _TRIES - 1} updates ended before they could be killed"
    raise AiaynError(problem, "training is too fast to verify: take a larger recipe")


def _compare(arguments: Sequence[str], folder: Path, updates: int) -> VerifyResult | None:
    """Two runs of 2 * updates, the second killed after its first checkpoint; None if it ended before the kill."""
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
        resumed_from = update_of(list_checkpoints(broken)[-1])
        progress.advance(1)
        _run(command, broken)
        progress.advance(1)
    went_on_from = _values(broken, "resume", "step")
    if went_on_from != [resumed_from]:
        problem = f"the killed run resumed from {went_on_from or 'its beginning'}, not from update {resumed_from}"
        raise AiaynError(problem, "this is a bug, please report it")
    (expected, losses), (found, _) = _digest(unbroken), _digest(broken)
    if found != expected:
        hint = "on a GPU some kernels sum in no fixed order; on a CPU this is a bug, please report it"
        raise AiaynError(f"the resumed run differs: {found} instead of {expected}", hint)
    return VerifyResult(2 * updates, killed_after, resumed_from, expected, found, tuple(losses))


def _run(command: Sequence[str], run: Path, is_enough: Callable[[], bool] | None = None) -> None:
    """Train to the end, or until kill -9 when is_enough()."""
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen([*command, "--out", str(run)], stdout=subprocess.DEVNULL, stderr=err)
        try:
            while process.poll() is None and not (is_enough is not None and is_enough()):
                time.sleep(0.002)
        finally:
            process.kill()
            code = process.wait()
        if code and (is_enough is None or code != -signal.SIGKILL):
            err.seek(0)
            said = err.read().decode(errors="replace").strip()
            raise AiaynError(f"a run of the comparison ended with code {code}", said[-2_000:])


def _run_and_kill(command: Sequence[str], run: Path, updates: int) -> int | None:
    """Kill a run one update after its first checkpoint; return its last update, None if it ended before."""

    def last_update() -> int:
        return max(_values(run, "train", "step"), default=0)

    _run(command, run, lambda: last_update() > updates)
    deadline = time.monotonic() + 60
    while True:  # until its own processes, of --gpus, have ended too
        try:
            with held(run):
                break
        except DataError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    killed_after = last_update()
    return killed_after if updates < killed_after < 2 * updates else None


def _values(run: Path, event: str, name: str) -> list[Any]:
    """A value of all events of one kind in a run's metrics."""
    return [record[name] for record in standing(read_metrics(run / "metrics.jsonl")) if record["event"] == event]


def _digest(run: Path) -> tuple[str, list[float]]:
    """SHA-256 of all that two equal runs share, and the loss of each update."""
    newest = list_checkpoints(run)[-1]
    training = load_training(newest)
    digest = hashlib.sha256()
    for tensors in (load_checkpoint(newest).weights(), training.moments):
        for name, tensor in sorted(tensors.items()):
            digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    state = {name: value for name, value in training.state.items() if name not in ("seconds", "saved_seconds")}
    losses = _values(run, "train", "loss")
    digest.update(json.dumps([state, losses], sort_keys=True).encode())
    return digest.hexdigest(), losses
