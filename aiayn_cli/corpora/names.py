"""Finds the corpora that `aiayn prepare NAME` knows, and says how a pair of languages is written."""

import re

from aiayn_cli.corpora.corpus import Corpus
from aiayn_cli.corpora.table import CORPORA, opus_corpus
from aiayn_cli.errors import DataError, UsageError, did_you_mean

LIKE = ("paper", "t2t", "fairseq")  # whom --like can follow; not every corpus knows each
OPUS = "opus:"

_LANGS = re.compile(r"([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*)-([A-Za-z]{2,8}(?:_[A-Za-z0-9]+)*)")
_OPUS_NAME = re.compile(r"opus:([A-Za-z0-9][A-Za-z0-9_.-]*)/([A-Za-z0-9][A-Za-z0-9_.-]*)")


def find_corpus(name: str, langs: str | None = None, like: str | None = None) -> Corpus:
    """Find a corpus by name.

    Args:
        name: a name of the table, or one with its languages exchanged, or "opus:CORPUS/VERSION".
        langs: languages, such as "en-de": needed for OPUS, where one corpus has many; elsewhere they must agree.
        like: whose way of preparing it to take, of LIKE; None takes ours.
    Raises:
        DataError: there is none of that name; the nearest one is named.
        UsageError: the languages do not fit, or nobody's way of that name is known for it.
    """
    if name.startswith(OPUS):
        corpus = _find_opus(name, langs)
    else:
        corpus = _find_named(name)
        own_langs = f"{corpus.src_lang}-{corpus.tgt_lang}"
        if langs is not None and parse_langs(langs) != (corpus.src_lang, corpus.tgt_lang):
            raise UsageError(f"--langs is {langs}, but {name} is {own_langs}", "leave out --langs")
    if like is None:
        return corpus
    if like not in corpus.like:
        known = ", ".join(corpus.like) or "none"
        raise UsageError(f"--like {like} is not known for {name}", f"known for it: {known}")
    return corpus.like[like]


def _find_named(name: str) -> Corpus:
    directions = [
        each for corpus in CORPORA.values() for each in ((corpus, corpus.reverse()) if corpus.train else (corpus,))
    ]
    known = {each.name: each for direction in directions for each in (direction, *direction.like.values())}
    if name in known:
        return known[name]
    hint = did_you_mean(name, CORPORA, unlisted=known) + " (for files of your own give --train)"
    raise DataError(f"unknown corpus {name!r}", hint)


def _find_opus(name: str, langs: str | None) -> Corpus:
    match = _OPUS_NAME.fullmatch(name)
    if not match:
        raise UsageError(f"{name!r} names no corpus at OPUS", "write it like opus:TED2020/v1 --langs en-de")
    if langs is None:
        raise UsageError(f"{name} without --langs", "say which languages, such as --langs en-de")
    corpus, version = match.groups()
    src_lang, tgt_lang = parse_langs(langs)
    return opus_corpus(name, corpus, version, src_lang, tgt_lang)


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
