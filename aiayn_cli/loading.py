"""Loading a command's libraries in less time."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import without a search for garbage meanwhile, nor ever again in what was imported.

    torch alone makes several hundred thousand objects that stay and hardly any that do not; to look through them again
    and again takes a sixth of the time (tests/benchmarks/startup.py).
    """
    modules_before = len(sys.modules)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules_before:  # not where all is there already, since garbage would be kept with it
            gc.freeze()
        if was_enabled:
            gc.enable()
