"""Loading a command's libraries: without garbage collection, and with Ctrl-C ending the process at once."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def loading() -> Iterator[None]:
    """Import libraries inside this block.

    An interrupted import leaves numpy and torch half loaded, and their errors hide the interrupt; so Ctrl-C ends the
    process with exit code 130 at once. torch alone creates several hundred thousand objects that stay, and scanning
    them for garbage takes a sixth of the time.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    interruptible = in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    modules_before = len(sys.modules)
    was_enabled = gc.isenabled()
    gc.disable()
    if interruptible:  # not behind nohup, where SIGINT is ignored
        signal.signal(signal.SIGINT, _exit_interrupted)
    try:
        yield
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if len(sys.modules) > modules_before:  # otherwise garbage would be frozen too
            gc.freeze()
        if was_enabled:
            gc.enable()


def _exit_interrupted(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
