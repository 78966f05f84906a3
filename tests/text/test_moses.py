"""The two Moses scripts do to text what sacremoses does, and their absence is said plainly."""

import importlib

import pytest
import sacremoses
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.text_shards import make_processor
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text import moses
from aiayn_cli.text.moses import MosesText

BOTH = TextConfig(normalise_punctuation=True, moses_tokenise=True)
NOTHING = TextConfig()


def test_nothing_is_done_by_default() -> None:
    text = MosesText(NOTHING, "de")
    records = ["„So“, sagte er  …", "", " "]
    assert text.apply(records) == records
    assert text.undo(records) == records
    assert not NOTHING.changes_text


@pytest.mark.parametrize(
    ("config", "record", "applied"),
    [
        (TextConfig(normalise_punctuation=True), "“It’s” – he said…", '"It\'s" - he said...'),
        (TextConfig(moses_tokenise=True), "Isn't it <b>3.5 %</b> & more?", "Isn 't it < b > 3.5 % < / b > & more ?"),
        (BOTH, "“Yes”, he said.", '" Yes , " he said .'),
    ],
)
def test_text_is_changed_as_asked(config: TextConfig, record: str, applied: str) -> None:
    assert MosesText(config, "en").apply([record]) == [applied]
    assert config.changes_text


@pytest.mark.parametrize(
    ("lang", "record"), [("en", "Isn't it, he asked?"), ("fr", "L'eau, c'est bien."), ("xx", "a, b.")]
)
def test_tokenisation_is_undone(lang: str, record: str) -> None:
    text = MosesText(TextConfig(moses_tokenise=True), lang)
    (tokenised,) = text.apply([record])
    assert tokenised != record
    assert text.undo([tokenised]) == [record]


def test_the_language_decides_on_each_side() -> None:
    english, french = (MosesText(TextConfig(moses_tokenise=True), lang) for lang in ("en_GB", "fr"))
    assert english.apply(["l'eau z.B."]) != french.apply(["l'eau z.B."])
    assert french.apply(["l'eau"]) == ["l' eau"]
    process = make_processor(TextConfig(moses_tokenise=True), "fr", "en")
    expected = sacremoses.MosesTokenizer("fr").tokenize("l'eau", return_str=True, escape=False)
    assert process((["l'eau"], ["it's"])) == ([expected], ["it 's"])


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")), max_size=5))
def test_no_record_is_lost_divided_or_emptied(records: list[str]) -> None:
    text = MosesText(BOTH, "de")
    applied = text.apply(records)
    assert [bool(record) for record in applied] == [bool(record) for record in records]
    assert not any("\n" in record for record in [*applied, *text.undo(applied)])


def test_a_missing_package_is_named_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(DataError, match="need the package sacremoses") as caught:
        moses.MosesText(BOTH, "de")
    assert caught.value.hint == "pip install '.[moses]' in a checkout, or turn both off"
    MosesText(NOTHING, "de")
