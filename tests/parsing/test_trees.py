"""Trees are read as treebanks write them, on any number of lines, and reduced to what a parser is asked for."""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_trees import BARE, BOTH, FORMS, NAMES, TAGS, TREES, WORDS

from aiayn_cli.errors import DataError
from aiayn_cli.parsing.tree_text import (
    NO_TAG,
    Close,
    Leaf,
    Open,
    TreeText,
    category,
    escape,
    from_text,
    read_trees,
    reduce_tree,
    to_text,
    unescape,
    words,
)
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.vocab import Vocab, readable

LEAVES = st.builds(lambda tag, word: f"({tag} {word})", NAMES, NAMES)
TREE_TEXTS = st.recursive(
    LEAVES, lambda inside: st.builds("({} {})".format, NAMES, st.lists(inside, min_size=1, max_size=3).map(" ".join))
)

PENN = """
( (S
    (NP-SBJ-1 (DT The) (NN cat) )
    (VP (VBZ sleeps)
      (S (NP-SBJ (-NONE- *-1) )
         (VP (-NONE- *))))
    (. .) ))
( (FRAG (NN Two)))   (NP (NN Three))
"""


@given(TREE_TEXTS)
def test_what_is_read_is_written_again_to_the_letter(text: str) -> None:
    assert to_text(from_text(text)) == text


@given(st.lists(TREE_TEXTS, max_size=4), st.data())
def test_line_breaks_between_tokens_change_nothing(trees: list[str], data: st.DataObject) -> None:
    text = "  ".join(trees)
    blanks = [i for i, character in enumerate(text) if character == " "]
    for i in data.draw(st.sets(st.sampled_from(blanks)) if blanks else st.just(set())):
        text = f"{text[:i]}\n{text[i + 1 :]}"
    assert [to_text(tree) for tree in read_trees(text.split("\n"), "file")] == trees


def test_trees_over_several_lines_are_read_and_reduced() -> None:
    trees = list(read_trees(PENN.split("\n"), "wsj.mrg"))
    assert [to_text(reduce_tree(tree, functions=False)) for tree in trees] == [
        "(TOP (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))",
        "(TOP (FRAG (NN Two)))",
        "(TOP (NP (NN Three)))",
    ]
    assert to_text(reduce_tree(trees[0], functions=True)).startswith("(TOP (S (NP-SBJ-1 (DT The)")


def test_a_tree_is_a_flat_sequence_of_events() -> None:
    assert from_text("(S (NN a) (X (NN b)))") == (
        Open("S"), Leaf("NN", "a"), Open("X"), Leaf("NN", "b"), Close(), Close(),
    )  # fmt: skip


def test_deep_trees_need_no_deep_stack() -> None:
    text = "(S " * 50_000 + "(NN a)" + ")" * 50_000
    assert words(reduce_tree(from_text(text), functions=False)) == ["a"]


def test_a_tree_of_traces_alone_is_nothing_and_a_word_gets_its_outermost_bracket() -> None:
    assert reduce_tree(from_text("(S (NP (-NONE- *)))"), functions=False) == ()
    assert to_text(reduce_tree(from_text("(NN word)"), functions=False)) == "(TOP (NN word))"


@pytest.mark.parametrize("name", ["", "TOP", "ROOT", "S1", "VROOT"])
def test_the_outermost_bracket_has_one_name(name: str) -> None:
    assert to_text(reduce_tree(from_text(f"({name} (S (NN a)))"), functions=True)) == "(TOP (S (NN a)))"


@pytest.mark.parametrize(
    ("label", "expected"), [("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("-LRB-", "-LRB"), ("PP|ADVP", "PP|ADVP"), ("-", "-")]
)
def test_the_category_is_what_comes_before_functions(label: str, expected: str) -> None:
    assert category(label) == expected


@given(NAMES.map(lambda name: name.replace("(", "")))
def test_brackets_in_words_are_written_and_read(word: str) -> None:
    assert escape(unescape(word)) == word
    assert escape(f"({word})") == f"-LRB-{word}-RRB-"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            ["(S (NN a))", "", "(S (NN b)", "(NN c)"],
            r"^f:3: the tree \(S \(NN b\) \(NN c\) still has 1 open bracket at the end of the",
        ),
        (["(S (NN a)))"], r"^f:1: \) ends before it begins"),
        (["(S (NN a)) b"], r"^f:1: b has 'b' where a bracket should open"),
        (["(S (NN a) b)"], r"has 'b' where a bracket should open"),
        (["(S (NN a b))"], r"has more than a word after 'NN'"),
        (["(S a (NN b))"], r"has more than a word after 'S'"),
        (["(S ())"], r"has an empty bracket"),
        (["(S (NP))"], r"has an empty bracket"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_place(lines: list[str], problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        list(read_trees(lines, "f"))
    assert caught.value.hint


def test_a_file_with_a_bracket_missing_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiayn_cli.parsing.tree_text._MOST_TOKENS", 50)
    read = []

    def lines() -> Iterator[str]:
        for number in range(1, 10_000):
            read.append(number)
            yield "(S (NN a)" if number == 3 else "(S (NN a))"

    with pytest.raises(DataError, match=r"^f:3: the tree .* still has 1 open bracket after 5\d tokens"):
        list(read_trees(lines(), "f"))
    assert len(read) < 20


@pytest.mark.parametrize("line", ["", "(S (NN a)) (S (NN b))"])
def test_a_line_has_exactly_one_tree(line: str) -> None:
    with pytest.raises(DataError, match=r"^f:7: a line has [02] trees"):
        from_text(line, "f", 7)


BRACKETS = {"(S": 9, ")S": 9, "(NP": 9, ")NP": 9, "NN": 20, "abc": 3}
VOCAB = Vocab(
    train_vocab(Counter(BRACKETS) + Counter("abcdefghij()SNP"), 330, byte_fallback=True, mixed_scripts=True), "test"
)

TREE = "(TOP (S (NP-SBJ (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))"


@pytest.mark.parametrize(
    ("form", "sequence"),
    [
        (TAGS, "(S (NP-SBJ DT NN )NP (VP VBZ )VP . )S"),
        (BOTH, "(S (NP-SBJ DT The NN cat )NP (VP VBZ sleeps )VP . . )S"),
        (WORDS, "(S (NP-SBJ The cat )NP (VP sleeps )VP . )S"),
        (BARE, "(S (NP-SBJ XX XX )NP (VP XX )VP XX )S"),
    ],
)
def test_the_sequence_has_the_form_that_was_asked_for(form: TextConfig, sequence: str) -> None:
    assert TreeText(form).apply([TREE]) == [sequence]


@given(TREES, st.sampled_from(FORMS))
def test_a_tree_comes_back_exactly_but_for_tags_that_were_left_out(tree: tuple, form: TextConfig) -> None:
    if not tree:
        return
    text = TreeText(form)
    line = " ".join(map(unescape, words(tree)))
    restored = text.restore(line, text.linearise(tree))
    assert not restored.repairs
    found = restored.tree
    if not form.tree_tags:
        found, tree = (
            tuple(Leaf("", event.word) if isinstance(event, Leaf) else event for event in each)
            for each in (found, tree)
        )
    assert found == tree


@given(TREES, st.sampled_from(FORMS))
def test_a_tree_comes_back_through_a_vocabulary_that_knows_its_characters(tree: tuple, form: TextConfig) -> None:
    if not tree:
        return
    text = TreeText(form)
    line, sequence = " ".join(map(unescape, words(tree))), readable(text.linearise(tree))
    [written] = VOCAB.decode(VOCAB.encode([sequence]))
    assert written == sequence
    assert not text.restore(line, written).repairs  # even where readable() changed a word


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)).map(" ".join),
    st.lists(st.one_of(st.sampled_from(["(NP", ")NP", "(S", ")S", "NN", "(", ")", "x)NP"]), st.text())).map(" ".join),
    st.sampled_from(FORMS),
)
def test_whatever_is_written_becomes_a_tree_over_the_given_words(line: str, sequence: str, form: TextConfig) -> None:
    tree, repairs = TreeText(form).restore_text(line, sequence)
    given = [
        word
        for word in line.replace("(", "-LRB-")
        .replace(")", "-RRB-")
        .translate(dict.fromkeys([*range(9, 14), 31], " "))
        .split(" ")
        if word
    ]
    if not given:
        assert tree == ""
        return
    read = from_text(tree)
    assert words(read) == given
    assert to_text(read) == tree
    if not repairs and form is TAGS:
        assert TreeText(form).restore(line, TreeText(form).linearise(read)).tree == read


@pytest.mark.parametrize(
    ("sequence", "tree", "repairs"),
    [
        ("(S (NP DT NN )NP (VP VBZ )VP )S", "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps))))", {}),
        ("(S (NP DT NN (VP VBZ )S", "(TOP (S (NP (DT the) (NN cat) (VP (VBZ sleeps)))))", {"bracket left open": 2}),
        (
            "(S (NP DT NN )NP (VP VBZ )VP",
            "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps))))",
            {"bracket left open": 1},
        ),
        (
            "(S (NP DT NN )NP )VP (VP VBZ )VP )S",
            "(TOP (S (NP (DT the) (NN cat)) (VP (VBZ sleeps))))",
            {"closing bracket without an opening one": 1},
        ),
        (
            "(S (NP DT NN NN )NP (VP VBZ . )VP )S",
            "(TOP (S (NP (DT the) (NN cat) (NN sleeps))))",
            {"word too many": 2, "empty bracket": 1},
        ),
        ("(S (NP DT )NP )S", f"(TOP (S (NP (DT the))) ({NO_TAG} cat) ({NO_TAG} sleeps))", {"word left out": 2}),
        ("", f"(TOP ({NO_TAG} the) ({NO_TAG} cat) ({NO_TAG} sleeps))", {"word left out": 3}),
    ],
)
def test_each_repair_is_named(sequence: str, tree: str, repairs: dict[str, int]) -> None:
    assert TreeText(TAGS).restore_text("the cat sleeps", sequence) == (tree, repairs)


def test_the_words_are_the_given_ones_and_unknown_characters_are_no_fault() -> None:
    tree, repairs = TreeText(BOTH).restore_text("a (b)", "(NP DT a NN c )NP")
    assert (tree, repairs) == ("(TOP (NP (DT a) (NN -LRB-b-RRB-)))", {"wrong word": 1})
    text = TreeText(BOTH)
    assert text.restore_text("na中中ve", "(NP NN na⁇ve )NP") == ("(TOP (NP (NN na中中ve)))", {})
    assert text.restore_text("a.b", "(NP NN a⁇c )NP")[1] == {"wrong word": 1}


def test_punctuation_has_its_tag_even_where_tags_are_not_written() -> None:
    tree, repairs = TreeText(BARE).restore_text("( a , b ) .", "(S XX XX XX XX XX XX )S")
    assert tree == "(TOP (S (-LRB- -LRB-) (XX a) (, ,) (XX b) (-RRB- -RRB-) (. .)))"
    assert not repairs


def test_what_is_no_tree_is_refused() -> None:
    with pytest.raises(DataError, match="where a bracket should open"):
        TreeText(TAGS).apply(["Der Hund bellt."])
