"""Several searches at once on a CPU, each in a thread of its own with its share of the processors.

Small products gain little from a second thread, and everything between them nothing; two searches side by side use
two cores fully. Python runs one of them at a time, but torch lets go of it in each operation. For searches that take
seconds, copies.py does without that.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")


class Stopped(Exception):
    """Raised in a task whose result is no longer wanted."""


class Stop(Protocol):
    """What a task looks at now and then."""

    def is_set(self) -> bool:
        """Whether its result is no longer wanted."""


class AnyStop:
    """Set where one of several is.

    Args:
        stops: which.
    """

    def __init__(self, *stops: Stop) -> None:
        self._stops = stops

    def is_set(self) -> bool:
        """Whether one of them is set."""
        return any(stop.is_set() for stop in self._stops)


def run_together(tasks: Sequence[Callable[[Stop], T]], threads_each: int) -> list[T]:
    """Run tasks side by side and return their results in order.

    Args:
        tasks: each raises Stopped where its Stop is set: another task failed, or the user pressed Ctrl-C.
        threads_each: of the operations of each task, at most as many as torch uses now.

    Raises:
        BaseException: what the first failing task raised.
    """
    stop = threading.Event()
    threads = torch.get_num_threads()
    torch.set_num_threads(min(threads_each, threads))
    try:
        if len(tasks) == 1:
            return [tasks[0](stop)]
        with ThreadPoolExecutor(len(tasks), "search") as pool:
            futures = [pool.submit(task, stop) for task in tasks]
            try:
                for future in wait(futures, return_when="FIRST_EXCEPTION").done:
                    future.result()
            finally:
                stop.set()
            return [future.result() for future in futures]
    finally:
        torch.set_num_threads(threads)
