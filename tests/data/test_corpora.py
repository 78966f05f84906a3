"""Corpora are found by name, and languages are written in one way."""

import pytest

from aiayn_cli.data.corpora import find_corpus, parse_langs
from aiayn_cli.errors import DataError, UsageError


def test_the_demo_is_english_to_german_and_small() -> None:
    demo = find_corpus("demo")
    assert (demo.src_lang, demo.tgt_lang, demo.vocab_size) == ("en", "de", 2_800)


@pytest.mark.parametrize("name", ["dmeo", "Demo"])
def test_an_unknown_corpus_is_answered_with_the_nearest_name(name: str) -> None:
    with pytest.raises(DataError, match=f"unknown corpus '{name}'") as caught:
        find_corpus(name)
    assert caught.value.hint == "did you mean demo? (for files of your own give --train)"


@pytest.mark.parametrize(
    ("text", "langs"), [("en-de", ("en", "de")), ("zh_Hans-en", ("zh_Hans", "en")), ("deu-gsw", ("deu", "gsw"))]
)
def test_languages_are_source_and_target(text: str, langs: tuple[str, str]) -> None:
    assert parse_langs(text) == langs


@pytest.mark.parametrize("text", ["", "en", "en-", "-de", "en de", "en-de-fr", "../x-de", "e-d", "en/de"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be source-target") as caught:
        parse_langs(text)
    assert text == "" or repr(text) in caught.value.problem


def test_two_equal_languages_are_refused() -> None:
    with pytest.raises(UsageError, match="source and target are the same"):
        parse_langs("de-de")
