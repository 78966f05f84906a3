"""Items that a thread makes ready before they are asked for."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T], ahead: int) -> Iterator[T]:
    """The same items in the same order; while one is used, a thread of its own makes those after it.

    Args:
        items: used by that thread alone.
        ahead: how many are ready at most, or being made.
    Raises:
        Whatever making an item raises, where that item would come.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    try:
        waiting: deque[Future[list[T]]] = deque(thread.submit(_next, items) for _ in range(ahead))
        while item := waiting.popleft().result():
            waiting.append(thread.submit(_next, items))
            yield item[0]
    finally:
        thread.shutdown(cancel_futures=True)


def _next(items: Iterator[T]) -> list[T]:
    """The next item, or nothing after the last: a future cannot carry StopIteration."""
    return list(islice(items, 1))
