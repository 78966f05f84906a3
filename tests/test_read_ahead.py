"""Read ahead, items are the same, and no more are made than may be."""

import threading
import time
from collections.abc import Iterator

import pytest

from aiayn_cli.processes import read_ahead


def test_all_items_come_in_order() -> None:
    for ahead in (1, 2, 9):
        assert list(read_ahead(iter(range(7)), ahead)) == list(range(7))
    assert list(read_ahead(iter(()), 3)) == []


def test_items_are_made_by_another_thread_before_they_are_asked_for_and_not_all_at_once() -> None:
    made: list[int] = []
    makers = set()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            makers.add(threading.current_thread())
            yield number

    ahead = read_ahead(items(), 3)
    assert next(ahead) == 0
    deadline = time.monotonic() + 10
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.01)
    assert made == [0, 1, 2, 3]
    ahead.close()  # type: ignore[attr-defined]
    assert len(makers) == 1
    assert not makers.pop().is_alive()


def test_an_error_comes_where_its_item_would() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    ahead = read_ahead(items(), 4)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
