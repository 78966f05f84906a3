"""Small stores and models for the tests of training."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from aiayn_cli.config import ModelConfig
from aiayn_cli.data.store import TokenStore, TokenStoreWriter
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel

VOCAB_SIZE = 31
StoreOf = Callable[..., TokenStore]
ModelOf = Callable[..., TranslationModel]


@pytest.fixture
def store_of(tmp_path: Path) -> StoreOf:
    """A store of n random pairs whose target is the source backwards: something to learn."""

    def make(n_pairs: int, *, longest: int = 9, split: str = "train", seed: int = 0) -> TokenStore:
        random = np.random.default_rng(seed)
        lengths = random.integers(1, longest + 1, n_pairs).astype(np.int32)
        pairs = [random.integers(4, VOCAB_SIZE, length).astype(np.uint16) for length in lengths]
        writer = TokenStoreWriter(tmp_path, split, np.dtype("<u2"))
        src, tgt = np.concatenate(pairs), np.concatenate([pair[::-1] for pair in pairs])
        writer.add(src, lengths, tgt, lengths)
        writer.close()
        return TokenStore(tmp_path, split)

    return make


@pytest.fixture
def model_of() -> ModelOf:
    """A tiny model with the same weights at every call."""

    def make(dtype: torch.dtype = torch.float32, dropout: float = 0.0) -> TranslationModel:
        config = ModelConfig(
            n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7, dropout=dropout
        )
        with torch.random.fork_rng():
            torch.manual_seed(11)
            return build_model(config, VOCAB_SIZE).to(dtype)

    return make
