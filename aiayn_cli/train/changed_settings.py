"""What happens to settings that changed between a run's start and its continuation: each is applied or refused."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from aiayn_cli.config import Recipe
from aiayn_cli.errors import CheckpointError

# A change of these would make another experiment of the run: other weights, or other pairs in an update.
_FIXED = {
    "training.batch_tokens",
    "training.seed",
    *(
        f"model.{name}"
        for name in (
            "kind", "n_encoder_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "norm",
            "positions", "max_positions", "attention_window", "share_embeddings", "kernel_size", "attention_bias",
        )
    ),
}  # fmt: skip


def changed_settings(old: Recipe, new: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, by dotted name: (old, new)."""
    changes = {}
    for section in fields(Recipe):
        before, after = getattr(old, section.name), getattr(new, section.name)
        for field in fields(before):
            values = getattr(before, field.name), getattr(after, field.name)
            if values[0] != values[1]:
                changes[f"{section.name}.{field.name}"] = values
    return changes


def continued_recipe(old: Recipe, new: Recipe, run: Path) -> tuple[Recipe, list[str]]:
    """The recipe to go on with: the new one, if every change can be applied to the run.

    Args:
        old: what the run was started or last continued with.
        new: what is asked for now.
        run: for the messages.
    Returns:
        The recipe, and what it changes, such as "training.patience 0 -> 3".
    Raises:
        CheckpointError: a change cannot be applied; all such are named.
    """
    changes = changed_settings(old, new)
    refused = [f"{key} {before} -> {after}" for key, (before, after) in changes.items() if key in _FIXED]
    if refused:
        raise CheckpointError(
            f"{run} cannot go on with {'; '.join(refused)}",
            "keep the old value, or start anew with another --out or --fresh",
        )
    # What prepare did is in the data already, whose hash is checked.
    applied = [f"{key} {a} -> {b}" for key, (a, b) in changes.items() if not key.startswith("data.")]
    return replace(new, data=old.data), applied
