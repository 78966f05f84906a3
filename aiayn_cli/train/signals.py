"""What a signal means while a run trains: finish the update at hand, or leave the validation, and save."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals() -> Iterator[Callable[[], str]]:
    """Turn SIGTERM and SIGINT into a name to ask for, so that an update is finished, a validation left, and all saved.

    A second one ends the process at once.
    """
    received: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        received.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: received[0] if received else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
