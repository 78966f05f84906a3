import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.score.result import differences
from aiayn_cli.score.session import parts_by_label, parts_by_length


def test_lines_are_parted_by_their_number_of_words_or_characters() -> None:
    lines = [" ".join(["wort"] * number) for number in (0, 10, 11, 20, 51, 90)]
    assert parts_by_length(lines) == {"0-10 words": [0, 1], "11-20 words": [2, 3], "51 words or more": [4, 5]}
    assert parts_by_length(["我" * 10, "我" * 12 + " 你"], in_characters=True) == {
        "0-10 characters": [0],
        "11-20 characters": [1],
    }


@given(st.lists(st.integers(0, 70), max_size=40))
def test_each_line_is_in_one_part(lengths: list[int]) -> None:
    parts = parts_by_length(["x " * length for length in lengths])
    assert sorted(number for lines in parts.values() for number in lines) == list(range(len(lengths)))


def test_labels_part_lines_in_the_order_of_their_first_use_and_must_be_as_many() -> None:
    labels = ["news", "talk", "news ", "", "talk"]
    parts = parts_by_label(labels, "labels.txt", 5)
    assert list(parts.items()) == [("news", [0, 2]), ("talk", [1, 4]), ("(no label)", [3])]
    with pytest.raises(DataError, match=r"labels\.txt has 2 labels, but there are 3 references"):
        parts_by_label(["a", "b"], "labels.txt", 3)


def test_words_that_only_one_side_has_are_found_and_in_chinese_characters() -> None:
    assert differences("Der Hund läuft.", "Der Hund rennt.") == (
        [("Der Hund ", True), ("läuft", False), (".", True)],
        [("Der Hund ", True), ("rennt", False), (".", True)],
    )
    ours, theirs = differences("我喜欢绿茶", "我喜欢红茶")
    assert [text for text, is_shared in ours if not is_shared] == ["绿"]
    assert [text for text, is_shared in theirs if not is_shared] == ["红"]


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=30)
def test_pieces_joined_give_both_texts_and_share_what_is_the_same(reference: str, hypothesis: str) -> None:
    ours, theirs = differences(reference, hypothesis)
    assert "".join(text for text, _ in ours) == reference
    assert "".join(text for text, _ in theirs) == hypothesis
    assert [piece for piece in ours if piece[1]] == [piece for piece in theirs if piece[1]]
    if reference == hypothesis:
        assert all(is_shared for _, is_shared in ours)
