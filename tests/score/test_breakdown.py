import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.score.session import parts_by_label, parts_by_length


def test_lines_are_parted_by_their_number_of_words() -> None:
    lines = [" ".join(["wort"] * number) for number in (0, 10, 11, 20, 51, 90)]
    assert parts_by_length(lines) == {
        "0-10 words": [0, 1],
        "11-20 words": [2, 3],
        "51 words or more": [4, 5],
    }


def test_characters_count_where_words_have_no_blanks() -> None:
    assert parts_by_length(["我" * 10, "我" * 12 + " 你"], in_characters=True) == {
        "0-10 characters": [0],
        "11-20 characters": [1],
    }


@given(st.lists(st.integers(0, 70), max_size=40))
def test_each_line_is_in_one_part(lengths: list[int]) -> None:
    parts = parts_by_length(["x " * length for length in lengths])
    assert sorted(number for lines in parts.values() for number in lines) == list(range(len(lengths)))


def test_labels_part_lines_in_the_order_of_their_first_use() -> None:
    labels = ["news", "talk", "news ", "", "talk"]
    parts = parts_by_label(labels, "labels.txt", 5)
    assert list(parts.items()) == [("news", [0, 2]), ("talk", [1, 4]), ("(no label)", [3])]


def test_another_number_of_labels_is_refused_with_both_counts() -> None:
    with pytest.raises(DataError, match=r"labels\.txt has 2 labels, but there are 3 references"):
        parts_by_label(["a", "b"], "labels.txt", 3)
