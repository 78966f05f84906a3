"""The corpora that `aiayn prepare NAME` knows, and how a pair of languages is written."""

import re
from dataclasses import dataclass

from aiayn_cli.errors import DataError, UsageError, did_you_mean

_LANGS = re.compile(r"([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*)-([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*)")


@dataclass(frozen=True)
class Corpus:
    """One corpus.

    Attributes:
        name: what the user types.
        src_lang: code of the source language.
        tgt_lang: code of the target language.
        vocab_size: sub-words that suit it, special tokens included.
        description: one line for the list.
    """

    name: str
    src_lang: str
    tgt_lang: str
    vocab_size: int
    description: str


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            "demo", "en", "de", 2_800, "sentences made by a small English-German grammar; built in, no network needed"
        ),
    )
}


def find_corpus(name: str) -> Corpus:
    """Find a corpus by name.

    Raises:
        DataError: there is none of that name; the nearest one is named.
    """
    if name not in CORPORA:
        raise DataError(
            f"unknown corpus {name!r}", did_you_mean(name, CORPORA) + " (for files of your own give --train)"
        )
    return CORPORA[name]


def parse_langs(text: str) -> tuple[str, str]:
    """Split "en-de" into source and target language.

    Raises:
        UsageError: not two different language codes.
    """
    match = _LANGS.fullmatch(text)
    if not match:
        raise UsageError(f"--langs is {text!r}, but must be source-target", "write it like en-de, or zh_Hans-en")
    src, tgt = match.groups()
    if src == tgt:
        raise UsageError(f"--langs is {text!r}: source and target are the same", "write it like en-de")
    return src, tgt
