"""Bracket scores by EVALB's rules: cases worked out by hand, and a second way to count on random trees.

`tests/benchmarks/brackets.py` compares with EVALB itself and with the results on its own sample.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.parsing.evalb import BracketRules, SentenceScore, read_rules, score_brackets, score_sentence, summarise

RULES = BracketRules()
GOLD = "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps) (ADVP (RB here))) (. .)))"


@pytest.mark.parametrize(
    ("test", "matched", "brackets", "crossing", "tags"),
    [
        (GOLD, 4, 4, 0, 4),
        ("(S (NP (DT the) (NN cat)) (VP (VBZ sleeps) (PRT (RB here))))", 4, 4, 0, 4),  # ADVP = PRT, no TOP, no stop
        ("(S (NP-SBJ (DT the) (NN cat)) (VP=1 (VBZ sleeps) (ADVP (RB here))))", 4, 4, 0, 4),  # functions are cut off
        ("(S (VP (DT the) (NN cat)) (VP (VBZ sleeps) (ADVP (RB here))) (. .))", 3, 4, 0, 4),  # a wrong label
        ("(S (NP (DT the) (JJ cat)) (VP (VBZ sleeps) (ADVP (RB here))) (. .))", 4, 4, 0, 3),  # a wrong tag
        ("(S (NP (DT the)) (VP (NN cat) (VBZ sleeps)) (RB here))", 1, 3, 1, 4),
        ("(S (X (DT the) (NN cat) (VBZ sleeps)) (Y (RB here)))", 1, 3, 1, 4),
        ("(S (S (S (DT the) (NN cat) (VBZ sleeps) (RB here))))", 1, 3, 0, 4),  # one S of the reference, one match
        ("(X (DT the) (NN cat) (VBZ sleeps) (RB here) (NP (, ,)))", 0, 1, 0, 4),  # around deleted words: no bracket
        ("(DT the) (NN cat) (VBZ sleeps) (RB here)", 0, 0, 0, 4),
    ],
)
def test_brackets_and_tags_are_counted(test: str, matched: int, brackets: int, crossing: int, tags: int) -> None:
    expected = SentenceScore(0, length=5, matched=matched, gold=4, test=brackets, crossing=crossing, words=4, tags=tags)
    assert score_sentence(GOLD, test, RULES) == expected


@pytest.mark.parametrize(
    "test",
    [
        "(S (NP (DT a) (NN cat)) (VP (VBZ sleeps) (RB here)))",  # another word
        "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))",  # a word less
        "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps) (RB here))",  # left open
        "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps) (RB here))))",  # closed once more
        "(S (NP (DT the) (NN cat)) sleeps (VP (VBZ sleeps) (RB here)))",  # a word outside
        "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps well) (RB here)))",  # two words in a bracket
        "(S (NP (DT the) (NN cat)) (VP (VBZ sleeps) (RB here)) (NP",
    ],
)
def test_what_cannot_be_compared_is_an_error_sentence(test: str) -> None:
    found = score_sentence(GOLD, test, RULES)
    assert found == SentenceScore(1, length=5, lost_gold=4, lost_test=found.lost_test)


@pytest.mark.parametrize("test", ["", "(S)", "(S (. .))"])
def test_an_output_without_words_is_skipped(test: str) -> None:
    assert score_sentence(GOLD, test, RULES) == SentenceScore(2, length=5, lost_gold=4)


def test_a_quotation_mark_that_one_side_takes_for_a_possessive_is_put_back() -> None:
    gold = "(S (NP (DT the) (NNS cats) (POS ')) (NN tail))"
    test = "(S (NP (DT the) (NNS cats)) ('' ') (NP (NN tail)))"
    assert score_sentence(gold, test, RULES).status == 1
    rules = BracketRules(quote_labels=("''", "POS"))
    assert score_sentence(gold, test, rules) == SentenceScore(0, 4, matched=1, gold=2, test=3, words=4, tags=3)


NESTED = st.recursive(
    st.just("w"),
    lambda inside: st.tuples(st.sampled_from("ABC"), st.lists(inside, min_size=1, max_size=3)),
    max_leaves=9,
)


def spans(tree: object, start: int, found: "Counter[tuple[str, int, int]]") -> int:
    if isinstance(tree, str):
        return start + 1
    label, children = tree  # type: ignore[misc]
    end = start
    for child in children:
        end = spans(child, end, found)
    found[label, start, end] += 1
    return end


def write(tree: object) -> str:
    return "(T w)" if isinstance(tree, str) else f"({tree[0]} {' '.join(map(write, tree[1]))})"  # type: ignore[index]


@given(NESTED, NESTED)
def test_matches_are_the_intersection_of_labelled_spans(gold: object, test: object) -> None:
    a: Counter[tuple[str, int, int]] = Counter()
    b: Counter[tuple[str, int, int]] = Counter()
    lengths = spans(gold, 0, a), spans(test, 0, b)
    found = score_sentence(write(gold), write(test), RULES)
    if lengths[0] != lengths[1]:
        assert found == SentenceScore(1, lengths[0], lost_gold=a.total(), lost_test=b.total())
        return
    crossing = sum(n for (_, s, e), n in b.items() if any(s < x < e < y or x < s < y < e for _, x, y in a))
    assert found == SentenceScore(
        0, lengths[0], (a & b).total(), a.total(), b.total(), crossing, lengths[0], lengths[0]
    )


def test_the_summary_leaves_out_what_could_not_be_compared() -> None:
    crossing = "(S (NP (DT the)) (VP (NN cat) (VBZ sleeps)) (RB here))"
    summary = summarise(score_brackets([GOLD] * 4, [GOLD, crossing, "", "(S (NN x))"], RULES))
    assert (summary.sentences, summary.errors, summary.skipped, summary.valid) == (4, 1, 1, 2)
    assert summary.recall == pytest.approx(100 * 5 / 8)
    assert summary.precision == pytest.approx(100 * 5 / 7)
    assert summary.f1 == pytest.approx(100 * 2 * 5 / (7 + 8))
    assert (summary.complete, summary.crossing, summary.no_crossing, summary.two_or_less) == (50, 0.5, 50, 100)
    assert summary.tagging == 100
    assert summary.strict_f1 == pytest.approx(100 * 2 * 5 / (4 * 4 + 7 + 1))  # (S (NN x)) has one bracket, all wrong
    summary = summarise(score_brackets([GOLD], [""], RULES))
    assert (summary.recall, summary.f1, summary.complete, summary.crossing, summary.tagging) == (0, 0, 0, 0, 0)


PARAMETERS = """\
##------ comment
DEBUG 0
CUTOFF_LEN 10
LABELED 0
DELETE_LABEL TOP
DELETE_LABEL ,
DELETE_LABEL_FOR_LENGTH -NONE-

EQ_LABEL A B
EQ_WORD  This this
"""


def test_a_parameter_file_says_what_counts() -> None:
    rules = read_rules(PARAMETERS.split("\n"), "x.prm")
    assert rules == BracketRules(
        labelled=False,
        cutoff=10,
        deleted=("TOP", ","),
        deleted_for_length=("-NONE-",),
        equal_labels=frozenset({frozenset("AB")}),
        equal_words=frozenset({frozenset({"This", "this"})}),
    )
    gold, test = "(S (A (NN This) (, ,) (. .)))", "(X (B (NN this) (. .)))"
    assert score_sentence(gold, test, rules) == SentenceScore(0, 3, matched=2, gold=2, test=2, words=2, tags=2)


@pytest.mark.parametrize(
    ("line", "problem", "hint"),
    [
        ("DELETE_LABLE X", r"^x.prm:2: unknown parameter DELETE_LABLE$", "did you mean DELETE_LABEL?"),
        ("EQ_LABEL X", r"^x.prm:2: EQ_LABEL has 1$", "give two values"),
        ("DELETE_LABEL", r"^x.prm:2: DELETE_LABEL has 0$", "give one value"),
        ("LABELED yes", r"^x.prm:2: LABELED is yes$", "write a whole number"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_line(line: str, problem: str, hint: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        read_rules(["# first", line], "x.prm")
    assert caught.value.hint == hint
