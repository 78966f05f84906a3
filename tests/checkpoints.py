"""Checkpoints of a network that does not exist, for the tests of checkpoint.py and run_checkpoints.py."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from aiayn_cli.checkpoint.checkpoint import (
    Checkpoint,
    TrainingSnapshot,
    load_checkpoint,
    load_training,
    save_checkpoint,
)
from aiayn_cli.files import hash_of
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig

STATE = {"step": 7, "position": {"epoch": 1, "pairs": 300}, "best_value": 0.1 + 0.2, "seconds": 1e-17}


def described(path: Path, step: int = 7) -> Checkpoint:
    return Checkpoint(
        path=path,
        step=step,
        model=ModelConfig(d_model=6, d_ff=11, n_heads=3, d_k=5, d_v=4, dropout=0.3),
        decoding=DecodingConfig(beam_size=5, alpha=0.75),
        vocab_size=9,
        vocab_sha256="a1" * 32,
        data_sha256="b2" * 32,
        src_lang="en",
        tgt_lang="de",
        run_id="c3" * 16,
    )


def some_weights(seed: int = 0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    weights = {"embedding.weight": torch.randn(9, 6, generator=random), "norm.bias": torch.randn(6, generator=random)}
    weights["norm.bias"][:3] = torch.tensor([-0.0, 1e-42, 3e38])  # a sign, a subnormal number, nearly infinite
    return weights


def some_moments(seed: int = 0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed + 50)
    return {"exp_avg": torch.randn(60, generator=random), "exp_avg_sq": torch.rand(60, generator=random)}


def save_some(path: Path, step: int, seed: int, vocab: Path) -> Path:
    """Write a checkpoint that training can resume from."""
    snapshot = TrainingSnapshot({**STATE, "step": step}, some_moments(seed))
    return save_checkpoint(described(path, step), some_weights(seed), vocab, snapshot).path


def bits(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, bytes]]:
    return {name: (tensor.shape, tensor.contiguous().numpy().tobytes()) for name, tensor in tensors.items()}


def is_whole(path: Path, seed: int, vocab: Path) -> bool:
    found, training = load_checkpoint(path), load_training(path)
    return (
        bits(found.weights()) == bits(some_weights(seed))
        and bits(training.moments) == bits(some_moments(seed))
        and found.vocab_path.read_bytes() == vocab.read_bytes()
    )


def hash_anew(path: Path) -> None:
    """Make the hashes in model.json those of the files as they are now, as if they had been written so."""
    described = json.loads((path / "model.json").read_bytes())
    described["files"] = {name: hash_of(path / name) for name in described["files"]}
    (path / "model.json").write_text(json.dumps(described), encoding="utf-8")


def change_tensors(path: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a safetensors file, whose size stays."""
    size = path.stat().st_size
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    assert path.stat().st_size == size


def copy_damaged(model: Path, path: Path) -> Path:
    """Copy a checkpoint, and change a sign among its weights."""
    shutil.copytree(model, path)
    change_tensors(path / "weights.safetensors", lambda tensors: next(iter(tensors.values())).view(-1)[:1].neg_())
    return path


def fail_at(patch: pytest.MonkeyPatch, owner: object, name: str, number: int, act: Callable[[], None]) -> list[int]:
    """Do something else at the n-th call of a function; returns a list that grows with each call."""
    original = getattr(owner, name)
    calls: list[int] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            act()
        return original(*args, **kwargs)

    patch.setattr(owner, name, watched)
    return calls


def refuse() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
