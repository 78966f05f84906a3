"""Codes of languages, whichever standard they follow."""

import pytest

from aiayn_cli.text.languages import joins_without_blanks, primary_language

CODES = {
    "de": "de deu ger DE de-AT de_DE deu_Latn ger-CH",
    "zh": "zh zho chi cmn zh-TW zho_Hant cmn_Hans",
    "tr": "tr tur tur_Latn tr-TR",
    "jv": "jav_Latn",
    "ar": "ar arb ara arb_Arab",
    "gsw": "gsw gsw-CH",
    "xx": "xx XX-yy",
    "demo": "demo",
}


@pytest.mark.parametrize(("code", "written"), CODES.items())
def test_every_standard_says_the_same(code: str, written: str) -> None:
    assert {primary_language(each) for each in written.split()} == {code}


def test_sentences_of_some_languages_join_without_a_blank() -> None:
    assert all(map(joins_without_blanks, ("zh", "zho_Hans", "jpn_Jpan", "tha_Thai", "lo", "khm_Khmr", "mya")))
    assert not any(map(joins_without_blanks, ("de", "jav_Latn", "ko", "kmr")))
