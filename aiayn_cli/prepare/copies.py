"""Copies of pairs in upper case and in title case, so that a model knows text that SHOUTS and Text Like Headlines."""

import re
import unicodedata

UPPER, TITLE = 1, 2  # what kind of copy

# The first letter or digit of a word, after quotes and brackets. An apostrophe inside a word starts no new one.
_FIRST = re.compile(r"(?<!\S)([^\w\s]*)(\w)")
_DOTTED = ("tr", "az")  # the capital of i keeps its dot
_STRIPPED = ("el", "grc")  # capitals have no accent


def make_copy(record: str, lang: str, kind: int) -> str:
    """Write a record in upper case (UPPER) or with a capital at the start of each word (TITLE)."""
    code = lang.lower().replace("-", "_").split("_")[0]
    if kind == TITLE:
        return _FIRST.sub(lambda match: match[1] + _capital(match[2], code), record)
    return _upper(record, code)


def _upper(text: str, code: str) -> str:
    if code in _DOTTED:
        text = text.replace("i", "İ")
    elif code in _STRIPPED:
        decomposed = unicodedata.normalize("NFD", text)
        text = unicodedata.normalize("NFC", decomposed.replace("\u0301", ""))
    return text.upper()


def _capital(letter: str, code: str) -> str:
    if code in _DOTTED and letter == "i":
        return "İ"
    return letter.title()
