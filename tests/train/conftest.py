"""Small stores and models for the tests of training."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_pairs import write_store
from watched_trainer import CONFIG, SHAPE, VOCAB_SIZE, Watched, watch_steps

from aiayn_cli.checkpoint.metrics_log import MetricsLog
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.build import build_model
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Hooks, Trainer
from aiayn_cli.train.validation import Validation

StoreOf = Callable[..., TokenStore]
ModelOf = Callable[..., TranslationModel]


@pytest.fixture
def store_of(tmp_path: Path) -> StoreOf:
    """A store of n random pairs whose target is the source backwards: something to learn."""

    def make(n_pairs: int, *, longest: int = 9, split: str = "train", seed: int = 0) -> TokenStore:
        random = np.random.default_rng(seed)
        lengths = random.integers(1, longest + 1, n_pairs).astype(np.int32)
        pairs = [random.integers(4, VOCAB_SIZE, length).astype(np.uint16) for length in lengths]
        src, tgt = np.concatenate(pairs), np.concatenate([pair[::-1] for pair in pairs])
        return write_store(tmp_path, split, src, lengths, tgt, lengths)

    return make


@pytest.fixture
def model_of() -> ModelOf:
    """A tiny model with the same weights at every call."""

    def make(dtype: torch.dtype = torch.float32, dropout: float = 0.0) -> TranslationModel:
        with torch.random.fork_rng():
            torch.manual_seed(11)
            return build_model(replace(SHAPE, dropout=dropout), VOCAB_SIZE).to(dtype)

    return make


@pytest.fixture
def watched(tmp_path: Path, store_of: StoreOf, model_of: ModelOf) -> Any:
    def make(
        *,
        state: TrainingState | None = None,
        bleu: Iterable[float] | None = None,
        signals: Callable[[], str] = lambda: "",
        with_valid: bool = True,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        **settings: Any,
    ) -> Watched:
        config = replace(CONFIG, **settings)
        model = model_of(dtype, dropout=dropout).to(device)
        optimizer = MasterAdam(model, config)
        found: Watched
        scores = iter(bleu or ())
        worker, metrics = Worker(), MetricsLog(tmp_path / "metrics.jsonl")
        score = None if bleu is None else lambda _: next(scores)
        valid = store_of(11, split="valid", seed=1)
        hooks = Hooks(
            save=lambda state, best, regular: found.saves.append((state.step, best, regular)),
            interrupted=signals,
            validation=Validation(model, valid, config, worker, metrics, score, signals) if with_valid else None,
            cost=TrainingCost(SHAPE, VOCAB_SIZE),
            matmul_rate=2e9,
        )
        trainer = Trainer(model, optimizer, store_of(90), config, worker, metrics, hooks, state or TrainingState())
        found = Watched(trainer, watch_steps(optimizer))
        return found

    return make


@pytest.fixture
def command(small_data: PreparedData, small_recipe: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """The words after `aiayn` that train the small recipe, with settings of the training section."""

    def words(*settings: str, run: str = "run", data: PreparedData = small_data) -> list[str]:
        options = ["--recipe", str(small_recipe), "--data", str(data.folder), "--out", str(tmp_path / run)]
        return ["train", *options, *(word for setting in settings for word in ("--set", f"training.{setting}"))]

    return words
