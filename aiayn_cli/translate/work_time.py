"""How long `translate` has worked, which is not how long it has waited for a person who types or for a slow pipe."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Task = TypeVar("Task")


class WorkTime:
    """Counts the seconds in which there was work: from when a task is taken until its answer is out, overlaps once.

    Tasks may be taken in another thread than the one that puts out their answers.

    Args:
        clock: gives seconds, of which only the differences count.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open = 0  # tasks that were taken, and whose answers are not out
        self._since = self._before = 0.0

    def taken(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Give the tasks; the work on each begins when it is taken."""
        for task in tasks:
            with self._lock:
                if not self._open:
                    self._since = self._clock()
                self._open += 1
            yield task

    def put_out(self) -> None:
        """The answer to one of the tasks is out."""
        with self._lock:
            self._open -= 1
            if not self._open:
                self._before += self._clock() - self._since

    @property
    def seconds(self) -> float:
        """How long there was work until now."""
        with self._lock:
            return self._before + (self._clock() - self._since if self._open else 0.0)
