"""A small vocabulary and small models with random weights that say different things about different lines."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Aiayn, Said
from known_words import WORDS
from translation_models import LINES, ModelMaker, Translate, TranslatorMaker

from aiayn_cli.device import Device
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig, TextConfig
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import Vocab
from aiayn_cli.translate.line_translator import LineTranslator

DECODING = DecodingConfig(beam_size=3, max_extra=4, batch_tokens=200)


@pytest.fixture(scope="session")
def cpu() -> Device:
    return Device(torch.device("cpu"), torch.float32, threads=1, explanation="for tests")


@pytest.fixture(scope="session")
def vocab() -> Codec:
    counts = Counter({word: 30 - rank for rank, word in enumerate(WORDS)}) + Counter("abcdefghijklmnopqrstuvwxyz.,!?()")
    vocab = Vocab(train_vocab(counts, 97), "test")
    return Codec(vocab, vocab, TextConfig(), "de", "de")


@pytest.fixture
def make_model(vocab: Codec) -> ModelMaker:
    def make(seed: int = 1, **settings: object) -> TranslationModel:
        shape = {
            "n_encoder_layers": 2,
            "n_decoder_layers": 2,
            "d_model": 24,
            "d_ff": 40,
            "n_heads": 3,
            "d_k": 7,
            "d_v": 5,
        }
        torch.manual_seed(seed)
        model = build_model(ModelConfig(**{**shape, "share_embeddings": "none", **settings}), vocab.size)  # type: ignore[arg-type]
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() > 1 and "embedding" not in name:
                    weight.mul_(3)  # fresh weights hardly look at the source
        return model.eval()

    return make


@pytest.fixture
def make_translator(make_model: ModelMaker, vocab: Codec, cpu: Device) -> TranslatorMaker:
    """A translator with one model, or with some; DECODING's fields and other options by their names."""

    def make(*models: TranslationModel, codec: Codec = vocab, device: Device = cpu, **options: Any) -> LineTranslator:
        fields = {name: options.pop(name) for name in vars(DECODING).keys() & options.keys()}
        return LineTranslator(list(models) or [make_model()], codec, device, replace(DECODING, **fields), **options)

    return make


@pytest.fixture
def translator(make_translator: TranslatorMaker) -> LineTranslator:
    return make_translator()


@pytest.fixture
def translate(model: Path, aiayn: Aiayn) -> Translate:
    """Run `aiayn translate` in fp32 on lines from stdin, with the small model unless the options name another."""

    def run(*options: object, lines: Sequence[str] | bytes = LINES) -> Said:
        stdin = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
        models = [] if {"-m", "--model"} & set(options) else ["-m", model]
        return aiayn("translate", *models, "--device", "cpu", "--precision", "fp32", *options, stdin=stdin)

    return run
