"""Letters belong to the script that Unicode says; languages are written in the scripts that their readers know."""

import sys

import numpy as np
import pytest
import regex

from aiayn_cli.text.scripts import SCRIPTS, find_letters, find_members, scripts_of

UNICODE_NAMES = {"Kana": ("Hiragana", "Katakana")}  # ours are together, since all Japanese text has both
RARE = range(0x16FE0, 0x1B170)  # marks of Tangut, archaic and small kana: in no modern text


@pytest.mark.parametrize("script", SCRIPTS)
def test_letters_have_the_script_that_an_independent_library_says(script: str) -> None:
    names = UNICODE_NAMES.get(script, (script,))
    letters = [code for code in np.flatnonzero(find_letters()).tolist() if code not in RARE]
    text = "".join(map(chr, letters))
    theirs = {ord(c) for c in regex.findall("[" + "".join(rf"\p{{Script={name}}}" for name in names) + "]", text)}
    ours = set(np.flatnonzero(find_members([script])).tolist()) & set(letters)
    assert sorted(map(hex, theirs ^ ours))[:20] == []


def test_every_letter_is_found() -> None:
    expected = map(str.isalpha, map(chr, range(sys.maxunicode + 1)))
    assert np.array_equal(find_letters(), np.fromiter(expected, np.bool_))


@pytest.mark.parametrize(
    ("lang", "scripts"),
    [
        ("en", {"Latin"}),
        ("DE", {"Latin"}),
        ("ru", {"Cyrillic"}),
        ("sr", {"Cyrillic", "Latin"}),
        ("sr_Latn", {"Latin"}),
        ("zh", {"Han", "Bopomofo"}),
        ("zh_Hans", {"Han"}),
        ("zh-Hant-TW", {"Han"}),
        ("ja", {"Kana", "Han"}),
        ("ko", {"Hangul", "Han"}),
        ("pt_BR", {"Latin"}),
        ("xx", set()),
    ],
)
def test_languages_have_their_scripts(lang: str, scripts: set[str]) -> None:
    assert scripts_of(lang) == scripts
