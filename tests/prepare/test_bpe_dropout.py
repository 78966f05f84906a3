"""Without dropout, words are split as SentencePiece splits them; with it, each merge is left out that often."""

import io
import random

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.bpe_dropout import RandomSplitter, merge
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.text.vocab import BLANK_MARK, Vocab

WORDS = {
    "banana": 40,
    "bandana": 9,
    "anagram": 20,
    "nab": 11,
    "gramm": 7,
    "mamas": 13,
    "aaaa": 5,
    "straße": 8,
    "абв": 3,
}
VOCAB = Vocab(train_vocab(WORDS, 90), "test.model")
SUB_WORDS = VOCAB.sub_words()


@given(st.lists(st.text("abngrmdsteßабв", min_size=1, max_size=30), max_size=5))
def test_without_dropout_words_are_split_as_sentencepiece_does(words: list[str]) -> None:
    for word in words:
        split = merge(BLANK_MARK + word, SUB_WORDS, 0.0, random.Random(1))
        assert [SUB_WORDS[part] for part in split] == VOCAB.encode([word])[0]


@given(st.lists(st.text(), max_size=4), st.floats(0, 0.99), st.integers(0, 5))
def test_what_was_split_at_random_is_the_same_text(records: list[str], dropout: float, draw: int) -> None:
    ids, lengths = RandomSplitter(VOCAB, dropout, seed=3, cached_words=50).encode_flat(records, (draw,))
    best, best_lengths = VOCAB.encode_flat(records)
    ends, best_ends = np.cumsum([0, *lengths]), np.cumsum([0, *best_lengths])
    for i in range(len(records)):
        found, expected = ids[ends[i] : ends[i + 1]].tolist(), best[best_ends[i] : best_ends[i + 1]].tolist()
        assert VOCAB.decode([found]) == VOCAB.decode([expected])
        assert len(found) >= len(expected) or dropout > 0  # chance may find a shorter way than the usual one


def test_each_merge_is_left_out_as_often_as_told() -> None:
    pair = Vocab(train_vocab({"ab": 9}, 9), "pair.model")
    parts = set(pair.sub_words())
    assert len(parts) == 5  # three characters, and the two merges that make the whole word
    lengths = [
        length
        for seed in range(100)
        for length in RandomSplitter(pair, 0.25, seed, 1_000).encode_flat(["ab"] * 64, ())[1].tolist()
    ]
    n = len(lengths)
    assert abs(lengths.count(1) / n - 0.75**2) < 0.03  # neither is left out
    assert abs(lengths.count(2) / n - 0.75 * 0.25) < 0.03
    assert abs(lengths.count(3) / n - 0.25) < 0.03


def test_all_characters_remain_at_the_highest_dropout() -> None:
    split = merge(BLANK_MARK + "banana", SUB_WORDS, 1.0, random.Random(1))
    assert split == [BLANK_MARK, *"banana"]


def test_the_cache_changes_nothing() -> None:
    records = [f"{a} {b}" for a in WORDS for b in WORDS]
    found = [RandomSplitter(VOCAB, 0.2, 7, size).encode_flat(records, (1, 2))[0].tobytes() for size in (3, 10_000)]
    assert found[0] == found[1]


def test_other_draws_and_other_seeds_split_otherwise() -> None:
    records = list(WORDS)
    splitters = RandomSplitter(VOCAB, 0.4, 7, 99), RandomSplitter(VOCAB, 0.4, 8, 99)
    found = {splitter.encode_flat(records, draw)[0].tobytes() for splitter in splitters for draw in ((1,), (2,))}
    assert len(found) == 4


def test_a_vocabulary_of_another_kind_is_refused() -> None:
    model = train_vocab(WORDS, 60, "unigram")
    with pytest.raises(DataError, match=r"mine\.model is not of byte-pair encoding"):
        RandomSplitter(Vocab(model, "mine.model"), 0.1, 1, 99)
    over_blanks = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b a b"] * 9), model_writer=over_blanks, vocab_size=9, model_type="bpe", pad_id=0,
        unk_id=1, bos_id=2, eos_id=3, split_by_whitespace=False, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(DataError, match=r"over\.model is not of byte-pair encoding"):
        RandomSplitter(Vocab(over_blanks.getvalue(), "over.model"), 0.1, 1, 99)
