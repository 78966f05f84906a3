"""Copies of this process that search beside it, one for each further core.

What Python does between the operations of a narrow model is a third of the work, and it runs one thread at a time;
two processes do not wait for each other. A copy has all that this process has, the weights included, in the same
memory until one of them writes to it. Copies are made when there is work for them, and stay: the first search of each
fetches the memory that the others use again.
"""

import os
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Generic, TypeVar

import torch

from aiayn_cli.translate.search.workers import Stop

Work = TypeVar("Work")
Result = TypeVar("Result")


def can_fork() -> bool:
    """Whether a copy of this process could search: not on a Mac, nor with a GPU or other ranks in use."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    return sys.platform.startswith("linux") and not distributed and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


class Copies(Generic[Work, Result]):
    """Does the same with many things, in this process and in copies of it as they are at the first call of run().

    A copy computes with one thread: the library that shares out products does not know that its threads are gone.
    """

    def __init__(self) -> None:
        # What is done is no part of this: it would hold this object in turn, and the copies would outlive their use.
        self._copies: list[tuple[int, Connection]] = []  # process, and the way to it
        weakref.finalize(self, _end, self._copies)  # at the latest when this process ends

    @property
    def count(self) -> int:
        """How many copies there are now."""
        return len(self._copies)

    def run(self, do: Callable[[Work, Stop], Result], works: Sequence[Work]) -> list[Result]:
        """Do it with the first in this process, and with each other one in a copy; the results are in order.

        What a copy gives no result for, whatever the reason, is done here: it may fail again, with all there is to say.

        Args:
            do: what is done, the same at each call. It raises Stopped where its Stop is set. What it takes and gives
                can be pickled.
            works: what it is done with.
        Raises:
            BaseException: what doing it raised here.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        done = False
        try:
            while len(self._copies) < len(works) - 1:
                self._copies.append(_fork(do))
            sent = [_send(way, work) for work, (_, way) in zip(works[1:], self._copies, strict=False)]
            results = [do(works[0], threading.Event())]
            for work, arrived, (_, way) in zip(works[1:], sent, self._copies, strict=False):
                answer: list[Result] = _receive(way) if arrived else []
                results += answer or [do(work, threading.Event())]
            done = True
            return results
        finally:
            if not done:  # nobody wants what they are at
                _end(self._copies)
            torch.set_num_threads(threads)


def _fork(do: Callable[[Work, Stop], Result]) -> tuple[int, Connection]:
    here, there = Pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns of other threads, whose locks nobody would open in the copy: those read input or draw a
        # progress bar, and the copy does neither.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        with suppress(BaseException):
            here.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process ends the others
            torch.set_num_threads(1)
            _serve(do, there, _Orphaned(parent))
        os._exit(0)  # what a process does at its end, such as writing buffers, is the first one's alone
    there.close()
    return process, here


class _Orphaned:
    """Set where the process that wants the result has ended."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def is_set(self) -> bool:
        return os.getppid() != self._parent


def _serve(do: Callable[[Work, Stop], Result], way: Connection, orphaned: _Orphaned) -> None:
    """Answer each message with a list of one result, or of none where there is none, until the other end is gone."""
    while True:
        work = way.recv()
        answer: list[Result] = []
        with suppress(Exception):
            answer = [do(work, orphaned)]
        try:
            way.send(answer)
        except OSError:  # the other end is gone
            return
        except Exception:  # it has no form that could be sent, and nothing of it was
            way.send([])


def _send(way: Connection, work: object) -> bool:
    try:
        way.send(work)
    except OSError:  # it was killed
        return False
    return True


def _receive(way: Connection) -> list[Result]:
    try:
        answer: list[Result] = way.recv()
    except (EOFError, OSError):  # killed now, perhaps for lack of memory
        return []
    return answer


def _end(copies: list[tuple[int, Connection]]) -> None:
    """End them, and forget them."""
    while copies:
        process, way = copies.pop()
        way.close()
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
