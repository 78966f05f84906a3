"""Lines become ids and ids lines by what the prepared data or the checkpoint says, for each side its own way."""

import hashlib
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
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device
from aiayn_cli.errors import ConfigError
from aiayn_cli.model.build import build_model
from aiayn_cli.prepare.pipeline import run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.codec import Codec, joint_sha256, load_vocabs
from aiayn_cli.text.vocab import Vocab
from aiayn_cli.train.options import TrainOptions
from aiayn_cli.train.session import run_train
from aiayn_cli.translate.line_translator import LineTranslator
from aiayn_cli.translate.session import run_translate

SRC, TGT = train_vocab({"abc,": 5, "dab": 3, "'": 1}, 40), train_vocab({"xyz.": 9, "'": 1, ",": 1}, 17)
PLAIN, MOSES = TextConfig(), TextConfig(moses_tokenise=True, normalise_punctuation=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vocab.model").write_bytes(SRC)
    return tmp_path


def test_one_vocabulary_serves_both_sides(folder: Path) -> None:
    codec = Codec.load(folder, PLAIN, "en", "de")
    vocab = Vocab.load(folder / "vocab.model")
    assert (codec.size, codec.sha256) == (vocab.size, vocab.sha256)
    lines = ["abc, dab", "", "a  b"]
    assert codec.encode(lines) == vocab.encode(lines)
    assert codec.decode(codec.encode(lines)) == lines
    assert codec.pieces(codec.encode(["abc"])[0]) == vocab.pieces(vocab.encode(["abc"])[0])


def test_each_side_has_its_own_where_there_are_two(folder: Path) -> None:
    (folder / "vocab.tgt.model").write_bytes(TGT)
    src, tgt = load_vocabs(folder)
    assert (src.sha256, tgt.sha256) == (hashlib.sha256(SRC).hexdigest(), hashlib.sha256(TGT).hexdigest())
    codec = Codec.load(folder, PLAIN, "en", "de")
    assert codec.size == max(src.size, tgt.size)
    assert codec.encode(["abc"]) == src.encode(["abc"])
    assert codec.decode(tgt.encode(["xyz."])) == ["xyz."]
    assert codec.sha256 == joint_sha256(src, tgt)
    assert codec.sha256 not in (src.sha256, tgt.sha256, joint_sha256(tgt, src))
    (folder / "vocab.tgt.model").write_bytes(TGT)
    codec = Codec.load(folder, PLAIN, "en", "de")
    assert codec.decode([[codec.size - 1]]) == ["\u2047"]


def test_text_is_processed_before_and_after(folder: Path) -> None:
    codec = Codec.load(folder, MOSES, "en", "de")
    vocab = Vocab.load(folder / "vocab.model")
    assert codec.encode(["abc, dab"]) == vocab.encode(["abc , dab"])
    assert codec.decode(vocab.encode(["abc , dab"])) == ["abc, dab"]


LINES = ["the dog, here", "", "a cat: sees a tree.", "(one) house"]
pytestmark = pytest.mark.usefixtures("no_flush")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    words = {"en": ("the dog,", "(a cat)", "sees:", "one tree."), "de": ("der Hund,", "(eine Katze)", "sieht:", "den.")}
    for lang, parts in words.items():
        lines = [f"{parts[i % 4]} {parts[i // 4 % 4]} {parts[i // 16 % 4]} {parts[i // 64 % 4]}" for i in range(120)]
        (folder / f"train.{lang}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    settings = {"vocab_size": 40, "moses_tokenise": True, "separate_vocabs": True, "case_copies": 0.0}
    files = [(folder / "train.en", folder / "train.de")]
    run_prepare(PrepareOptions(train=files, langs="en-de", out=folder / "prepared", settings=settings, workers=1))
    return folder / "prepared"


@dataclass
class Tokenised:
    """Both vocabularies, for text that was tokenised already."""

    src: Vocab
    tgt: Vocab

    def __post_init__(self) -> None:
        self.size = max(self.src.size, self.tgt.size)
        self.encode, self.pieces = self.src.encode, self.src.pieces
        self.text, self.src_lang, self.tgt_lang = TextConfig(), "en", "de"

    def normalise(self, line: str) -> str:
        return line

    def is_blank(self, line: str) -> bool:
        return not line

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        return self.tgt.decode(sequences)


def test_a_model_translates_raw_text_into_raw_text(prepared: Path, small_recipe: Path, tmp_path: Path) -> None:
    settings = ["model.share_embeddings=decoder", "training.max_updates=60", "training.save_every_steps=30"]
    run_train(TrainOptions(recipe=str(small_recipe), overrides=settings, data=prepared, out=tmp_path / "run"))
    run_average([tmp_path / "run"], AverageOptions())
    checkpoint = load_checkpoint(find_model(tmp_path / "run"))
    assert checkpoint.parents
    assert checkpoint.text == TextConfig(normaliser=1, moses_tokenise=True)
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
    way_out = "add --set model.share_embeddings=decoder, or prepare with --set data.separate_vocabs=false"
    assert caught.value.hint == way_out
    assert not (tmp_path / "run").exists()
