"""Text that looks the same comes out the same; what a script or an emoji needs stays."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiayn_cli.text.normalise import normalise

INVISIBLE = "\u00ad\u034f\u061c\u200b\u200e\u200f\u202a\u202e\u2060\u2066\u2069\ufeff\ufe0e\U000e0001"
BLANKS = " \t\u00a0\u2003\u2009\u202f\u205f\u3000\u1680\u0085\u2028"


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_what_is_not_seen_goes_wherever_it_stands(character: str) -> None:
    for text in (f"{character}die Katze", f"die{character} Katze", f"die Ka{character}tze", f"die Katze{character}"):
        assert normalise(text) == "die Katze"


@pytest.mark.parametrize("blank", BLANKS, ids=ascii)
def test_any_stretch_of_blanks_is_one_and_none_is_at_the_ends(blank: str) -> None:
    assert normalise(f"{blank}die{blank} {blank}Katze{blank}{blank}") == "die Katze"


def test_accents_are_composed_even_behind_an_invisible_character() -> None:
    assert normalise(unicodedata.normalize("NFD", "schöne Grüße, Đặng 각")) == "schöne Grüße, Đặng 각"
    assert normalise("e\u00ad\u0301") == "é"


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",  # a Persian suffix
        "क्\u200dष",  # a Hindi half form
        "ക്\u200d",  # a Malayalam chillu at the end
        "👨\u200d👩\u200d👧",
        "❤\ufe0f",
        "1\ufe0f\u20e3",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
        "ᠪᠢ\u180b",
    ],
    ids=ascii,
)
def test_what_a_script_or_an_emoji_needs_stays(text: str) -> None:
    assert normalise(text) == text


def test_a_joiner_between_other_letters_or_before_a_blank_goes() -> None:
    assert normalise("ab\u200dc a\u200cb a\ufe0f") == "abc ab a"
    assert normalise("می\u200c رود\u200c") == "می رود"


@given(st.text())
@example("می\u200c\u200d ")
@example("👨\u200d\ufe0f\u200d👩")
def test_twice_is_once_and_letters_are_kept(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert unicodedata.is_normalized("NFC", once)
    seen = [c for c in unicodedata.normalize("NFC", text) if c.isalnum()]
    assert [c for c in unicodedata.normalize("NFC", once) if c.isalnum()] == seen or "\u034f" in text
