"""What is checked before a run trains: data, memory and disk; and --dry-run, which measures a few updates."""

import math
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.run_checkpoints import resumable
from aiayn_cli.checkpoint.tensor_files import bytes_of
from aiayn_cli.config import Recipe, TrainingConfig
from aiayn_cli.data.batches import plan_updates, split_update
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device, free_memory, is_out_of_memory, peak_memory
from aiayn_cli.errors import AiaynError, ConfigError, DataError
from aiayn_cli.model.build import build_empty
from aiayn_cli.train.trainer import Hooks, Trainer

# Bytes of training for each parameter: float32 weights, gradient and two moments; and the bf16 weights that compute. A
# moving average of the weights adds four.
_BYTES = {torch.float32: 16, torch.bfloat16: 20}
_WARM_UP_UPDATES = 2  # kernels are chosen and memory is allocated
_LEAST_UPDATES, _MOST_UPDATES, _ENOUGH_SECONDS = 3, 50, 20.0  # that a dry run measures


def check_data(data: PreparedData, recipe: Recipe) -> None:
    if len(data.train) == 0:
        raise DataError(f"{data.folder} has no training pairs", "look at the drops in its manifest.json")
    if data.separate_vocabs and recipe.model.share_embeddings == "all":
        raise ConfigError(
            f"model.share_embeddings is all, but {data.folder} has a vocabulary for each side",
            "add --set model.share_embeddings=decoder, or prepare with --set data.separate_vocabs=false",
            key="model.share_embeddings",
        )
    if data.text.trees and recipe.training.validation_bleu_pairs:
        raise ConfigError(
            f"training.validation_bleu_pairs is {recipe.training.validation_bleu_pairs}, but {data.folder} holds trees",
            "BLEU is for text: add --set training.validation_bleu_pairs=0 --set training.best_metric=loss",
            key="training.validation_bleu_pairs",
        )
    longest = 1 + max(data.train.longest)
    if recipe.model.positions == "learned" and longest > recipe.model.max_positions:
        raise ConfigError(
            f"model.max_positions is {recipe.model.max_positions:,}, but a training pair has {longest:,} tokens",
            f"set it to {longest} or more, use positions: sinusoidal, or prepare with a lower --max-length",
            key="model.max_positions",
        )


def check_memory(recipe: Recipe, vocab_size: int, device: Device) -> None:
    """Make sure that weights, gradient and moments fit into the device's memory, before the network is built."""
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
        raise AiaynError(
            f"the network is too large for this device: {parameters:,} parameters take {needed / 1e9:,.1f} GB to "
            f"train, and {free / 1e9:,.1f} GB are free",
            "lower model.d_model, d_ff or the number of layers, or train on a larger device",
        )


def with_max_tokens(recipe: Recipe, device: Device) -> Recipe:
    """Choose the size of a micro-batch if the recipe leaves it to the device."""
    if recipe.training.max_tokens:
        return recipe
    # A CPU gains nothing from more than its caches hold; a GPU needs large batches to be busy.
    most = 4_096 if device.device.type == "cpu" else 25_000
    return replace(recipe, training=replace(recipe.training, max_tokens=most))


def disk_needed(weights: Iterable[Tensor], config: TrainingConfig) -> tuple[int, int]:
    """Bytes of one checkpoint, and of all at once: the best, and one being written."""
    one = (4 if config.ema_decay else 3) * bytes_of(weights)  # perhaps a moving average too
    kept = config.keep_checkpoints
    if not config.save_every_minutes:  # a short run does not even make as many
        kept = min(kept, -(-config.max_updates // config.save_every_steps))
    return one, one * (kept + 2)


def warn_of_disk(run: Path, weights: Iterable[Tensor], config: TrainingConfig) -> None:
    """Warn if the checkpoints that a run keeps will not fit on its disk."""
    one, needed = disk_needed(weights, config)
    needed -= min(needed, one * len(resumable(run)))
    if (free := shutil.disk_usage(run).free) < needed:
        logs.warning(
            f"checkpoints will take up to {needed / 1e9:,.2f} GB more, and {free / 1e9:,.2f} GB are free; "
            "one that does not fit ends training, and leaves those before it whole"
        )


@dataclass(frozen=True)
class DryRunResult:
    """What `aiayn train --dry-run` prints."""

    batch_pairs: int  # of the largest micro-batch; its longest sides follow
    batch_src_tokens: int
    batch_tgt_tokens: int
    max_tokens: int  # padded tokens of a micro-batch, so that the largest fits
    micro_batches: int  # of the next update, on each device
    memory_bytes: int  # peak of one process, on its device
    memory_free_bytes: int | None  # still free there; None if unknown
    checkpoint_bytes: int  # of one
    disk_bytes: int  # of all that are kept at once, with one being written
    disk_free_bytes: int  # on the disk of the run's folder
    updates: int  # measured
    tokens_per_second: float  # target tokens without padding, over all devices
    seconds_per_update: float  # without validation and checkpoints
    updates_left: int  # of the run
    hours: float  # that these take

    def __str__(self) -> str:
        free = "" if self.memory_free_bytes is None else f", {self.memory_free_bytes / 1e9:,.2f} GB are free"
        parts = "1 micro-batch" if self.micro_batches == 1 else f"{self.micro_batches} micro-batches"
        return "\n".join(
            (
                f"largest batch  {self.batch_pairs:,} pairs of up to {self.batch_src_tokens:,} source and "
                f"{self.batch_tgt_tokens:,} target tokens; it fits, with {self.max_tokens:,} tokens in a micro-batch",
                f"memory         {self.memory_bytes / 1e9:,.2f} GB at most for each device{free}",
                f"disk           {self.disk_bytes / 1e9:,.2f} GB for checkpoints of {self.checkpoint_bytes / 1e9:,.2f} "
                f"GB, {self.disk_free_bytes / 1e9:,.2f} GB are free",
                f"speed          {self.tokens_per_second:,.0f} target tokens/s, {self.seconds_per_update:.3g} s an "
                f"update of {parts} on each device (mean of {self.updates} updates)",
                f"time           {self.hours:,.2f} hours for {self.updates_left:,} updates, without validation",
            )
        )


def dry_run(
    make_trainer: Callable[[TrainingConfig, Hooks], Trainer], config: TrainingConfig, run: Path, devices: int
) -> DryRunResult:
    """Run the largest batch and a few updates, and leave no trace.

    Args:
        make_trainer: gives one at the run's present state.
        run: the folder that checkpoints would go to.
        devices: that share an update.
    """
    marks: list[tuple[float, int, int]] = []  # when each update ended: seconds, updates, target tokens

    def interrupted() -> str:
        marks.append((time.perf_counter(), trainer.state.step, trainer.state.tgt_tokens))
        measured = len(marks) - 1 - _WARM_UP_UPDATES
        is_enough = measured >= _LEAST_UPDATES and marks[-1][0] - marks[_WARM_UP_UPDATES][0] > _ENOUGH_SECONDS
        return "SIGINT" if is_enough or measured >= _MOST_UPDATES else ""

    quiet = replace(
        config, max_updates=1 << 40, save_every_steps=1 << 40, save_every_minutes=0.0, patience=0,
        log_every_steps=1 << 40,
    )  # fmt: skip
    trainer = make_trainer(quiet, Hooks(save=lambda *_: None, interrupted=interrupted))
    before = trainer.state
    with logs.progress("trying out", unit="updates") as progress:
        trainer.train(progress)
    pairs, src, tgt = trainer.largest_batch()
    (began, first, tokens_before), (ended, last, tokens_after) = marks[_WARM_UP_UPDATES], marks[-1]
    seconds = (ended - began) / max(last - first, 1)
    checkpoint, disk = disk_needed(trainer.optimizer.weights().values(), config)
    existing = next(folder for folder in (run.absolute(), *run.absolute().parents) if folder.exists())
    left = max(0, config.max_updates - before.step)
    max_tokens = trainer.state.max_tokens or config.max_tokens
    update = next(
        plan_updates(trainer.store, config.batch_tokens, config.seed, before.position, trainer.state.pool_pairs)
    )
    micro_batches = len(split_update(trainer.store, update.pairs, max_tokens, before.division))
    return DryRunResult(
        batch_pairs=pairs,
        batch_src_tokens=src,
        batch_tgt_tokens=tgt,
        max_tokens=max_tokens,
        micro_batches=micro_batches // devices,
        memory_bytes=peak_memory(trainer.device),
        memory_free_bytes=free_memory(trainer.device),
        checkpoint_bytes=checkpoint,
        disk_bytes=disk,
        disk_free_bytes=shutil.disk_usage(existing).free,
        updates=last - first,
        tokens_per_second=(tokens_after - tokens_before) / (ended - began),
        seconds_per_update=seconds,
        updates_left=left,
        hours=left * seconds / 3600,
    )
