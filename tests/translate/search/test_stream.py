import threading
from collections.abc import Iterator

import pytest

from aiayn_cli.errors import DataError
from aiayn_cli.translate.search.stream import gather


def test_all_items_come_in_order_in_groups_of_at_most_the_limit() -> None:
    blocks = [list(range(start, start + size)) for start, size in ((0, 7), (7, 0), (7, 1), (8, 30), (38, 2))]
    groups = list(gather(blocks, at_most=5))
    assert [item for group in groups for item in group] == list(range(40))
    assert all(1 <= len(group) <= 5 for group in groups)


def test_nothing_in_gives_nothing_out() -> None:
    assert list(gather([], at_most=3)) == []
    assert list(gather([[], []], at_most=3)) == []


def test_an_item_is_given_before_the_next_one_arrives() -> None:
    answered = threading.Event()

    def slow() -> Iterator[list[str]]:
        yield ["first"]
        assert answered.wait(timeout=20), "the first item was held back until the second came"
        yield ["second"]

    groups = gather(slow(), at_most=100)
    assert next(groups) == ["first"]
    answered.set()
    assert list(groups) == [["second"]]


def test_what_is_already_there_is_given_together() -> None:
    read_ahead = threading.Event()

    def fast() -> Iterator[list[int]]:
        yield [1]
        yield [2, 3]
        yield [4]
        read_ahead.set()
        yield [5]

    groups = gather(fast(), at_most=3)
    assert next(groups)[0] == 1
    assert read_ahead.wait(timeout=20)
    rest = list(groups)
    assert len(rest) <= 3
    assert [item for group in rest for item in group][-1] == 5


def test_reading_stays_a_bounded_distance_ahead() -> None:
    given = 0

    def endless() -> Iterator[list[int]]:
        nonlocal given
        while True:
            given += 1
            yield [given]

    groups = gather(endless(), at_most=2)
    for _ in range(9):
        next(groups)
    assert given <= 9 * 2 + 2 + 4 + 2


def test_an_error_in_reading_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1, 2]
        raise DataError("damaged after 2", "")

    groups = gather(broken(), at_most=1)
    assert [next(groups), next(groups)] == [[1], [2]]
    with pytest.raises(DataError, match="damaged after 2"):
        next(groups)
