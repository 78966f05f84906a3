"""What a process that trains with others leaves behind when it ends."""

import threading
import time
from typing import Any

from torch import distributed as dist

from aiayn_cli.train.watch import Watch


class Slow:
    """A store whose answers take a while, as over a network."""

    def __init__(self, store: Any) -> None:
        self._store, self.asking = store, threading.Event()

    def __getattr__(self, name: str) -> Any:
        def ask(*args: Any) -> Any:
            self.asking.set()
            time.sleep(0.1)
            self.asking.clear()
            return getattr(self._store, name)(*args)

        return ask


def test_no_thread_is_within_torch_when_a_process_goes() -> None:
    store = dist.HashStore()
    slow = Slow(store)
    with Watch(store, slow, 0, 1, silence_seconds=20, join_seconds=5):  # type: ignore[arg-type]
        assert slow.asking.wait(5)
    assert not slow.asking.is_set()
    asked_later = slow.asking.wait(0.6)  # longer than from one sign of life to the next
    assert not asked_later
