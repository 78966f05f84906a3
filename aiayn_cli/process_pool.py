"""The same work in several processes, one for each device: results in the order of the items, and in bounded memory."""

import multiprocessing
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

from aiayn_cli.errors import AiaynError
from aiayn_cli.parallel import begin_process, starting_processes

Info = TypeVar("Info")
Item = TypeVar("Item")
Result = TypeVar("Result")

Maker = Callable[..., tuple[Info, Callable[[Item], Result]]]

_IN_FLIGHT = 2  # items of each process that are not given back yet: one that it is at, and the next
_SECONDS_TO_END = 5.0  # for a process that has nothing more to do


@dataclass
class _Worker:
    name: str
    process: SpawnProcess
    connection: Connection

    def ended(self) -> AiaynError:
        """Say how it ended, when nobody asked for that."""
        self.process.join(_SECONDS_TO_END)
        code = self.process.exitcode
        how = "stopped answering"
        if code is not None:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return AiaynError(
            f"{self.name} {how} (PID {self.process.pid})",
            "out of memory is what the kernel sends SIGKILL for: try --batch-tokens with a smaller number, or fewer "
            "processes; what was written stays",
        )

    def ask(self, item: object) -> Any:
        """Give it an item, and wait for what comes of that.

        Raises:
            AiaynError: the process ended.
            Exception: what the work raised.
        """
        try:
            self.connection.send(item)
            return self.answer()
        except (EOFError, OSError) as error:
            raise self.ended() from error

    def answer(self) -> Any:
        """Wait for an answer; see ask()."""
        try:
            is_done, value = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self.ended() from error
        if not is_done:
            raise value
        return value


class Processes(Generic[Info, Item, Result]):
    """Starts processes, and gives each an item whenever it has done one.

    Used in a `with` block, at whose end all processes have ended, whatever they were at.

    Args:
        make: called once in each process; gives what is known of the work, and what does it. It, its arguments, the
            items and the results can be pickled.
        arguments: for `make`, of each process.
        names: of the processes, for messages.

    Attributes:
        info: what is known of the work, as the first process says.

    Raises:
        AiaynError: a process ended before it was ready.
        Exception: what `make` raised.
    """

    info: Info

    def __init__(
        self, make: Maker[Info, Item, Result], arguments: Sequence[tuple[Any, ...]], names: Sequence[str]
    ) -> None:
        self._todo: queue.Queue[tuple[Item, Future[Result]] | None] = queue.Queue()
        self._workers: list[_Worker] = []
        self._drivers: list[threading.Thread] = []
        # Fresh processes and no forks: a fork would share this one's threads' locks, and what CUDA has set up.
        context = multiprocessing.get_context("spawn")
        try:
            for name, each in zip(names, arguments, strict=True):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, make, each), name=name, daemon=True)
                with starting_processes():
                    process.start()
                theirs.close()  # so that the end of the process is the end of what it says
                self._workers.append(_Worker(name, process, ours))
            self.info = cast(list[Info], [worker.answer() for worker in self._workers])[0]
        except BaseException:
            self._end(kindly=False)
            raise
        for worker in self._workers:
            driver = threading.Thread(target=self._drive, args=(worker,), name=worker.name, daemon=True)
            driver.start()
            self._drivers.append(driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(kindly=kind is None)

    def map(self, items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Do the work on each item.

        Items are taken in another thread as processes get free, and no more than two for each process are ahead of
        who reads the results.

        Yields:
            Each item with what came of it, in the order of the items, as soon as it is there.
        Raises:
            AiaynError: a process ended; all results of items before the one that it was at were given.
            BaseException: what taking an item or the work on it raised, after the results before it.
        """
        order: queue.Queue[tuple[Item, Future[Result]] | BaseException | None] = queue.Queue(
            _IN_FLIGHT * len(self._workers)
        )

        def feed() -> None:
            try:
                for item in items:
                    task = item, Future[Result]()
                    order.put(task)  # waits while too much is ahead
                    self._todo.put(task)
                order.put(None)
            except BaseException as error:
                order.put(error)

        # A daemon: Ctrl-C must not wait for a terminal's next line.
        threading.Thread(target=feed, name="feeder", daemon=True).start()
        while (task := order.get()) is not None:
            if isinstance(task, BaseException):
                raise task
            item, future = task
            yield item, future.result()

    def _drive(self, worker: _Worker) -> None:
        while (task := self._todo.get()) is not None:
            item, future = task
            try:
                future.set_result(worker.ask(item))
            except BaseException as error:
                future.set_exception(error)
                if not worker.process.is_alive():
                    return  # no other item comes to it: all that nobody has taken yet come after this one

    def _end(self, *, kindly: bool) -> None:
        for worker in self._workers:
            self._todo.put(None)
            if kindly:
                worker.connection.close()
            else:
                worker.process.terminate()
        for worker in self._workers:
            worker.process.join(_SECONDS_TO_END)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        for driver in self._drivers:  # it may be the one that is told how its process ended
            driver.join(_SECONDS_TO_END)


def _serve(connection: Connection, make: Maker[Any, Any, Any], arguments: tuple[Any, ...]) -> None:
    """What one process does: it says what is known of the work, then the result of each item, until nobody asks."""
    begin_process()
    try:
        info, work = make(*arguments)
    except Exception as error:
        connection.send((False, _sent(error)))
        return
    answer: tuple[bool, Any] = True, info
    while True:
        try:
            connection.send(answer)
            item = connection.recv()
        except (EOFError, OSError):  # nobody is there any more
            return
        try:
            answer = True, work(item)
        except Exception as error:
            answer = False, _sent(error)


def _sent(error: Exception) -> Exception:
    """An error as another process can raise it; a bug of ours keeps its traceback, as text."""
    if isinstance(error, AiaynError):
        return error
    bug = RuntimeError(f"{type(error).__name__}: {error}")
    bug.add_note("".join(traceback.format_exception(error)))
    return bug
