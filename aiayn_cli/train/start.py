"""What is looked at before a run trains: whether data, recipe, memory and disk allow it, and where it goes on from."""

import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.format import load_checkpoint, load_training
from aiayn_cli.checkpoint.run import resumable, set_aside_damaged, update_of
from aiayn_cli.checkpoint.tensors import bytes_of
from aiayn_cli.config import Recipe, TrainingConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import TokenStore
from aiayn_cli.device import Device, free_memory, is_out_of_memory
from aiayn_cli.errors import AiaynError, CheckpointError, ConfigError, DataError
from aiayn_cli.model.build import build_empty
from aiayn_cli.train.state import TrainingState

# Bytes of training for each parameter: float32 weights, gradient and two moments; and what bf16 computes with. A
# moving average of the weights adds four.
_BYTES = {torch.float32: 16, torch.bfloat16: 20}


def check_data(data: PreparedData, recipe: Recipe) -> None:
    """Make sure that there is something to learn from, and that the network can read it.

    Raises:
        DataError: there are no pairs, or token ids outside the vocabulary.
        ConfigError: the recipe's network cannot take such data.
    """
    if len(data.train) == 0:
        raise DataError(f"{data.folder} has no training pairs", "look at the drops in its manifest.json")
    if data.separate_vocabs and recipe.model.share_embeddings == "all":
        raise ConfigError(
            f"model.share_embeddings is all, but {data.folder} has a vocabulary for each side",
            "add --set model.share_embeddings=decoder, or prepare with --joint-vocab",
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


def longest_validated(data: PreparedData, recipe: Recipe) -> int:
    """Most tokens, with the end token, of either side of a validation pair whose loss is measured.

    What training may meet, and at least 1,024; a learned position table has no more rows than it has.
    """
    longest = 1 + max(data.train.longest)
    return recipe.model.max_positions if recipe.model.positions == "learned" else max(longest, 1_024)


def too_long(store: TokenStore, longest: int) -> int:
    """How many pairs of a store have a side of more tokens, with the end token."""
    return sum(int(np.count_nonzero(np.maximum(src, tgt) + 1 > longest)) for src, tgt in store.length_chunks())


def check_memory(recipe: Recipe, vocab_size: int, device: Device) -> None:
    """Make sure that a network fits into the device's memory, before it is built.

    Raises:
        AiaynError: weights, gradient and the optimizer's moments alone would take more than is free.
    """
    free = free_memory(device.device)
    try:
        model = build_empty(recipe.model, vocab_size)
        parameters = sum(math.prod(p.shape) for p in model.parameters())  # as Python counts, without a largest number
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


def disk_needed(weights: Iterable[Tensor], config: TrainingConfig) -> tuple[int, int]:
    """Bytes of one checkpoint with two moments for each weight, and of all at once: the best, and one being written."""
    one = (4 if config.ema_decay else 3) * bytes_of(weights)  # perhaps a moving average too
    kept = config.keep_checkpoints
    if not config.save_every_minutes:  # a short run does not even make as many
        kept = min(kept, -(-config.max_updates // config.save_every_steps))
    return one, one * (kept + 2)


def warn_of_disk(run: Path, weights: Iterable[Tensor], config: TrainingConfig) -> None:
    """Say if the checkpoints that a run keeps will not fit beside those that it has."""
    one, needed = disk_needed(weights, config)
    needed -= min(needed, one * len(resumable(run)))
    if (free := shutil.disk_usage(run).free) < needed:
        logs.warning(
            f"checkpoints will take up to {needed / 1e9:,.2f} GB more, and {free / 1e9:,.2f} GB are free; "
            "one that does not fit ends training, and leaves those before it whole"
        )


def load_newest(
    run: Path, weights: Mapping[str, Tensor], n_pairs: int, *, touch: bool = True
) -> tuple[TrainingState, dict[str, Tensor]] | None:
    """Read a run's newest checkpoint that is whole; those after it are set aside.

    Args:
        run: its folder.
        weights: float32, to copy the checkpoint's into.
        n_pairs: of the training data.
        touch: whether to give damaged ones other names.
    Returns:
        The run's state and the optimizer's moments; None where no checkpoint was written yet.
    Raises:
        CheckpointError: there are checkpoints, and all are damaged; the newest is named.
    """
    first: CheckpointError | None = None
    damaged = []
    for path in reversed(resumable(run)):
        try:
            found = load_checkpoint(path)
            snapshot = load_training(path)
            state = _state(snapshot.state, path, found.step, n_pairs)
            found.copy_into(weights)
        except CheckpointError as error:
            first = first or error
            damaged.append(path)
            continue
        for bad in damaged:
            instead = f"{path.name} takes its place"
            if touch:
                instead += f", and it is kept as {set_aside_damaged(bad).name}"
            logs.warning(f"the checkpoint {bad.name} is damaged: {instead}")
        return state, dict(snapshot.moments)
    if first is not None:
        raise first
    return None


def _state(content: Mapping[str, Any], checkpoint: Path, step: int, n_pairs: int) -> TrainingState:
    """The state of a checkpoint, which must be of its update and within the data.

    Raises:
        CheckpointError: it is not.
    """
    path = checkpoint / "training" / "state.json"
    state = TrainingState.from_json(content, path)
    if state.step != step or step != update_of(checkpoint):
        raise CheckpointError(
            f"{path} is of update {state.step:,}, model.json of {step:,}, and the folder's name says "
            f"{update_of(checkpoint):,}",
            "use another checkpoint",
        )
    if state.position.pairs >= n_pairs:
        raise CheckpointError(
            f"{path} stands at pair {state.position.pairs:,} of an epoch, but there are {n_pairs:,}",
            "use another checkpoint",
        )
    return state


def finished(config: TrainingConfig, state: TrainingState) -> str:
    """Why a run needs no more training, and what would change that; "" if it does."""
    if state.validation_due:
        return ""
    if state.step >= config.max_updates:
        return f"already has its {config.max_updates:,} updates; --set training.max_updates=... adds some"
    if config.patience and state.worse_validations >= config.patience:
        return (
            f"ended at update {state.step:,}, after {state.worse_validations} validations without a better one; "
            "--set training.patience=... goes on"
        )
    return ""


def with_max_tokens(recipe: Recipe, device: Device) -> Recipe:
    """Choose what one forward pass holds, where the recipe leaves it to the device."""
    if recipe.training.max_tokens:
        return recipe
    # A CPU gains nothing from more than its caches hold; a GPU wants to be full.
    most = 4_096 if device.device.type == "cpu" else 25_000
    return replace(recipe, training=replace(recipe.training, max_tokens=most))
