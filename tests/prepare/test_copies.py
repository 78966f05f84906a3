"""Copies are in the case that a reader of the language expects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.prepare.text_shards import TITLE, UPPER, make_copy


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
