"""The processes that train together: torchrun's variables, read once into a frozen Worker.

One process is a world of size 1 and takes the same path. Processes wait for each other only in torch's collective
operations, each with a timeout. If one fails, its connections close, the others' operations fail, and all end with the
rank and the reason, which they find in the store of their rendezvous.
"""

import json
import math
import os
import re
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, SaidElsewhere

T = TypeVar("T")

# By the number that processes exchange; if they receive different ones, the higher counts.
SIGNALS = ("", "SIGINT", "SIGHUP", "SIGUSR1", "SIGTERM")
ReceivedSignal = Callable[[], str]  # gives the name of the signal that this process has received, or ""
SAME_ON_ALL = "give all processes the same command, and all machines the same prepared data"  # a hint
_ROLL_CALL_SECONDS = 10.0  # for the others to notice a failed operation too; those that have not by then are named
_RANK_0_SECONDS = 6.0  # for rank 0 to say the reason before others do, and to keep the store for them
_EXIT_SECONDS = 30.0  # for a process with a GPU that waits for a lost one
_STORE_ERRORS = (dist.DistError, RuntimeError, OSError)


def signals_to_obey() -> list[signal.Signals]:
    """The signals that stop a run after saving it: not SIGHUP and SIGUSR1 if they are ignored, as under nohup."""
    numbers = map(signal.Signals.__getitem__, filter(None, SIGNALS))
    never_ignored = (signal.SIGINT, signal.SIGTERM)
    return [each for each in numbers if each in never_ignored or signal.getsignal(each) is not signal.SIG_IGN]


class Lost(Exception):
    """A collective operation failed because of another process, or of the network to it."""


@dataclass(frozen=True)
class Worker:
    """This process among the others."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0  # its number on this machine, which picks its GPU
    attempt: int = 0  # times that the launcher has restarted all processes after a failure
    timeout_seconds: float = 300.0  # longest wait for others in one operation, and for rank 0's work on a checkpoint

    @classmethod
    def from_environment(cls) -> "Worker":
        """Read torchrun's variables; without them this is the only process."""
        if "WORLD_SIZE" not in os.environ:
            return cls()
        world_size = _count("WORLD_SIZE", least=1)
        rank, local_rank = _count("RANK", default=0), _count("LOCAL_RANK", default=0)
        if rank >= world_size:
            raise AiaynError(f"RANK is {rank}, but WORLD_SIZE {world_size}", "ranks count from 0; torchrun sets both")
        attempt = _count("TORCHELASTIC_RESTART_COUNT", default=0)
        return cls(rank, world_size, local_rank, attempt, _seconds("AIAYN_COLLECTIVE_SECONDS", cls.timeout_seconds))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Meet the other processes; inside, collective operations work, and an error of any process ends all."""
        if self.world_size == 1:
            yield
            return
        peers = _Peers(self)
        try:
            yield
        except Lost as error:
            raise peers.lost(error) from error
        except BaseException as error:
            if peers.failed(error):
                raise SaidElsewhere(_exit_code(error)) from error
            raise
        dist.destroy_process_group()

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world_size > 1:
            with _collective():
                dist.all_reduce(tensor)
        return tensor

    def spread(self, tensor: Tensor) -> None:
        """Replace a tensor by rank 0's, in place."""
        if self.world_size > 1:
            with _collective():
                dist.broadcast(tensor, src=0)

    def exchange(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of every process, in the order of ranks; each gives equally many."""
        if self.world_size == 1:
            return [list(numbers)]
        mine = torch.tensor(list(numbers), dtype=torch.int64)
        gathered = [torch.empty_like(mine) for _ in range(self.world_size)]
        with _collective():
            dist.all_gather(gathered, mine)
        return [numbers.tolist() for numbers in gathered]

    def agree(self, signal: str) -> str:
        """The signal that any process has received, or "", so that all stop at the same place."""
        return SIGNALS[max(number for [number] in self.exchange([SIGNALS.index(signal)]))]

    def gather(self, items: list[T]) -> list[list[T]]:
        """On rank 0 the items of every process, in the order of ranks; elsewhere nothing."""
        if self.world_size == 1:
            return [items]
        gathered: list[list[T]] | None = [[]] * self.world_size if self.rank == 0 else None
        with _collective():
            dist.gather_object(items, gathered)
        return gathered or []

    def from_rank_0(self, work: Callable[[], Mapping[str, Any] | None]) -> dict[str, Any]:
        """The values of rank 0's work, such as writing a checkpoint; the others wait, timeout_seconds at most."""
        values = [dict(work() or {}) if self.rank == 0 else {}]
        if self.world_size > 1:
            with _collective():
                dist.broadcast_object_list(values, src=0)
        return values[0]

    def check_same(self, what: Mapping[str, str]) -> None:
        """Check that all processes have the same values, such as {"data": "3f2a..."}."""
        expected = self.from_rank_0(lambda: what)
        for name, value in what.items():
            if value != expected[name]:
                problem = f"rank {self.rank} has another {name} than rank 0: {value}, not {expected[name]}"
                raise AiaynError(problem, SAME_ON_ALL)

    def wait(self) -> None:
        self.sum(torch.zeros(1))


@dataclass(frozen=True)
class _Failure:
    ranks: Sequence[int]  # that are lost, or failed and do not ask whether rank 0 says why
    names: str  # with their machines
    problem: str
    hint: str = "the same command resumes from the last checkpoint"
    code: int = AiaynError.exit_code

    def error(self) -> AiaynError:
        error = AiaynError(f"{self.names}: {self.problem}", self.hint)
        error.exit_code = self.code
        return error


class _Peers:
    """The processes that meet in together(), and the store through which they tell each other why they end."""

    def __init__(self, worker: Worker) -> None:
        self._rank, self._size = worker.rank, worker.world_size
        self._address = _address()
        self._can_reach_store = True
        timeout = timedelta(seconds=worker.timeout_seconds)
        is_server = worker.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        try:
            store = TCPStore(*self._address, is_master=is_server, wait_for_workers=False, timeout=timeout)
            self._store = PrefixStore(f"aiayn/{worker.attempt}", store)
            self._store.set(f"host/{self._rank}", socket.gethostname())
        except (*_STORE_ERRORS, ValueError) as error:
            host, port = self._address
            problem = f"rank {self._rank} cannot reach rank 0 at {host}:{port}: {_first_line(error)}"
            hint = "check MASTER_ADDR and MASTER_PORT, that rank 0 is running, and that no firewall blocks it"
            raise AiaynError(problem, hint) from error
        deadline = time.monotonic() + worker.timeout_seconds
        self._hosts = [self._host(rank, deadline, worker.timeout_seconds) for rank in range(self._size)]
        self._has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
        backend, group = "cpu:gloo,cuda:nccl" if self._has_nccl else "gloo", PrefixStore("group", self._store)
        try:
            with _collective():
                dist.init_process_group(backend, store=group, rank=self._rank, world_size=self._size, timeout=timeout)
        except Lost as error:
            raise self.lost(error) from error

    def _host(self, rank: int, deadline: float, seconds: float) -> str:
        try:
            self._store.wait([f"host/{rank}"], timedelta(seconds=max(0.1, deadline - time.monotonic())))
            return str(self._store.get(f"host/{rank}").decode())
        except _STORE_ERRORS as error:
            problem = f"rank {rank} of {self._size} did not join within {seconds:g} s"
            hint = "start as many processes as WORLD_SIZE says, and look for an error of the missing one"
            if time.monotonic() < deadline:
                problem = f"rank {self._rank} lost rank 0 before all {self._size} had joined"
                hint = "look for an error of rank 0; the same command resumes from the last checkpoint"
            raise AiaynError(problem, hint) from error

    def failed(self, error: BaseException) -> bool:
        """Tell the others why this process fails; return whether rank 0 prints it."""
        problem = "stopped by Ctrl-C"
        if isinstance(error, AiaynError):
            problem = error.problem
        elif not isinstance(error, KeyboardInterrupt):
            problem = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
        mine = self._failure([self._rank], problem, getattr(error, "hint", None), _exit_code(error))
        if isinstance(error, AiaynError):
            mine = replace(mine, ranks=())  # this one reads the store: rank 0 waits for it
        first = self._post(mine)
        if not self._has_nccl:  # whose end could wait for a lost process
            dist.destroy_process_group()  # so that the others' operations fail now
        if self._rank == 0:
            if first.problem != mine.problem:
                logs.warning(first.error().problem)
            self._keep_store_for_others(first)
            return False
        return isinstance(error, AiaynError) and self._is_said_by_rank_0()

    def lost(self, error: Lost) -> AiaynError:
        """Find out why an operation failed; return what to raise."""
        failure = self._post(self._roll_call(error))
        if self._has_nccl:
            exit_timer = threading.Timer(_EXIT_SECONDS, os._exit, [failure.code])
            exit_timer.daemon = True
            exit_timer.start()
        if self._rank == 0:
            self._keep_store_for_others(failure)
        elif self._is_said_by_rank_0():
            return SaidElsewhere(failure.code)
        return failure.error()

    def _failure(self, ranks: Sequence[int], problem: str, hint: str | None = None, code: int = 1) -> _Failure:
        names = ", ".join(f"rank {rank} on {self._hosts[rank]}" for rank in ranks)
        return _Failure(ranks, names, problem, _Failure.hint if hint is None else hint, code)

    def _roll_call(self, error: Lost) -> _Failure:
        """The ranks whose operation did not fail as well: they were killed, hang, or cannot be reached."""

        def missing() -> list[int]:
            self._store.set(f"lost/{self._rank}", "1")
            deadline = time.monotonic() + _ROLL_CALL_SECONDS
            while True:
                ranks = [rank for rank in range(self._size) if not self._store.check([f"lost/{rank}"])]
                if not ranks or self._store.check(["failure"]) or time.monotonic() > deadline:
                    return ranks
                time.sleep(0.05)

        if ranks := self._ask_store(missing, [0] if self._rank else []):
            return self._failure(ranks, f"killed, stuck, or cut off from the network ({error})")
        return self._failure([self._rank], f"lost the connection to the other processes: {error}")

    def _post(self, failure: _Failure) -> _Failure:
        """Write why all end; return what was written first, by this process or another."""
        mine = json.dumps(asdict(failure))
        return self._ask_store(lambda: _Failure(**json.loads(self._store.compare_set("failure", "", mine))), failure)

    def _keep_store_for_others(self, failure: _Failure) -> None:
        """As rank 0, promise to print the reason; the store ends with this process, so let the others read that."""

        def wait_for_readers() -> None:
            self._store.set("said", "1")
            readers = [f"read/{rank}" for rank in range(1, self._size) if rank not in failure.ranks]
            deadline = time.monotonic() + _RANK_0_SECONDS
            while not self._store.check(readers) and time.monotonic() < deadline:
                time.sleep(0.05)

        self._ask_store(wait_for_readers, None)

    def _is_said_by_rank_0(self) -> bool:
        def is_said() -> bool:
            self._store.wait(["said"], timedelta(seconds=_RANK_0_SECONDS))
            self._store.set(f"read/{self._rank}", "1")
            return True

        return self._ask_store(is_said, False)

    def _ask_store(self, question: Callable[[], T], otherwise: T) -> T:
        """Use the store if it can be reached: behind a cut cable, waiting for its answer has no timeout."""
        try:
            if self._can_reach_store:
                socket.create_connection(self._address, timeout=_RANK_0_SECONDS).close()
                return question()
        except _STORE_ERRORS:
            self._can_reach_store = False
        return otherwise


@contextmanager
def _collective() -> Iterator[None]:
    """Distinguish errors that other processes cause from this process's own."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        raise Lost(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return re.sub(r"^\[[^]]*\] ", "", str(error)).partition("\n")[0].partition(" This is typically")[0][:300]


def _exit_code(error: BaseException) -> int:
    return 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", AiaynError.exit_code)


def _address() -> tuple[str, int]:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            problem = f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but {name} is not set"
            raise AiaynError(problem, "start with torchrun or --gpus, or unset WORLD_SIZE for one process")
    return os.environ["MASTER_ADDR"], _count("MASTER_PORT", least=1)


def _count(name: str, *, least: int = 0, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        problem = f"the environment's {name} is {text!r}, but must be a whole number from {least}"
        raise AiaynError(problem, "torchrun sets it; unset WORLD_SIZE to train with one process")
    return int(text)


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e7:
        raise AiaynError(f"the environment's {name} is {text!r}, but must be seconds above 0", f"{default:g} is usual")
    return seconds
