"""A small vocabulary and small models with random weights that say different things about different lines."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from known_words import WORDS

from aiayn_cli.config import ModelConfig, TextConfig
from aiayn_cli.device import Device
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import Vocab


@pytest.fixture(scope="session")
def cpu() -> Device:
    return Device(torch.device("cpu"), torch.float32, threads=1, explanation="for tests")


@pytest.fixture(scope="session")
def vocab() -> Codec:
    counts = Counter({word: 30 - rank for rank, word in enumerate(WORDS)}) + Counter("abcdefghijklmnopqrstuvwxyz.,!?()")
    vocab = Vocab(train_vocab(counts, 97), "test")
    return Codec(vocab, vocab, TextConfig(), "de", "de")


@pytest.fixture
def make_model(vocab: Codec) -> Callable[..., TranslationModel]:
    def make(seed: int = 1, **settings: object) -> TranslationModel:
        shape = {
            "n_encoder_layers": 2,
            "n_decoder_layers": 2,
            "d_model": 24,
            "d_ff": 40,
            "n_heads": 3,
            "d_k": 7,
            "d_v": 5,
            "share_embeddings": "none",
        }
        torch.manual_seed(seed)
        model = build_model(ModelConfig(**{**shape, **settings}), vocab.size)  # type: ignore[arg-type]
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() > 1 and "embedding" not in name:
                    weight.mul_(3)  # fresh weights hardly look at the source
        return model.eval()

    return make
