"""Prepared data and a recipe small enough to train in a fraction of a second."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import Train, result_of
from translation_models import make_checkpoint

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.prepare.pipeline import run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.train import session as train_session
from aiayn_cli.train.options import TrainOptions
from aiayn_cli.train.session import run_train

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


def prepare_texts(
    folder: Path, texts: Mapping[str, Mapping[str, Sequence[Sequence[str]]]], **data: Any
) -> PreparedData:
    """Prepare lines of words: by split, `train` and `valid`, and by language, `en` and `de`."""
    files = {}
    for split, languages in texts.items():
        for lang, lines in languages.items():
            files[split, lang] = folder / f"{split}.{lang}"
            files[split, lang].write_text("".join(" ".join(words) + "\n" for words in lines), encoding="utf-8")
    train, valid = ((files[split, "en"], files[split, "de"]) for split in ("train", "valid"))
    settings = {"max_ratio": 9.0, **data}
    out = folder / "prepared"
    run_prepare(PrepareOptions(train=[train], valid=valid, langs="en-de", out=out, settings=settings, workers=1))
    return PreparedData.load(out)


def prepare_small_data(folder: Path, seed: int) -> PreparedData:
    """Some 150 pairs of one to eight words that mean nothing."""
    chance, texts = random.Random(seed), {}
    for split, count in (("train", 150), ("valid", 9)):
        lengths = [chance.randint(1, 8) for _ in range(count)]
        texts[split] = {lang: [chance.choices(words, k=k) for k in lengths] for lang, words in WORDS.items()}
    return prepare_texts(folder, texts, vocab_size=80)


@pytest.fixture(scope="session", autouse=True)
def _one_rate() -> Iterator[None]:
    """Take the rate of products as given: to measure it takes as long as all else in a run of the small recipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_session, "matmul_rate", lambda _: 1e9)
        yield


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
def train_into(small_data: PreparedData, small_recipe: Path) -> Train:
    """Train the small recipe in a folder; settings without a section are those of training."""

    def train(run: Path, *settings: str, data: PreparedData = small_data, **options: Any) -> Any:
        overrides = [setting if "." in setting.split("=")[0] else f"training.{setting}" for setting in settings]
        options = {"recipe": str(small_recipe), "overrides": overrides, "data": data.folder, "out": run, **options}
        return run_train(TrainOptions(**options))

    return train


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Train alone and on one thread, and leave torch as it was."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


@pytest.fixture
def train(train_into: Train, tmp_path: Path) -> Train:
    """The same in a folder of its own."""
    return lambda *settings, name="run", **options: train_into(tmp_path / name, *settings, **options)


@pytest.fixture(scope="session")
def run_once(train_into: Train, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """The result of a run that nothing happens to, with some settings; made once for all tests."""

    @cache
    def result(*settings: str) -> dict[str, Any]:
        run = tmp_path_factory.mktemp("unbroken") / "run"
        train_into(run, *settings)
        return result_of(run)

    return result


@pytest.fixture
def unbroken(run_once: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return run_once()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that translates, though not well."""
    return make_checkpoint(tmp_path_factory.mktemp("models") / "one", seed=1)
