"""A tree becomes a sequence and the same tree again; whatever a model writes becomes a tree over the given words."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_trees import BARE, BOTH, FORMS, TAGS, TREES, WORDS

from aiayn_cli.config import TextConfig
from aiayn_cli.errors import DataError
from aiayn_cli.parsing.tree_text import NO_TAG, Leaf, TreeText, from_text, to_text, unescape, words
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.text.vocab import Vocab, readable

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
        (
            "(S (NP DT NN (VP VBZ )S",
            "(TOP (S (NP (DT the) (NN cat) (VP (VBZ sleeps)))))",
            {"bracket left open": 2},
        ),
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
        (
            "(S (NP DT )NP )S",
            f"(TOP (S (NP (DT the))) ({NO_TAG} cat) ({NO_TAG} sleeps))",
            {"word left out": 2},
        ),
        ("", f"(TOP ({NO_TAG} the) ({NO_TAG} cat) ({NO_TAG} sleeps))", {"word left out": 3}),
    ],
)
def test_each_repair_is_named(sequence: str, tree: str, repairs: dict[str, int]) -> None:
    assert TreeText(TAGS).restore_text("the cat sleeps", sequence) == (tree, repairs)


def test_the_words_are_the_given_ones_even_where_the_model_wrote_others() -> None:
    tree, repairs = TreeText(BOTH).restore_text("a (b)", "(NP DT a NN c )NP")
    assert (tree, repairs) == ("(TOP (NP (DT a) (NN -LRB-b-RRB-)))", {"wrong word": 1})


def test_a_word_with_characters_that_the_model_does_not_know_is_no_wrong_word() -> None:
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
