import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.translate.line_translator import segments, split_points


def parts(pieces: list[str], limit: int) -> list[str]:
    ends = split_points(pieces, limit)
    return ["".join(pieces[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def words(*texts: str) -> list[str]:
    """One piece for each word and each mark after it."""
    pieces = []
    for word in " ".join(texts).split(" "):
        stem = word.rstrip('.,!?")”')
        pieces += ["▁" + stem, *word[len(stem) :]]
    return pieces


@given(
    pieces=st.lists(st.text(st.sampled_from('▁a.,!?"”。、…'), min_size=1, max_size=3), max_size=60),
    limit=st.integers(1, 25),
)
def test_parts_join_to_the_whole_and_none_is_empty_or_too_long(pieces: list[str], limit: int) -> None:
    ends = split_points(pieces, limit)
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert all(1 <= size <= limit for size in sizes)
    assert sum(sizes) == len(pieces)


def test_cuts_come_at_the_ends_of_sentences() -> None:
    long = "one two three four five six seven eight nine ten eleven twelve"
    sentences = [f'He said: "{long}!"', f"Really? {long}.", f"And Dr. Smith {long}?"]
    pieces = words(*sentences)
    assert parts(pieces, limit=20) == ["".join(words(sentence)) for sentence in sentences]


def test_a_number_with_a_full_stop_inside_is_not_cut() -> None:
    pieces = ["▁w"] * 11 + ["▁3", ".", "15"] + ["▁w"] * 9
    assert split_points(pieces, limit=18) != [13, 23]
    assert 13 not in split_points(pieces, limit=18)


def test_chinese_needs_no_blank_after_its_full_stop() -> None:
    pieces = [*"我喜欢喝绿茶和咖啡也喜欢水", "。", *"他不喜欢喝绿茶和咖啡也不喜欢水", "。"]
    assert split_points(pieces, limit=20) == [14, 30]


def test_a_sentence_that_is_too_long_is_cut_after_a_clause_else_between_words_else_anywhere() -> None:
    clauses = ["▁a"] * 14 + [","] + ["▁a"] * 9
    assert split_points(clauses, limit=20) == [15, 24]
    assert split_points(["▁a", "b", "c"] * 5, limit=7) == [6, 12, 15]
    assert split_points(["▁a", *"b" * 12], limit=5) == [5, 10, 13]


@pytest.mark.parametrize("piece", ["a", "▁a", ".", ","])
def test_a_hundred_thousand_pieces_take_no_long_time(piece: str) -> None:
    started = time.perf_counter()
    assert len(split_points([piece] * 100_000, limit=250)) >= 400
    assert time.perf_counter() - started < 5


@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=40), max_size=9),
    blank=st.sampled_from([" ", "  ", "\u3000"]),
)
def test_segments_hold_every_word_in_order_and_only_long_ones_stand_alone(words: list[str], blank: str) -> None:
    text = blank.join(words)
    found = list(segments(text, 20, len))
    assert " ".join(part for part, _ in found).split() == text.split()
    long = [word for word in text.split() if len(word) > 20]
    named = [part for part, is_word in found if is_word]
    dense = [word for word in long if 4 * sum(c.isalpha() and c > "\u0e00" for c in word) > len(word)]
    assert [word for word in long if word not in dense] == [word for word in named if word not in dense]


def test_a_text_without_long_words_is_one_segment_as_it_is() -> None:
    assert list(segments(" a  b ", 3, len)) == [(" a  b ", False)]
    assert list(segments("aaaa", 3, len)) == [("aaaa", True)]
    assert list(segments("b aaaa aaaa  ", 3, len)) == [("b", False), ("aaaa", True), ("aaaa", True)]
    assert list(segments("中国人中国人", 3, len)) == [("中国人中国人", False)]
    assert list(segments("🙂" * 5, 3, len)) == [("🙂" * 5, True)]
