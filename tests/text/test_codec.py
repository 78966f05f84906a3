"""Lines become ids and ids lines by what the prepared data or the checkpoint says, for each side its own way."""

import hashlib
from pathlib import Path

import pytest

from aiayn_cli.config import TextConfig
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.text.codec import Codec, joint_sha256, load_vocabs
from aiayn_cli.text.vocab import Vocab

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


def test_an_id_that_only_the_larger_vocabulary_has_is_unknown_text(folder: Path) -> None:
    (folder / "vocab.tgt.model").write_bytes(TGT)
    codec = Codec.load(folder, PLAIN, "en", "de")
    assert codec.decode([[codec.size - 1]]) == ["\u2047"]


def test_text_is_processed_before_and_after(folder: Path) -> None:
    codec = Codec.load(folder, MOSES, "en", "de")
    vocab = Vocab.load(folder / "vocab.model")
    assert codec.encode(["abc, dab"]) == vocab.encode(["abc , dab"])
    assert codec.decode(vocab.encode(["abc , dab"])) == ["abc, dab"]
