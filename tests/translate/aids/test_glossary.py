import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from translation_models import ModelMaker, TranslatorMaker

from aiayn_cli.errors import DataError
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.aids.glossary import Glossary, Term, load_glossary
from aiayn_cli.translate.search.sentence_search import SearchSetup


def glossary(**terms: str) -> Glossary:
    return Glossary([Term(source.replace("_", " "), tuple(target.split("|")), ()) for source, target in terms.items()])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a bank", ["bank"]),
        ("A BANK.", ["bank"]),  # written small, so found in any case
        ("banks embankment bank-notes", ["bank"]),  # whole words
        ("the central bank and a bank", ["central bank", "bank"]),  # the longest
        ("Us and us", ["Us"]),  # with a capital letter only as it is written
        ("", []),
        ("x", ["x"]),
        ("\u0130bank bank", ["bank"]),  # a capital letter that is two small ones
        ("\u6211\u53bb\u94f6\u884c\u4e86", ["\u94f6\u884c"]),  # no blanks between words
    ],
)
def test_terms_are_found_as_whole_words_the_longest_first(text: str, found: list[str]) -> None:
    terms = glossary(bank="Bank", central_bank="Zentralbank", Us="Uns", x="y", **{"\u94f6\u884c": "bank"})
    assert [term.source for term in terms.find(text)] == found


def test_of_terms_that_overlap_the_first_and_longest_and_the_one_in_that_case_counts() -> None:
    terms = glossary(a_b="1", b_c_d="2", c="3", Bank="4", bank="5", bank_note="6")
    assert [term.source for term in terms.find("a b c d")] == ["a b", "c"]
    assert [term.source for term in terms.find("b c d")] == ["b c d"]
    assert [term.source for term in terms.find("Bank bank BANK Bank note")] == ["Bank", "bank", "bank", "bank note"]
    assert [term.source for term in glossary(ärger="x").find("a\u0308rger")] == ["ärger"]  # as two characters


@settings(max_examples=30)
@given(text=st.text(), terms=st.lists(st.text(min_size=1, max_size=4), max_size=9))
def test_any_text_can_be_searched_for_any_terms(text: str, terms: list[str]) -> None:
    found = Glossary([Term(term, ("x",), ()) for term in terms]).find(text)
    place = 0
    for term in found:
        lowered = "".join(low if len(low := c.lower()) == 1 else c for c in text)
        place = max(place, 0)
        positions = [p for p in (text.find(term.source, place), lowered.find(term.source.lower(), place)) if p >= 0]
        assert positions or len(term.source.lower()) != len(term.source)
        place = min(positions, default=place) + len(term.source)


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("a bank", "eine Bank", []),
        ("a bank", "ein Geldhaus", []),
        ("a bank", "eine Bankfiliale", ["bank"]),
        ("a bank", "eine bank", ["bank"]),
        ("a bank and a bank", "eine Bank und eine", ["bank"]),
        ("a bank and a bank", "eine Bank und ein Geldhaus", []),
        ("a tree", "", []),
    ],
)
def test_what_is_not_there_often_enough_is_missing(source: str, translation: str, missing: list[str]) -> None:
    assert [term.source for term in glossary(bank="Bank|Geldhaus").missing(source, translation)] == missing


def test_a_file_is_read_with_its_alternatives_and_what_cannot_be_written_is_named(
    tmp_path: Path, vocab: Codec, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("Hund\tmaus | katze\n\n  k\u00f6ter \tfrau\nh\u00fcndin\t\u4e2d\u4e2d\n", encoding="utf-8")
    terms = load_glossary(path, vocab, "de")
    [hound, cur] = terms.find("Hund K\u00f6ter")
    assert hound.targets == ("maus", "katze")
    assert hound.constraint == tuple(tuple(ids) for ids in vocab.encode_tgt(["maus", "katze"]))
    assert cur.source == "k\u00f6ter"
    assert terms.constraints("h\u00fcndin") == []
    err = capsys.readouterr().err
    assert f"{path}:4: the vocabulary cannot spell \u4e2d\u4e2d: not enforced" in err
    assert "3 terms" in err
    pieces = vocab.tgt_pieces(range(vocab.size))
    assert all(pieces[i].startswith("\u2581") for i in terms.words.starts)
    assert not any(pieces[i].startswith("\u2581") for i in terms.words.continuations)
    assert vocab.encode_tgt(["."])[0][-1] not in terms.words.continuations | terms.words.starts


def test_a_language_without_blanks_has_its_terms_inside_words_too(tmp_path: Path, vocab: Codec) -> None:
    (tmp_path / "terms.tsv").write_text("hund\tmaus\n", encoding="utf-8")
    terms = load_glossary(tmp_path / "terms.tsv", vocab, "zh")
    [with_blank, without] = terms.constraints("hund")[0]
    assert list(with_blank) == vocab.encode_tgt(["maus"])[0]
    assert "".join(vocab.tgt_pieces(without)) == "maus"
    assert terms.words.continuations == frozenset()


def test_the_translations_of_a_term_that_comes_again_all_count(
    tmp_path: Path, vocab: Codec, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffhund\tmaus\r\nhund\tmaus\r\nkatze\tfrau\t\t\r\nhund\tkatze|maus\r\n".encode())
    terms = load_glossary(path, vocab, "de")
    [hound] = terms.find("hund")
    assert hound.targets == ("maus", "katze")
    assert len(hound.constraint) == 2
    err = capsys.readouterr().err
    assert f"warning: {path}:4: hund is also in line 1; allowed: maus, katze" in err
    assert "2 terms, 1 line with another translation of a term" in err


def test_many_terms_are_looked_up_and_not_gone_through() -> None:
    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    many = Glossary([Term(Counted(f"word{number:05}"), ("x",), ()) for number in range(20_000)])
    assert [term.source for term in many.find("word00017 word19999 word20000 " + "word " * 100)] == [
        "word00017",
        "word19999",
    ]
    assert Counted.compared < 100


@pytest.mark.parametrize(
    ("line", "problem"),
    [("hund", "has 1 field$"), ("a\tb\tc", "has 3 fields"), ("\tb", "has an empty"), ("a\t |", "has an empty")],
)
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, vocab: Codec, line: str, problem: str) -> None:
    (tmp_path / "terms.tsv").write_text(f"a\tb\n{line}\n")
    with pytest.raises(DataError, match=f"terms.tsv:2 {problem}"):
        load_glossary(tmp_path / "terms.tsv", vocab, "de")


def test_translations_hold_the_terms_whatever_else_is_in_the_batch(
    tmp_path: Path, make_model: ModelMaker, make_translator: TranslatorMaker, vocab: Codec
) -> None:
    (tmp_path / "terms.tsv").write_text("hund\tkatze\nmaus\tfrau und frau|frau\nsieht\tspringt\n", encoding="utf-8")
    terms = load_glossary(tmp_path / "terms.tsv", vocab, "de")
    model, setup = make_model(), SearchSetup(glossary=terms)
    plain = make_translator(model, max_extra=8, batch_tokens=100)
    with_terms = make_translator(model, max_extra=8, batch_tokens=100, setup=setup)
    lines = ["der hund", "die maus sieht den hund", "eine klein", "hund hund", "", "und sieht", "hund und die " * 6]
    free = plain.translate_n_best(lines)
    assert sum(bool(terms.missing(line, each[0].text)) for line, each in zip(lines, free, strict=True)) >= 4
    found = with_terms.translate_n_best(lines)
    [[split]] = with_terms.variant(longest_source=8).translate_n_best(lines[6:])
    assert len(split.parts) > 1, "the terms of a split line are those of its parts"
    assert terms.missing(lines[6], split.text) == []
    assert found[2][0].text == free[2][0].text
    for line, [each] in zip(lines, found, strict=True):
        assert terms.missing(line, each.text) == []
    for batch_tokens in (1, 1000):
        again = make_translator(model, max_extra=8, batch_tokens=batch_tokens, setup=setup)
        assert [each[0].text for each in again.translate_n_best(lines[::-1])] == [each[0].text for each in found[::-1]]


def test_a_term_that_comes_very_often_in_a_line_takes_no_time_to_speak_of() -> None:
    terms = glossary(bank="Bank|Geldhaus", tree="Baum", **{"a": "a a"})
    started = time.process_time()
    found = terms.missing("bank tree " * 20_000, "Bank Bankbaum Baum " * 19_999)
    assert time.process_time() - started < 10  # it grew with the square of the length, to minutes here
    assert [term.source for term in found] == ["bank", "tree"]
    assert [term.source for term in terms.missing("a a a", "a a a a a")] == ["a"]  # none overlaps itself
