import re
import time
from collections import Counter

import pytest
from html_page import Page
from hypothesis import given
from hypothesis import strategies as st
from translation_models import TranslatorMaker

from aiayn_cli.translate.aids.markup import MarkupTranslator, find_markup, put_back, take_out
from aiayn_cli.translate.line_translator import LineTranslator
from aiayn_cli.translate.options import SearchOptions

TAGS = ["<b>", "</b>", "<i class='x'>", "</i>", "<br/>"]
WORDS = ["{name} ", " {{0}}", " ${x} ", " %s ", " %1$d.", " https://a.org/b?c ", "der", "hund", "läuft", ".", ",", " "]
texts_with_markup = st.lists(st.sampled_from([*TAGS, *WORDS]), max_size=14).map("".join)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<b>a</b> <br/> <a href='x'>", ["<b>", "</b>", "<br/>", "<a href='x'>"]),
        ("{a} {{b}} ${c} {0:.2f}", ["{a}", "{{b}}", "${c}", "{0:.2f}"]),
        ("%s %d %(x)s %1$s %.2f %-5d", ["%s", "%d", "%(x)s", "%1$s", "%.2f", "%-5d"]),
        ("see https://a.org/x. Or (www.b.de), or c.d@e-f.org!", ["https://a.org/x", "www.b.de", "c.d@e-f.org"]),
        ("50 % sure, 100 %, 5 < 6 > 4, a{ b }", []),
        ("3 <4 and 5> 2; 100% done", []),
        ("%@ and %08.3f of %10d", ["%@", "%08.3f", "%10d"]),
    ],
)
def test_tags_placeholders_and_addresses_are_recognised(text: str, found: list[str]) -> None:
    assert list(find_markup(text).elements()) == found


@pytest.mark.parametrize("word", ["a", "0", "1", ".", "-", "%0", "%1", "www.", "a@", "<a ", "{", "$", "%(a", "http://"])
def test_a_very_long_word_takes_no_time_to_speak_of(word: str) -> None:
    """Time that grows with the square of the length would be minutes here."""
    find_markup(word * 200_000)
    find_markup(word + word[-1] * 200_000)


@pytest.mark.parametrize(("item", "blank"), [("{n}", " "), ("<br/>", ""), ("<b>a</b>", " ")])
def test_a_line_of_very_many_words_and_items_takes_no_time_to_speak_of(item: str, blank: str) -> None:
    started = time.process_time()
    text = f"a{blank}b{blank}{item}{blank}" * 10_000
    plain, items = take_out(text, placeholders=True)
    words = len(plain.split(" "))
    assert len(items) == 10_000
    for links in (tuple((i, i) for i in range(words)), ((0, 0),)):
        assert find_markup(put_back(plain, items, plain, links)) == find_markup(text)
    assert time.process_time() - started < 5  # it grew with the square of the length, to minutes here


@pytest.mark.parametrize("depth", [1, 49, 50, 51, 3_000])
def test_tags_may_stand_inside_each_other_however_deep(depth: int) -> None:
    source = "<b>" * depth + "hund" + "</b>" * depth
    plain, items = take_out(source, placeholders=True)
    assert plain == "hund"
    assert find_markup(put_back(plain, items, "dog", ((0, 0),))) == find_markup(source)


def test_a_tag_that_closes_itself_does_not_pair_with_a_later_one() -> None:
    [pair] = take_out("<b>x <b /> y</b>", placeholders=False)[1]
    assert (pair.text, pair.closing, [child.text for child in pair.children]) == ("<b>", "</b>", ["<b />"])


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a <b>big</b> dog", "a big dog"),
        ("Hello {name}, you", "Hello, you"),
        ("see {x} now", "see now"),
        ("see {x}", "see"),
        ("un<b>believ</b>able", "unbelievable"),
        ("{x} is", " is"),
        ("<p>a</p>", "a"),
    ],
)
def test_what_is_left_is_plain_text_without_gaps(text: str, plain: str) -> None:
    assert take_out(text, placeholders=True)[0] == plain


@pytest.mark.parametrize(
    ("source", "output", "links", "expected"),
    [
        ("a <b>red</b> dog", "ein roter Hund", [(0, 0), (1, 1), (2, 2)], "ein <b>roter</b> Hund"),
        ("the <b>red dog</b> runs", "rennt der rote Hund", [(3, 0), (0, 1), (1, 2), (2, 3)],
         "rennt der <b>rote Hund</b>"),
        ("a <b>dog</b>.", "ein Hund.", [(0, 0), (1, 1)], "ein <b>Hund</b>."),
        ("a <b>dog.</b>", "ein Hund.", [(0, 0), (1, 1)], "ein <b>Hund.</b>"),
        ('a "<b>dog</b>"', 'ein "Hund"', [(0, 0), (1, 1)], 'ein "<b>Hund</b>"'),
        ("<p>a <b>dog</b></p>", "ein Hund", [(0, 0), (1, 1)], "<p>ein <b>Hund</b></p>"),
        ("<b>a</b> <i>dog</i>", "ein Hund", [(1, 0), (0, 1)], "<i>ein</i> <b>Hund</b>"),
        ("<b>a <i>big</i></b> dog", "x y z", [(0, 1), (1, 0), (2, 2)], "<b><i>x</i> y</b> z"),
        ("<b>a <i>b</b> c</i>", "x y z", [(0, 0), (1, 1), (2, 2)], "<b>x <i>y</b> z</i>"),
        ("a<br/>", "ein", [(0, 0)], "ein<br/>"),
        ("Hello {name}, you", "Hallo, du", [(0, 0), (1, 1)], "Hallo {name}, du"),
        ("you have {n} dogs", "du hast Hunde", [(0, 0), (1, 1), (2, 2)], "du hast {n} Hunde"),
        ("{n} dogs", "Hunde", [(0, 0)], "{n} Hunde"),
        ("dogs: {n}", "Hunde:", [(0, 0)], "Hunde: {n}"),
        ("<b></b>", "", [], "<b></b>"),
        ("a <b>dog</b>", "ein", [(0, 0)], "ein<b></b>"),  # nothing is linked with it
        ("a {x} b", "", [], "{x}"),
    ],
)  # fmt: skip
def test_markup_goes_where_its_words_went(
    source: str, output: str, links: list[tuple[int, int]], expected: str
) -> None:
    plain, items = take_out(source, placeholders=True)
    assert put_back(plain, items, output, tuple(links)) == expected


@given(
    source=texts_with_markup,
    output=st.lists(st.sampled_from(["ein", "Hund", "läuft", ".", "(x)"]), max_size=6).map(" ".join),
    links=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=9),
)
def test_each_item_is_put_back_once_whatever_the_alignment_and_the_words_stay_as_they_are(
    source: str, output: str, links: list[tuple[int, int]]
) -> None:
    plain, items = take_out(source, placeholders=True)
    found = put_back(plain, items, output, tuple(links))
    wanted = find_markup(source)
    for text, count in wanted.items():
        assert found.count(text) == source.count(text) >= count
    rest = found
    for text in sorted(wanted, key=len, reverse=True):
        rest = rest.replace(text, "")
    assert rest.replace(" ", "") == output.replace(" ", "")


nested = st.recursive(
    st.sampled_from(["der", "hund", "läuft.", "{x}", "<br/>"]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda each: f"<b>{' '.join(each)}</b>")
        | st.lists(inner, min_size=1, max_size=3).map(" ".join)
    ),
    max_leaves=8,
)


@given(source=nested, links=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), max_size=9))
def test_pairs_stay_well_nested(source: str, links: list[tuple[int, int]]) -> None:
    plain, items = take_out(source, placeholders=True)
    Page(put_back(plain, items, "eins zwei drei vier fünf", tuple(links)))  # which asserts it


@given(text=st.text())
def test_text_without_markup_is_left_alone(text: str) -> None:
    if not find_markup(text):
        assert take_out(text, placeholders=True) == (text, ())
        assert put_back(text, (), "ein Hund", ()) == "ein Hund"


LINES = [
    "der <b>hund</b> läuft.", "hund", "", "die {name} sieht %s und https://a.org/b", "<p>die <i>katze</i></p> und",
    "<br/>", "{x}", "</i> der <b>hund",
]  # fmt: skip


def test_a_model_that_writes_anything_still_brings_each_item_through_once(make_translator: TranslatorMaker) -> None:
    plain = make_translator(batch_tokens=100, options=SearchOptions(n_best=2))
    translator = MarkupTranslator(plain)
    found = translator.translate_n_best(LINES, 1)
    for line, outputs in zip(LINES, found, strict=True):
        assert len(outputs) == 2
        for output in outputs:
            assert find_markup(output.text) == find_markup(line)
    texts = [[each.text for each in outputs] for outputs in found]
    assert texts[1:3] == [[each.text for each in outputs] for outputs in plain.translate_n_best(LINES[1:3])]
    again = translator.translate_n_best(LINES[::-1])[::-1]
    assert texts == [[each.text for each in outputs] for outputs in again]
    assert re.fullmatch("(?!.*<).+<b>.*</b>.*|<b>.*</b>.+", found[0][0].text)
    narrow = translator.variant(longest_source=5)
    assert all(
        find_markup(each[0].text) == find_markup(line)
        for line, each in zip(LINES, narrow.translate_n_best(LINES), strict=True)
    )


def test_a_placeholder_that_the_model_brings_through_stays_in_its_sentence(translator: LineTranslator) -> None:
    asked: list[str] = []

    def translate(lines: list[str], first_line: int = 1, prefixes: object = ()) -> object:
        asked.extend(lines)
        copies = LineTranslator.translate_n_best(translator, lines, first_line)
        return [
            [type(each[0])(f"die {line.replace('{y}', '')}", -1.0, -1.0, each[0].parts)]
            for line, each in zip(lines, copies, strict=True)
        ]

    translator.translate_n_best = translate  # type: ignore[method-assign,assignment]
    found = MarkupTranslator(translator).translate_n_best(["hund {x}", "hund {y}", "hund {x} {x}"])
    assert asked == ["hund {x}", "hund {y}", "hund {x} {x}", "hund"]
    assert found[0][0].text == "die hund {x}"
    assert Counter(found[1][0].text.split()) == Counter(["die", "hund", "{y}"])
    assert found[2][0].text == "die hund {x} {x}"
