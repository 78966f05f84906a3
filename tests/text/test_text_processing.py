"""What prepare does to text travels with the run and the checkpoint: translate does it too, and undoes it after."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import sacremoses
import torch
from translation_models import translate_options

from aiayn_cli.average.session import AverageOptions, run_average
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.config import TextConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device
from aiayn_cli.errors import ConfigError
from aiayn_cli.model.build import build_model
from aiayn_cli.prepare.pipeline import run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.text.codec import load_vocabs
from aiayn_cli.text.vocab import Vocab
from aiayn_cli.train.options import TrainOptions
from aiayn_cli.train.session import run_train
from aiayn_cli.translate.line_translator import LineTranslator
from aiayn_cli.translate.session import run_translate

LINES = ["the dog, here", "", "a cat: sees a tree.", "(one) house"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    words = {"en": ("the dog,", "(a cat)", "sees:", "one tree."), "de": ("der Hund,", "(eine Katze)", "sieht:", "den.")}
    for lang, parts in words.items():
        lines = [f"{parts[i % 4]} {parts[i // 4 % 4]} {parts[i // 16 % 4]} {parts[i // 64 % 4]}" for i in range(120)]
        (folder / f"train.{lang}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    run_prepare(
        PrepareOptions(
            train=[(folder / "train.en", folder / "train.de")],
            langs="en-de",
            out=folder / "prepared",
            settings={"vocab_size": 40, "moses_tokenise": True, "separate_vocabs": True, "case_copies": 0.0},
            workers=1,
        )
    )
    return folder / "prepared"


@dataclass
class Tokenised:
    """Both vocabularies, for text that was tokenised already."""

    src: Vocab
    tgt: Vocab

    def __post_init__(self) -> None:
        self.size = max(self.src.size, self.tgt.size)
        self.encode, self.pieces = self.src.encode, self.src.pieces
        self.text, self.tgt_lang = TextConfig(), "de"

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        return self.tgt.decode(sequences)


def test_a_model_translates_raw_text_into_raw_text(prepared: Path, small_recipe: Path, tmp_path: Path) -> None:
    settings = ["model.share_embeddings=decoder", "training.max_updates=60", "training.save_every_steps=30"]
    run_train(
        TrainOptions(recipe=str(small_recipe), overrides=settings, data=prepared, out=tmp_path / "run", device="cpu")
    )
    run_average([tmp_path / "run"], AverageOptions())
    checkpoint = load_checkpoint(find_model(tmp_path / "run"))
    assert checkpoint.parents
    assert checkpoint.text == TextConfig(moses_tokenise=True)
    assert checkpoint.vocab_sha256 == PreparedData.load(prepared).codec().sha256
    (tmp_path / "in").write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    result = run_translate(
        translate_options([tmp_path / "run"], source=str(tmp_path / "in"), device="cpu", precision="fp32", keep=True)
    )
    assert result.translations is not None

    english, german = sacremoses.MosesTokenizer("en"), sacremoses.MosesDetokenizer("de")
    tokenised = [english.tokenize(line, escape=False, return_str=True) for line in LINES]
    model = build_model(checkpoint.model, checkpoint.vocab_size).eval()
    checkpoint.load_into(model)
    vocab = Tokenised(*load_vocabs(checkpoint.path))
    cpu = Device(torch.device("cpu"), torch.float32, 1, "")
    expected = LineTranslator([model], vocab, cpu, checkpoint.decoding).translate(tokenised)
    found = [outputs[0].text for outputs in result.translations]
    assert found == [german.detokenize(line.split(" "), unescape=False) for line in expected]
    assert tokenised[0] == "the dog , here"
    assert len(set(found)) > 1


def test_separate_vocabularies_cannot_share_one_matrix(prepared: Path, small_recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"share_embeddings is all, but .* has a vocabulary for each side") as caught:
        run_train(TrainOptions(recipe=str(small_recipe), data=prepared, out=tmp_path / "run", device="cpu"))
    assert (
        caught.value.hint
        == "add --set model.share_embeddings=decoder, or prepare with --set data.separate_vocabs=false"
    )
    assert not (tmp_path / "run").exists()
