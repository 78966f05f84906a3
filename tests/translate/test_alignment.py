from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.text.vocab import Vocab
from aiayn_cli.translate.forced_decoding import align_words, join_links, word_numbers


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        (["▁the", "▁do", "g", "."], [0, 1, 1, 1]),
        (["▁", "a", "▁", "▁b"], [-1, 0, -1, 1]),
        (["ab", "c"], [0, 0]),
        (["▁", "▁"], [-1, -1]),
        ([], []),
    ],
)
def test_words_are_what_blanks_separate(pieces: list[str], numbers: list[int]) -> None:
    assert word_numbers(pieces) == numbers


@given(text=st.text("ab .", max_size=20))
def test_there_are_as_many_words_as_in_the_text(text: str) -> None:
    vocab = Vocab(train_vocab(Counter({"ab": 5, "ba.": 3, "a": 2, "b": 1, ".": 1}), 12), "test")
    numbers = word_numbers(vocab.pieces(vocab.encode([text])[0]))
    assert max(numbers, default=-1) + 1 == len(text.split())


def test_each_target_word_is_linked_with_the_source_word_that_all_its_pieces_attend_to_most() -> None:
    src, tgt = ["▁a", "▁b", "b", "▁c"], ["▁x", "x", "▁y", "▁"]
    attention = np.array(
        [
            [0.4, 0.3, 0.2, 0.1, 0.0],  # alone, the first piece of x would be a's by one piece, but b has two
            [0.1, 0.3, 0.3, 0.0, 0.3],
            [0.1, 0.0, 0.0, 0.2, 0.7],  # EOS takes no part
            [0.0, 0.0, 0.9, 0.1, 0.0],
            [1.0, 0.0, 0.0, 0.0, 0.0],
        ],
        np.float32,
    )
    assert align_words(attention, src, tgt) == ((1, 0), (2, 1))


def test_without_words_there_are_no_links() -> None:
    assert align_words(np.ones((3, 2), np.float32), ["▁"], ["▁a", "▁b"]) == ()
    assert align_words(np.ones((1, 2), np.float32), ["▁a"], []) == ()


def test_parts_are_counted_on() -> None:
    assert join_links([(((1, 0), (0, 1)), 2, 2), ((), 1, 0), (((0, 0),), 1, 1)]) == ((1, 0), (0, 1), (3, 2))
