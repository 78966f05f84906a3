"""Many processes train together or end together.

Each process says twice a second in a store that all can reach (torch's TCPStore) that it is alive. Rank 0 listens to
all, the others to rank 0. An error of one is written there, and so is a silence; whoever reads it ends too, also when
its main thread is stuck in an operation that the others will never come to. Rank 0 prints the reason if it can.
"""

import json
import os
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from types import TracebackType

from torch import distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, SaidElsewhere

_BEAT_SECONDS = 0.5
_GRACE_SECONDS = 2.0  # for the main thread to notice an end by itself, before the process is ended
_SAID_SECONDS = 6.0  # for rank 0 to say the reason, before others do
_SUSPICION_SECONDS = 3.0  # of silence are enough when a connection to somebody has broken
_GOES_ON = "the same command goes on from the last checkpoint"
_STORE_ERRORS = (dist.DistError, RuntimeError)


class Lost(Exception):
    """An operation of all processes failed here, because of another process or the network between."""


@dataclass(frozen=True)
class End:
    """Why one process ends all.

    Attributes:
        rank: of the process that failed, or is not heard of.
        host: its machine.
        problem, hint: as in an AiaynError.
        code: to exit with.
        is_silence: whether something was waited for in vain, so that it matters where each process stands.
    """

    rank: int
    host: str
    problem: str
    hint: str = _GOES_ON
    code: int = AiaynError.exit_code
    is_silence: bool = False

    def error(self) -> AiaynError:
        """The error to print."""
        error = AiaynError(f"rank {self.rank} on {self.host}: {self.problem}", self.hint)
        error.exit_code = self.code
        return error


class Watch:
    """Listens to the other processes, from __enter__ to __exit__.

    Args:
        store: for the main thread.
        own_store: a second connection, for the threads that listen.
        rank, world_size: of this process.
        silence_seconds: a process that is not heard of for so long has vanished.
        join_seconds: longest wait for all to come.
    """

    def __init__(
        self,
        store: Store,
        own_store: Store,
        rank: int,
        world_size: int,
        silence_seconds: float,
        join_seconds: float,
    ) -> None:
        self._store, self._own_store, self._rank, self._size = store, own_store, rank, world_size
        self._silence, self._join_seconds = silence_seconds, join_seconds
        self._hosts: dict[int, str] = {}
        self._end: End | None = None
        self._found, self._stop, self._leaving = threading.Event(), threading.Event(), threading.Event()
        self._main_knows, self._one_speaks = threading.Event(), threading.Lock()  # that it is over
        self._store_lost = False
        # Silence is measured in seconds that this process ran: after a pause of all (a suspended machine, a processor
        # that others keep busy) nobody has been silent.
        self._ran = 0.0
        self._contact = 0.0  # with the store
        self._listener = threading.Thread(target=self._listen, daemon=True)

    @property
    def is_ending(self) -> bool:
        """Whether something has gone wrong somewhere."""
        return self._found.is_set()

    def __enter__(self) -> "Watch":
        self._store.set(f"host/{self._rank}", socket.gethostname())
        deadline = time.monotonic() + self._join_seconds
        for rank in range(self._size):
            try:
                self._store.wait([f"host/{rank}"], timedelta(seconds=max(0.1, deadline - time.monotonic())))
                self._hosts[rank] = self._store.get(f"host/{rank}").decode()
            except _STORE_ERRORS as error:
                if time.monotonic() < deadline:
                    raise AiaynError(
                        f"rank {self._rank} has lost rank 0 before all {self._size} had come",
                        "look for an error of rank 0; the same command goes on from the last checkpoint",
                    ) from error
                raise AiaynError(
                    f"rank {rank} of {self._size} has not come within {self._join_seconds:g} s",
                    "start as many processes as WORLD_SIZE says, and look for an error of the missing one",
                ) from error
        self._listener.start()
        threading.Thread(target=self._guard, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._one_speaks:
            self._main_knows.set()
        try:
            if error is None:
                self._leave()
            elif isinstance(error, Lost):
                self._end_with_the_others(error)
            else:
                self._end_the_others(error)
        finally:
            self._stop.set()
            # A thread inside torch's store when Python ends would take the process down with it (SIGABRT).
            self._listener.join(_GRACE_SECONDS)

    def _leave(self) -> None:
        """Go without alarm; the store goes with rank 0, so it goes last."""
        self._leaving.set()
        with suppress(*_STORE_ERRORS):  # where rank 0 has gone, nobody waits for us
            self._store.set(f"left/{self._rank}", "1")
            if self._rank == 0:
                _wait_for(self._store, [f"left/{rank}" for rank in range(self._size)], self._silence)

    def _end_the_others(self, error: BaseException) -> None:
        """Say why this process ends."""
        if isinstance(error, AiaynError):
            mine = End(self._rank, self._hosts[self._rank], error.problem, error.hint, error.exit_code)
        elif isinstance(error, KeyboardInterrupt):
            mine = End(self._rank, self._hosts[self._rank], "stopped by Ctrl-C", code=130)
        else:
            text = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
            mine = End(self._rank, self._hosts[self._rank], text)
        first = self._post(self._store, mine)
        if self._rank == 0:
            if first.rank != 0 and first.problem != mine.problem:
                logs.warning(first.error().problem)
            self._say(self._store)
        elif self._is_said(self._store) and isinstance(error, AiaynError):
            raise SaidElsewhere(mine.code) from error

    def _end_with_the_others(self, error: Lost) -> None:
        """Find out the reason of a broken connection, and raise it."""
        with suppress(*_STORE_ERRORS):
            self._store.set("suspicious", "1")
        in_vain = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        if in_vain or not self._found.wait(self._silence + _BEAT_SECONDS):
            problem = f"the others did not come in time: {error}" if in_vain else f"the others are lost: {error}"
            self._post(self._store, End(self._rank, self._hosts[self._rank], problem, is_silence=in_vain))
        end = self._the_end()
        if end.is_silence:
            self._say_where(traceback.extract_tb(error.__traceback__))
        if self._rank == 0:
            self._say(self._store)
        elif self._is_said(self._store):
            raise SaidElsewhere(end.code) from error
        raise end.error() from error

    def _the_end(self) -> End:
        assert self._end is not None
        return self._end

    def _post(self, store: Store, end: End) -> End:
        """Write why all end; return what was written first, by this process or another."""
        with suppress(*_STORE_ERRORS):
            end = End(**json.loads(store.compare_set("end", "", json.dumps(asdict(end)))))
        self._end = self._end or end
        self._found.set()
        return self._end

    def _say(self, store: Store) -> None:
        """As rank 0, promise to print the reason; the store stays until the others have read that."""
        with suppress(*_STORE_ERRORS):
            store.set("said", "1")
            silent = self._the_end().rank if self._the_end().is_silence else 0
            readers = [f"read/{rank}" for rank in range(1, self._size) if rank != silent]
            _wait_for(store, readers, 2 * _GRACE_SECONDS)

    def _is_said(self, store: Store) -> bool:
        """Whether rank 0 prints the reason, so that others need not."""
        if self._store_lost:
            return False
        try:
            store.wait(["said"], timedelta(seconds=_SAID_SECONDS))
            store.set(f"read/{self._rank}", "1")
        except _STORE_ERRORS:
            return False
        return True

    def _listen(self) -> None:
        """Say that this process is alive, and listen to the others, until there is an end."""
        store = self._own_store
        heard: dict[int, tuple[bytes, float]] = {}  # the last sign of each rank, and when it was new
        ranks = [rank for rank in range(self._size if self._rank == 0 else 1) if rank != self._rank]
        beat = 0
        while not self._stop.is_set() and not self._found.is_set():
            beat += 1
            try:
                store.set(f"beat/{self._rank}", str(beat))
                for rank in ranks:
                    sign = store.get(f"beat/{rank}") if store.check([f"beat/{rank}"]) else b""
                    if rank not in heard or sign != heard[rank][0] or store.check([f"left/{rank}"]):
                        heard[rank] = sign, self._ran
                limit = min(self._silence, _SUSPICION_SECONDS) if store.check(["suspicious"]) else self._silence
                if store.check(["end"]):
                    self._post(store, End(**json.loads(store.get("end"))))
                self._contact = self._ran
            except _STORE_ERRORS as error:
                why = str(error).partition("\n")[0]
                self._note_lost_store(f"it ended, or the launcher did: {why}")
                return
            for rank in ranks:
                if (silent := self._ran - heard[rank][1]) > limit and not self._leaving.is_set():
                    problem = f"nothing was heard of it for {silent:.0f} s: it was killed, or the network is cut"
                    self._post(store, End(rank, self._hosts[rank], problem, is_silence=True))
            self._stop.wait(_BEAT_SECONDS)

    def _note_lost_store(self, why: str) -> None:
        if not self._leaving.is_set() and not self._stop.is_set():
            self._store_lost = True
            self._end = self._end or End(0, self._hosts[0], why, is_silence=True)
            self._found.set()

    def _guard(self) -> None:
        """End the process where the main thread does not, after an end or when the store no longer answers."""
        last = time.monotonic()
        while not self._found.wait(_BEAT_SECONDS):
            if self._stop.is_set():
                return
            now = time.monotonic()
            self._ran += min(now - last, 2 * _BEAT_SECONDS)
            last = now
            if self._ran - self._contact > self._silence:
                self._note_lost_store(f"nothing was heard of it for {self._silence:g} s: the network is cut")
        if self._stop.wait(_GRACE_SECONDS):
            return
        with self._one_speaks:  # so that the main thread, should it come after all, prints nothing
            if not self._main_knows.is_set():
                self._end_the_process()
        if not self._stop.wait(2 * _SAID_SECONDS):
            os._exit(self._the_end().code)

    def _end_the_process(self) -> None:
        end = self._the_end()
        if end.is_silence:
            main = sys._current_frames()[threading.main_thread().ident or 0]
            self._say_where(traceback.extract_stack(main))
        if self._rank == 0 or not self._is_said(self._own_store):
            error = end.error()
            print(f"error: {error.problem}\nhint: {error.hint}", file=sys.stderr, flush=True)
        if self._rank == 0:
            self._say(self._own_store)
        os._exit(end.code)

    def _say_where(self, stack: traceback.StackSummary) -> None:
        """Print where the main thread stands."""
        lines = "".join(traceback.format_list(stack[-8:]))
        host = self._hosts[self._rank]
        print(f"rank {self._rank} on {host} stands at:\n{lines}", end="", file=sys.stderr, flush=True)


def _wait_for(store: Store, keys: list[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not store.check(keys) and time.monotonic() < deadline:
        time.sleep(0.05)
