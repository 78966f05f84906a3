"""Work on many items in several processes, with results in order; and items read ahead by a thread."""

import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Literal, Self, TypeVar, cast

from aiayn_cli.errors import AiaynError, ResumableError

ITEMS_WORTH_A_PROCESS = 20  # fewer are done before other processes have started
ITEMS_IN_FLIGHT = 3  # per process: none of them waits, and memory stays small
MOST_WORKERS = 16  # by default: more would wait for the one process that reads and writes
_SECONDS_TO_END = 5.0  # for a process without work
_BLOCKS_AHEAD = 4  # that gather() reads ahead; bounds the memory

Info = TypeVar("Info")
Item = TypeVar("Item")
Result = TypeVar("Result")

Maker = Callable[..., tuple[Info, Callable[[Item], Result]]]


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Processes to start by default."""
    return min(available_cores(), MOST_WORKERS)


def map_in_order(
    make: Callable[..., Callable[[Item], Result]], arguments: tuple[Any, ...], items: Iterable[Item], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Do the same work on many items; yields each item with its result, in order.

    Args:
        make: called once in each process with `arguments`; returns what does the work. All must be picklable.
        items: read by this thread, a few ahead of the results.
        workers: processes; 1 does all the work in this one.
    Raises:
        ResumableError: a process was killed.
    """
    ahead = iter(items)
    first = list(islice(ahead, ITEMS_WORTH_A_PROCESS)) if workers > 1 else []
    if len(first) < ITEMS_WORTH_A_PROCESS:
        work = make(*arguments)
        for item in chain(first, ahead):
            yield item, work(item)
        return
    names = [f"worker {number + 1}" for number in range(workers)]
    with Processes[None, Item, Result](_without_info, [(make, *arguments)] * workers, names, _worker_killed) as pool:
        tasks = ((item, pool.submit(item)) for item in chain(first, ahead))
        pending = deque(islice(tasks, workers * ITEMS_IN_FLIGHT - 1))
        while pending:
            pending.extend(islice(tasks, 1))
            item, future = pending.popleft()
            yield item, future.result()


def _without_info(make: Callable[..., Callable[[Any], Any]], *arguments: Any) -> tuple[None, Callable[[Any], Any]]:
    return None, make(*arguments)


def _worker_killed(how: str) -> AiaynError:
    return ResumableError(f"{how}, perhaps for lack of memory", "try --workers 1; finished steps are kept")


def _rank_killed(how: str) -> AiaynError:
    hint = "the kernel sends SIGKILL when memory runs out: try a smaller --batch-tokens or fewer processes"
    return AiaynError(how, f"{hint}; the output so far is kept")


@dataclass(frozen=True)
class _Process:
    name: str
    process: BaseProcess
    connection: Connection
    killed: Callable[[str], AiaynError]

    def ended(self) -> AiaynError:
        """The error that says how the process ended."""
        self.process.join(_SECONDS_TO_END)
        code = self.process.exitcode
        how = "stopped answering"
        if code is not None:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return self.killed(f"{self.name} {how} (PID {self.process.pid})")

    def ask(self, *items: object) -> Any:
        """Send an item, if any, and wait for the answer; raises what the work raised, or an AiaynError if it ended."""
        try:
            for item in items:
                self.connection.send(item)
            is_done, value = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self.ended() from error
        if not is_done:
            raise value
        return value


class Processes(Generic[Info, Item, Result]):
    """A pool of processes, used in a `with` block; all have ended when it ends.

    Args:
        make: called once in each process; returns information about the work, and what does it. It, its arguments,
            the items and the results must be picklable.
        arguments: for `make`, one tuple per process.
        names: of the processes, for messages.
        killed: turns "worker 2 was ended by SIGKILL (PID 7)" into the error to raise.
        start: "spawn" = fresh processes. "fork" = copies of this one, within milliseconds and with its memory, for work
            that needs neither CUDA nor this process's threads; then `make` and its arguments need not be picklable.
    Attributes:
        info: the first process's information about the work.
    Raises:
        AiaynError: a process ended before it was ready.
        Exception: what `make` raised.
    """

    info: Info

    def __init__(
        self,
        make: Maker[Info, Item, Result],
        arguments: Sequence[tuple[Any, ...]],
        names: Sequence[str],
        killed: Callable[[str], AiaynError] = _rank_killed,
        start: Literal["spawn", "fork"] = "spawn",
    ) -> None:
        self._todo: queue.Queue[tuple[Item, Future[Result]] | None] = queue.Queue()
        self._processes: list[_Process] = []
        self._drivers: list[threading.Thread] = []
        context = multiprocessing.get_context(start)
        try:
            for name, each in zip(names, arguments, strict=True):
                ours, theirs = context.Pipe()
                process = cast(Any, context).Process(target=_serve, args=(theirs, make, each), name=name, daemon=True)
                with _while_starting():
                    process.start()
                theirs.close()  # so that reading ends when the process does
                self._processes.append(_Process(name, process, ours, killed))
            self.info = cast(list[Info], [process.ask() for process in self._processes])[0]
        except BaseException:
            self.close()
            raise
        for started in self._processes:
            driver = threading.Thread(target=self._drive, args=(started,), name=started.name, daemon=True)
            driver.start()
            self._drivers.append(driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(kindly=kind is None)

    def submit(self, item: Item) -> "Future[Result]":
        """Queue an item for the next process that is free."""
        self._todo.put((item, future := Future[Result]()))
        return future

    def map(self, items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Do the work on each item, which another thread takes, at most two per process ahead of the reader.

        Yields each item with its result, in order. What taking an item or working on it raises, or an AiaynError if a
        process ended, comes after the results before it.
        """

        def submit_each() -> Iterator[tuple[Item, Future[Result]]]:
            for item in items:
                task = item, Future[Result]()
                yield task  # goes on once the reader has room for it
                self._todo.put(task)

        tasks = _read_in_thread(submit_each(), 2 * len(self._processes))
        while isinstance(task := tasks.get(), tuple):
            item, future = task
            yield item, future.result()
        if task is not None:
            raise task

    def _drive(self, process: _Process) -> None:
        while (task := self._todo.get()) is not None:
            item, future = task
            try:
                future.set_result(process.ask(item))
            except BaseException as error:
                future.set_exception(error)
                if not process.process.is_alive():
                    return  # the items that no process has taken yet come after this one

    def close(self, *, kindly: bool = False) -> None:
        """End all processes: immediately, or `kindly`, when each has finished its item."""
        for each in self._processes:
            self._todo.put(None)
            if kindly:
                each.connection.close()
            else:
                each.process.terminate()
        for each in self._processes:
            each.process.join(_SECONDS_TO_END)
            if each.process.is_alive():
                each.process.kill()
                each.process.join()
        for driver in self._drivers:
            driver.join(_SECONDS_TO_END)


def _serve(connection: Connection, make: Maker[Any, Any, Any], arguments: tuple[Any, ...]) -> None:
    """One process: sends its information, then the result of each item, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        info, work = make(*arguments)
    except Exception as error:
        connection.send((False, _picklable(error)))
        return
    answer: tuple[bool, Any] = True, info
    while True:
        try:
            connection.send(answer)
            item = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = True, work(item)
        except Exception as error:
            answer = False, _picklable(error)


def _picklable(error: Exception) -> Exception:
    """An error to raise in another process; a bug of ours keeps its traceback, as a note."""
    if isinstance(error, AiaynError):
        return error
    bug = RuntimeError(f"{type(error).__name__}: {error}")
    bug.add_note("".join(traceback.format_exception(error)))
    return bug


@contextmanager
def _while_starting() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from the first moment and never wait for stdin."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # is inherited; arrives here a moment later
    stdin, sys.stdin = sys.stdin, None  # a fork closes it, and would wait for a thread that is reading it
    try:
        with warnings.catch_warnings():  # Python warns of forks in a process with threads
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        sys.stdin = stdin
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """End this process when its parent was killed; otherwise it would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _read_in_thread(items: Iterable[Item], most: int) -> "queue.Queue[Item | BaseException | None]":
    """Read items in another thread, up to `most` ahead; the queue ends with None, or with what reading raised."""
    read: queue.Queue[Item | BaseException | None] = queue.Queue(most)

    def run() -> None:
        try:
            for item in items:
                read.put(item)
            read.put(None)
        except BaseException as error:
            read.put(error)

    # A daemon: Ctrl-C must not wait for a terminal's next line.
    threading.Thread(target=run, name="reader", daemon=True).start()
    return read


def gather(blocks: Iterable[list[Item]], at_most: int) -> Iterator[list[Item]]:
    """Group items as they arrive, while a thread reads on: single ones from a slow source, many from a fast one.

    Yields 1 to at_most items, in order, and waits only if none has arrived; errors of reading come after them.
    """
    arrived = _read_in_thread(blocks, _BLOCKS_AHEAD)
    waiting: list[Item] = []
    block: list[Item] | BaseException | None = []
    while isinstance(block, list) or waiting:
        while isinstance(block, list) and len(waiting) < at_most and (not waiting or not arrived.empty()):
            block = arrived.get()
            if isinstance(block, list):
                waiting += block
        if waiting:
            yield waiting[:at_most]
            del waiting[:at_most]
    if block is not None:
        raise block


def read_ahead(items: Iterator[Item], ahead: int) -> Iterator[Item]:
    """Yield the same items, while a thread makes up to `ahead` more; errors come where their item would."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    end: Any = object()
    try:
        waiting: deque[Future[Item]] = deque(thread.submit(next, items, end) for _ in range(ahead))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(thread.submit(next, items, end))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)
