"""Work on many items on all cores: results in the order of the items, and the same for any number of processes."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeVar

from aiayn_cli.folders import Unfinished

ITEMS_WORTH_A_PROCESS = 20  # fewer are done before other processes have started
ITEMS_IN_FLIGHT = 3  # for each process; enough that none waits, few enough that memory stays small
MOST_WORKERS = 16  # by default: more would wait for the one process that reads and writes

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(
    make: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
    workers: int,
) -> Iterator[tuple[Item, Result]]:
    """Do the same work on many items.

    Args:
        make: called once in each process with `arguments`; gives what does the work. Both can be pickled.
        arguments: for `make`.
        items: what to work on; little of it is held at once.
        workers: processes; 1 does all the work in this one.
    Yields:
        Each item with what came of it, in the order of the items.
    Raises:
        Unfinished: a process was killed.
    """
    ahead = iter(items)
    first = list(islice(ahead, ITEMS_WORTH_A_PROCESS)) if workers > 1 else []
    if len(first) < ITEMS_WORTH_A_PROCESS:
        work = make(*arguments)
        for item in chain(first, ahead):
            yield item, work(item)
    else:
        yield from _map_in_processes(make, arguments, chain(first, ahead), workers)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Processes to start where the user does not say."""
    return min(available_cores(), MOST_WORKERS)


@contextmanager
def starting_processes() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, not even while they load libraries for begin_process().

    This one hears what comes meanwhile a moment later.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_process() -> None:
    """What a process does first whose parent works on with its results: it leaves Ctrl-C to that, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _map_in_processes(
    make: Callable[..., Callable[[Item], Result]],
    arguments: tuple[Any, ...],
    items: Iterable[Item],
    workers: int,
) -> Iterator[tuple[Item, Result]]:
    # Fresh processes and no forks, since a progress bar's thread may hold a lock at the moment of a fork.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(make, arguments))
    others = set(multiprocessing.active_children())
    finished = False
    pending: deque[tuple[Item, Future[Result]]] = deque()
    try:
        for item in items:
            with starting_processes():  # the first item does
                pending.append((item, executor.submit(_work, item)))
            if len(pending) >= workers * ITEMS_IN_FLIGHT:
                item, future = pending.popleft()
                yield item, future.result()
        while pending:
            item, future = pending.popleft()
            yield item, future.result()
        finished = True
    except BrokenProcessPool as error:
        raise Unfinished(
            "a process that works on text was killed, perhaps for lack of memory",
            "try --workers 1; what is done stays done",
        ) from error
    finally:
        if not finished:  # nobody wants what they are at, which may take seconds
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
        executor.shutdown(cancel_futures=True)


_worker: Callable[[Any], Any] | None = None  # in each of the processes
_failure: Exception | None = None  # likewise, where there is no worker


def _start_worker(make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    global _worker, _failure
    begin_process()
    try:
        _worker = make(*arguments)
    except Exception as error:  # raised here, it would end the process, and nobody would learn why
        _failure = error


def _end_with_parent() -> None:
    """End this process when its parent was killed; otherwise it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    if _failure is not None:
        raise _failure
    assert _worker is not None
    return _worker(item)
