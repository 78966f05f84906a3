"""Copies are in the case that a reader of the language expects; pieces of text become ids in order, but for pairs that
the rules on length claim."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli import processes as parallel
from aiayn_cli.prepare.drop_rules import LengthRules
from aiayn_cli.prepare.text_shards import (
    TITLE,
    UPPER,
    EncodedChunk,
    PairsWithCopies,
    Piece,
    encode_chunk,
    encode_pieces,
    make_copy,
)
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import load_vocabs
from aiayn_cli.text.lines import join_records
from aiayn_cli.text.vocab import Vocab

LETTERS = "abcdefgABCDEFG"
VOCAB_SIZE = 4 + 1 + len(LETTERS)  # special tokens, the blank, and each letter: as many tokens as characters, and one
RULES = LengthRules(max_length=30, max_ratio=1.5)


@pytest.fixture(scope="module")
def vocab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocab")
    (folder / "vocab.model").write_bytes(train_vocab({LETTERS: 3}, VOCAB_SIZE))
    return folder


def some_pieces(folder: Path, n: int) -> list[Piece]:
    rng = random.Random(5)
    paths = folder / "text.src", folder / "text.tgt"
    contents = [b"", b""]
    pieces = []
    for number in range(n):
        sides = [["".join(rng.choices(LETTERS, k=rng.randrange(1, 40))) for _ in range(11)] for _ in range(2)]
        parts = [join_records(side) for side in sides]
        pieces.append(
            Piece(
                shard=0,
                files=paths,
                starts=(len(contents[0]), len(contents[1])),
                sizes=(len(parts[0]), len(parts[1])),
                langs=("en", "de"),
                taken=np.arange(11) % 3 != number % 3,
                copies=np.array([rng.choice([0, UPPER, TITLE]) for _ in range(11)], np.uint8),
                weight=1 + number % 2,
                origin=0,
            )
        )
        contents = [content + part for content, part in zip(contents, parts, strict=True)]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return pieces


def same(a: EncodedChunk, b: EncodedChunk) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in EncodedChunk.__dataclass_fields__)


def test_the_rules_drop_whole_pairs_and_count_them_once(vocab_folder: Path) -> None:
    vocab = Vocab.load(vocab_folder / "vocab.model")
    src = ["a" * 20, "b" * 30, "c" * 2, "d" * 29, "e" * 40, ""]
    tgt = ["ab" * 5, "c" * 29, "d" * 20, "eg" * 14, "f", ""]
    encoded = encode_chunk((vocab, vocab), RULES, PairsWithCopies(src, tgt, 0, 0))
    assert (encoded.too_many_tokens, encoded.length_ratio, len(encoded.src_lengths)) == (2, 1, 3)
    assert (encoded.src_lengths.tolist(), encoded.tgt_lengths.tolist()) == ([21, 30, 0], [11, 29, 0])
    assert vocab.decode([encoded.src[:21].tolist(), encoded.src[21:].tolist()]) == ["a" * 20, "d" * 29]
    assert vocab.decode([encoded.tgt[:11].tolist(), encoded.tgt[11:].tolist()]) == ["ab" * 5, "eg" * 14]


def test_copies_that_the_rules_claim_are_left_out_without_a_count(vocab_folder: Path) -> None:
    src = ["a", "b" * 40, "A", "B" * 40, "A" * 40, "A"]
    encoded = encode_chunk(load_vocabs(vocab_folder), RULES, PairsWithCopies(src, src, n_upper=3, n_title=1))
    assert (encoded.too_many_tokens, encoded.length_ratio) == (1, 0)
    assert (len(encoded.src_lengths), encoded.n_upper, encoded.n_title) == (3, 1, 1)


def test_unknown_tokens_are_counted_in_what_is_kept(vocab_folder: Path) -> None:
    text = PairsWithCopies(["xa", "a", "x" + "a" * 50], ["b", "yby", "z"], 0, 0)
    encoded = encode_chunk(load_vocabs(vocab_folder), RULES, text)
    assert encoded.unknown == 3
    assert UNK_ID in encoded.src


@pytest.mark.parametrize("n_pieces", [0, 1, 50])
def test_the_number_of_processes_changes_nothing(
    vocab_folder: Path, tmp_path: Path, n_pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ITEMS_WORTH_A_PROCESS", 5)
    pieces = some_pieces(tmp_path, n_pieces)
    vocabs = load_vocabs(vocab_folder)
    expected = [encode_chunk(vocabs, RULES, piece.load()) for piece in pieces]
    for workers in (1, 3):
        found = list(encode_pieces(iter(pieces), vocab_folder, RULES, workers))
        assert len(found) == n_pieces
        for (piece, found_chunk), wanted, chunk in zip(found, pieces, expected, strict=True):
            assert piece is wanted
            assert same(found_chunk, chunk)


# ---- copies


@pytest.mark.parametrize(
    ("record", "lang", "copy"),
    [
        ("they're on the 1st floor", "en", "They're On The 1st Floor"),
        ("“quoted” (in brackets) ice-cream", "en", "“Quoted” (In Brackets) Ice-cream"),
        ("der große McDonald", "de", "Der Große McDonald"),
        ("izmir ırmak", "tr", "İzmir Irmak"),
        ("我们 are", "zh", "我们 Are"),
        ("", "en", ""),
    ],
)
def test_title_case_begins_each_word_with_a_capital(record: str, lang: str, copy: str) -> None:
    assert make_copy(record, lang, TITLE) == copy


@pytest.mark.parametrize(
    ("record", "lang", "copy"),
    [
        ("they're on the 1st floor", "en", "THEY'RE ON THE 1ST FLOOR"),
        ("die große Straße", "de", "DIE GROSSE STRASSE"),
        ("izmir ırmak", "tr", "İZMİR IRMAK"),
        ("izmir", "az_Latn", "İZMİR"),
        ("Καλημέρα κόσμε", "el", "ΚΑΛΗΜΕΡΑ ΚΟΣΜΕ"),
        ("我们", "zh", "我们"),
    ],
)
def test_upper_case_follows_the_language(record: str, lang: str, copy: str) -> None:
    assert make_copy(record, lang, UPPER) == copy


@given(st.text(st.characters(codec="utf-8")))
def test_a_title_case_copy_has_the_same_words(record: str) -> None:
    copy = make_copy(record, "en", TITLE)
    assert [word.casefold() for word in copy.split()] == [word.casefold() for word in record.split()]
