"""Prepared data and a recipe small enough to train in a fraction of a second."""

import random
from pathlib import Path

import pytest
from translation_models import make_checkpoint

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.stages.prepare import run_prepare

WORDS = {
    "en": ("the", "a", "one", "dog", "cat", "house", "tree", "runs", "sleeps", "sees", "big", "red", "and", "here"),
    "de": ("der", "die", "das", "ein", "Hund", "Katze", "Haus", "läuft", "schläft", "groß", "rot", "und", "hier"),
}

SMALL_RECIPE = """
data:
  corpus: nowhere
model:
  n_encoder_layers: 1
  n_decoder_layers: 1
  d_model: 16
  d_ff: 24
  n_heads: 2
  d_k: 8
  d_v: 8
  dropout: 0.2
training:
  batch_tokens: 120
  max_tokens: 70  # several micro-batches in each update
  max_updates: 12
  learning_rate_scale: 0.3
  warmup_steps: 8
  save_every_steps: 4
  keep_checkpoints: 3
  average_last: 2
  validation_bleu_pairs: 4
  log_every_steps: 1
  precision: fp32
decoding:
  beam_size: 2
  max_extra: 2
"""


def prepare_small_data(folder: Path, seed: int) -> PreparedData:
    """Some 150 pairs of one to eight words that mean nothing."""
    chance = random.Random(seed)
    files = {}
    for split, count in (("train", 150), ("valid", 9)):
        lengths = [chance.randint(1, 8) for _ in range(count)]
        for lang, words in WORDS.items():
            files[split, lang] = folder / f"{split}.{lang}"
            text = "".join(" ".join(chance.choices(words, k=length)) + "\n" for length in lengths)
            files[split, lang].write_text(text, encoding="utf-8")
    out = folder / "prepared"
    run_prepare(
        train=[(files["train", "en"], files["train", "de"])],
        valid=(files["valid", "en"], files["valid", "de"]),
        langs="en-de",
        out=out,
        settings={"vocab_size": 80, "max_ratio": 9.0},
        workers=1,
    )
    return PreparedData.load(out)


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare_small_data(tmp_path_factory.mktemp("small"), seed=1)


@pytest.fixture(scope="session")
def other_data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare_small_data(tmp_path_factory.mktemp("other"), seed=2)


@pytest.fixture(scope="session")
def small_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "small-recipe.yaml"
    path.write_text(SMALL_RECIPE, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that translates, though not well."""
    return make_checkpoint(tmp_path_factory.mktemp("models") / "one", seed=1)
