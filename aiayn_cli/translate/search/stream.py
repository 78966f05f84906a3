"""Groups of lines for translation: each line at once where lines come slowly, full groups where they come fast."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_BLOCKS_AHEAD = 4  # read before they are asked for; bounds the memory


def gather(blocks: Iterable[list[T]], at_most: int) -> Iterator[list[T]]:
    """Give everything that has arrived so far, again and again, while a thread goes on reading.

    Args:
        blocks: items as they arrive; reading one may take any time.
        at_most: items in one group.

    Yields:
        1 to at_most items, in order. It waits only while there is nothing at all.

    Raises:
        BaseException: what reading raised, after the items before it.
    """
    arrived: queue.Queue[list[T] | BaseException | None] = queue.Queue(_BLOCKS_AHEAD)

    def read() -> None:
        try:
            for block in blocks:
                arrived.put(block)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    # A daemon: Ctrl-C must not wait for a terminal's next line.
    threading.Thread(target=read, name="reader", daemon=True).start()
    waiting: list[T] = []
    end: BaseException | None = None
    reading = True
    while reading or waiting:
        while reading and len(waiting) < at_most:
            try:
                block = arrived.get(block=not waiting)
            except queue.Empty:
                break
            if isinstance(block, list):
                waiting += block
            else:
                reading, end = False, block
        if waiting:
            yield waiting[:at_most]
            del waiting[:at_most]
    if end is not None:
        raise end
