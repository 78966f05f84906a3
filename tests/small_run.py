"""Prepared data and a recipe small enough to train in a fraction of a second, and runs of it, ended and compared."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from translation_models import make_checkpoint

from aiayn_cli.average.session import AverageOptions, run_average
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.prepare.pipeline import run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.train import session as session_module
from aiayn_cli.train.gradient import GradientOfUpdates
from aiayn_cli.train.options import TrainOptions
from aiayn_cli.train.session import run_train

Train = Callable[..., Any]  # a TrainResult, or of a dry run its own


class Killed(BaseException):
    """Ends a run at once, as kill -9 does; nothing catches it."""


@contextmanager
def ending_after(updates: int, how: str) -> Iterator[None]:
    """Within it, a call of run_train gets a signal, or dies, when it has done so many updates."""
    done, learn = iter(range(1, 1_000)), GradientOfUpdates.of
    received: list[str] = []

    def counted(*args: Any) -> Any:
        if next(done) >= updates:
            if how == "kill":
                raise Killed
            received.append(how)
        return learn(*args)

    @contextmanager
    def signals() -> Iterator[Callable[[], str]]:
        yield lambda: received[0] if received else ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GradientOfUpdates, "of", counted)
        patch.setattr(session_module, "signals", signals)
        yield


def tensors_of(run: Path) -> dict[str, bytes]:
    """Weights and moments of the newest checkpoint."""
    newest = list_checkpoints(run)[-1]
    tensors = {**load_checkpoint(newest).weights(), **load_training(newest).moments}
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def state_of(run: Path) -> dict[str, Any]:
    """The state in the newest checkpoint, without the times, which no two runs share."""
    state = load_training(list_checkpoints(run)[-1]).state
    return {name: value for name, value in state.items() if name not in ("seconds", "saved_seconds")}


def result_of(run: Path) -> dict[str, Any]:
    """All that two runs should have in common, in the end, to the last bit."""
    # Of what was done twice, after a kill, the last counts.
    events = {(r["event"], r["step"]): r for r in read_metrics(run / "metrics.jsonl")}
    average = load_checkpoint(run_average([run], AverageOptions()).model).weights()
    return {
        "checkpoints": [path.name for path in list_checkpoints(run)],
        "in the folder": sorted(path.name for path in (run / "checkpoints").iterdir()),
        "best": (run / "checkpoints" / "best").readlink(),
        "tensors": tensors_of(run),
        "state": state_of(run),
        "validations": {
            key: (record["loss"], record["bleu"], record["best"])
            for key, record in events.items()
            if key[0] == "validation"
        },
        "gradient norms": {key: r["gradient_norm"] for key, r in events.items() if key[0] == "train"},
        "average": {name: tensor.numpy().tobytes() for name, tensor in average.items()},
    }


def updates_logged(run: Path) -> int:
    """How many updates a run has recorded, those done twice counted twice."""
    path = run / "metrics.jsonl"
    return sum(record["event"] == "train" for record in read_metrics(path)) if path.exists() else 0


def flip_a_bit(path: Path) -> None:
    """Damage a file near its end."""
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


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
        patch.setattr(session_module, "matmul_rate", lambda _: 1e9)
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
