"""Prepared data and a recipe small enough to train in a fraction of a second."""

import random
from collections.abc import Callable, Iterator
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
        PrepareOptions(
            train=[(files["train", "en"], files["train", "de"])],
            valid=(files["valid", "en"], files["valid", "de"]),
            langs="en-de",
            out=out,
            settings={"vocab_size": 80, "max_ratio": 9.0},
            workers=1,
        )
    )
    return PreparedData.load(out)


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


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Train alone and on one thread, and leave torch as it was."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


@pytest.fixture
def train(small_data: PreparedData, small_recipe: Path, tmp_path: Path) -> Train:
    """Train the small recipe in a folder of its own; settings without a section are training's."""

    def run(*overrides: str, name: str = "run", data: Path | None = None, **options: Any) -> Any:
        settings = [f"training.{override}" if "." not in override.split("=")[0] else override for override in overrides]
        return run_train(
            TrainOptions(
                recipe=str(small_recipe),
                overrides=settings,
                data=data or small_data.folder,
                out=tmp_path / name,
                **options,
            )
        )

    return run


@pytest.fixture(scope="session")
def run_once(
    small_data: PreparedData, small_recipe: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Any]]:
    """The result of a run that nothing happens to, with some settings; made once for all tests."""

    @cache
    def result(*settings: str) -> dict[str, Any]:
        run = tmp_path_factory.mktemp("unbroken") / "run"
        run_train(TrainOptions(recipe=str(small_recipe), overrides=settings, data=small_data.folder, out=run))
        return result_of(run)

    return result


@pytest.fixture
def unbroken(run_once: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return run_once()


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that translates, though not well."""
    return make_checkpoint(tmp_path_factory.mktemp("models") / "one", seed=1)
