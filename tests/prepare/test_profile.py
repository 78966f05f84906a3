"""Letters, scripts and words of many records at once are what looking at each character says."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.prepare.drop_rules import Profiler

GERMAN, JAPANESE, UNKNOWN = Profiler("de"), Profiler("ja"), Profiler("xx")

records = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), max_size=9)


@given(records)
def test_words_and_letters_are_those_that_python_finds(records: list[str]) -> None:
    profile = GERMAN.profile(records)
    assert profile.words.tolist() == [len(record.split()) for record in records]
    assert profile.letters.tolist() == [sum(map(str.isalpha, record)) for record in records]
    assert (profile.own + profile.foreign <= profile.letters).all()


@given(records)
def test_a_letter_named_latin_is_latin(records: list[str]) -> None:
    latin = [sum(c.isalpha() and unicodedata.name(c, "").startswith("LATIN ") for c in r) for r in records]
    assert (GERMAN.profile(records).own >= np.array(latin, np.int64)).all()
    assert not UNKNOWN.profile(records).own.any()
    assert not UNKNOWN.profile(records).foreign.any()


@pytest.mark.parametrize(
    ("profiler", "record", "wrong"),
    [
        (GERMAN, "Ein Satz über Größe.", False),
        (GERMAN, "Das Wort мир ist Russisch.", False),
        (GERMAN, "Это не по-немецки", True),
        (GERMAN, "これはドイツ語ではありません。", True),
        (GERMAN, "12.5 % – !?", False),
        (GERMAN, "", False),
        (JAPANESE, "これは日本語です。", False),
        (JAPANESE, "iPhoneを買った", False),  # 6 letters of Latin, 5 of Japanese
        (JAPANESE, "This is not Japanese 語", True),
        (UNKNOWN, "Это не по-немецки", False),
    ],
)
def test_the_script_of_most_letters_decides(profiler: Profiler, record: str, wrong: bool) -> None:
    assert profiler.find_wrong_script(profiler.profile([record])).tolist() == [wrong]
