"""Trees are read as treebanks write them, on any number of lines, and reduced to what a parser is asked for."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.parsing.tree_text import (
    Close,
    Leaf,
    Open,
    category,
    escape,
    from_text,
    read_trees,
    reduce_tree,
    to_text,
    unescape,
    words,
)

NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\v\f\x1f()"), min_size=1, max_size=6
)
LEAVES = st.builds(lambda tag, word: f"({tag} {word})", NAMES, NAMES)
TREES = st.recursive(
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


@given(TREES)
def test_what_is_read_is_written_again_to_the_letter(text: str) -> None:
    assert to_text(from_text(text)) == text


@given(st.lists(TREES, max_size=4), st.data())
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


def test_a_tree_of_traces_alone_is_nothing() -> None:
    assert reduce_tree(from_text("(S (NP (-NONE- *)))"), functions=False) == ()


def test_a_single_word_gets_its_outermost_bracket() -> None:
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
