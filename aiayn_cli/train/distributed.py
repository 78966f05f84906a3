"""The processes that train together: torchrun's variables, read once into a frozen Worker.

One process is a world of size 1 and takes the same path. What goes wrong in one of several is everybody's end, within
seconds and with its reason: see watch.py.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from aiayn_cli.errors import AiaynError
from aiayn_cli.train.watch import Lost, Watch

SIGNALS = ("SIGTERM", "SIGINT")
_SECONDS_BETWEEN_QUESTIONS = 0.2


@dataclass(frozen=True)
class Worker:
    """This process among the others.

    Attributes:
        rank: its number, from 0.
        world_size: how many there are.
        local_rank: its number on this machine, which picks its GPU.
        attempt: times that the launcher has started all of them again after a failure.
        silence_seconds: a process that is not heard of for so long has vanished (AIAYN_SILENCE_SECONDS).
        collective_seconds: longest wait for the others in one operation (AIAYN_COLLECTIVE_SECONDS).
        alone_seconds: longest work of rank 0 alone, such as validation, that others wait for (AIAYN_ALONE_SECONDS).
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    attempt: int = 0
    silence_seconds: float = 20.0
    collective_seconds: float = 1800.0
    alone_seconds: float = 21_600.0

    @classmethod
    def from_environment(cls) -> "Worker":
        """Read what torchrun sets; without it this is the only process.

        Raises:
            AiaynError: a variable is missing or has an impossible value.
        """
        if "WORLD_SIZE" not in os.environ:
            return cls()
        world_size = _count("WORLD_SIZE", least=1)
        rank, local_rank = _count("RANK", default=0), _count("LOCAL_RANK", default=0)
        if rank >= world_size:
            raise AiaynError(
                f"RANK is {rank}, but WORLD_SIZE is {world_size}", "ranks count from 0; torchrun sets both"
            )
        if world_size > 1:
            _address()
        return cls(
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            attempt=_count("TORCHELASTIC_RESTART_COUNT", default=0),
            silence_seconds=_seconds("AIAYN_SILENCE_SECONDS", cls.silence_seconds),
            collective_seconds=_seconds("AIAYN_COLLECTIVE_SECONDS", cls.collective_seconds),
            alone_seconds=_seconds("AIAYN_ALONE_SECONDS", cls.alone_seconds),
        )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Meet the other processes; inside, an error of any of them ends all.

        Raises:
            AiaynError: another process has failed, has vanished or never came; it is named.
        """
        if self.world_size == 1:
            yield
            return
        host, port = _address()
        timeout = timedelta(seconds=self.collective_seconds)
        is_server = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"

        def connect(as_server: bool = False) -> Store:
            store = TCPStore(host, port, is_master=as_server, wait_for_workers=False, timeout=timeout)
            return PrefixStore(f"aiayn/{self.attempt}", store)

        try:
            store = connect(is_server)
            watch = Watch(store, connect(), self.rank, self.world_size, self.silence_seconds, self.collective_seconds)
        except (dist.DistError, RuntimeError, ValueError) as error:
            raise AiaynError(
                f"rank {self.rank} cannot reach rank 0 at {host}:{port}: {_first_line(error)}",
                "check MASTER_ADDR and MASTER_PORT, that rank 0 runs, and that no firewall is between",
            ) from error
        with watch:
            _connections[self.rank] = _Connection(store, watch)
            try:
                yield
                if dist.is_initialized():
                    dist.destroy_process_group()
            finally:
                del _connections[self.rank]

    def join(self, device: torch.device) -> None:
        """Make ready for operations on tensors of all processes; within together().

        Args:
            device: of the tensors that will be summed, beside those of the CPU.
        """
        if self.world_size == 1 or dist.is_initialized():
            return
        with _collective():
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("group", _connections[self.rank].store),
                rank=self.rank,
                world_size=self.world_size,
                timeout=timedelta(seconds=self.collective_seconds),
            )

    def sum(self, tensor: Tensor) -> Tensor:
        """Add a tensor up over all processes, in place."""
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
        """The numbers of every process, in the order of ranks; as many from each."""
        if self.world_size == 1:
            return [list(numbers)]
        mine = torch.tensor(list(numbers), dtype=torch.int64)
        everybodys = [torch.empty_like(mine) for _ in range(self.world_size)]
        with _collective():
            dist.all_gather(everybodys, mine)
        return [numbers.tolist() for numbers in everybodys]

    def agree(self, signal: str) -> str:
        """The signal that any process has received, or "".

        All then stop after the same update; one that went on alone would wait for the others for ever.
        """
        received = self.exchange([int(signal == name) for name in SIGNALS])
        return next(
            (name for name, counts in zip(SIGNALS, zip(*received, strict=True), strict=True) if any(counts)), ""
        )

    def share(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Rank 0's JSON values, for all."""
        return self.from_rank_0(lambda: values)

    def from_rank_0(
        self, work: Callable[[], Mapping[str, Any]], interrupted: Callable[[], str] = lambda: ""
    ) -> dict[str, Any]:
        """Let rank 0 work for all, which may take long: validate, write a checkpoint, read one from a slow disk.

        In an operation of all processes the others would give up after collective_seconds. Here they wait as long as
        rank 0's process is alive, and it has not been at it for alone_seconds.

        Args:
            work: what rank 0 does; the other ranks never call it.
            interrupted: gives the name of the signal that this process has received, or ""; of those that wait, rank 0
                learns of it through anybodys_signal().
        Returns:
            Its JSON values, on every rank.
        """
        if self.world_size == 1:
            return dict(work())
        connection = _connections[self.rank]
        connection.turns += 1
        key = f"turn/{connection.turns}"
        if self.rank == 0:
            content = json.dumps(work())
            with _collective():
                connection.store.set(key, content)
        else:
            self._wait_for_rank_0(connection, key, interrupted)
            with _collective():
                content = connection.store.get(key).decode()
        values: dict[str, Any] = json.loads(content)
        return values

    def anybodys_signal(self, interrupted: Callable[[], str]) -> str:
        """As rank 0, within from_rank_0(): the signal that this process or one of those that wait has received, or "".

        It may be asked at any time: the others are not, more often than a few times a second.
        """
        if (signal := interrupted()) or self.world_size == 1:
            return signal
        connection, now = _connections[self.rank], time.monotonic()
        if now < connection.asked + _SECONDS_BETWEEN_QUESTIONS:
            return ""
        connection.asked = now
        key = f"turn/{connection.turns}/signal"
        with _collective():
            return connection.store.get(key).decode() if connection.store.check([key]) else ""

    def _wait_for_rank_0(self, connection: "_Connection", key: str, interrupted: Callable[[], str]) -> None:
        deadline, pause = time.monotonic() + self.alone_seconds, 0.01
        told = False
        while True:
            with _collective():
                if connection.store.check([key]):
                    return
                if not told and (signal := interrupted()):
                    connection.store.set(f"{key}/signal", signal)
                    told = True
            if connection.watch.is_ending:
                raise Lost("rank 0 was waited for, and all end")
            if time.monotonic() > deadline:
                raise Lost(f"timed out after {self.alone_seconds:g} s of rank 0 alone (AIAYN_ALONE_SECONDS)")
            time.sleep(pause)
            pause = min(1.2 * pause, 0.5)

    def check_same(self, what: Mapping[str, str]) -> None:
        """Make sure that all processes work on the same.

        Args:
            what: by name, such as {"data": "prepared/demo 3f2a..."}.
        Raises:
            AiaynError: a process has something else than rank 0; both are named.
        """
        expected = self.share(what)
        for name, value in what.items():
            if value != expected[name]:
                raise AiaynError(
                    f"rank {self.rank} has another {name} than rank 0: {value}, not {expected[name]}",
                    "give all processes the same command, and all machines the same prepared data",
                )

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.sum(torch.zeros(1))


@dataclass
class _Connection:
    """What together() opens.

    Attributes:
        store: for the main thread.
        watch: listens to the other processes.
        turns: times that rank 0 has worked for all; the same number on every rank.
        asked: when rank 0 last looked for a signal of the others, in seconds of the monotonic clock.
    """

    store: Store
    watch: Watch
    turns: int = 0
    asked: float = 0.0


# Of together(), by rank; a frozen Worker has no place for it.
_connections: dict[int, _Connection] = {}


@contextmanager
def _collective() -> Iterator[None]:
    """Tell an error that another process causes from one of this process."""
    try:
        yield
    except (dist.DistError, RuntimeError) as error:
        raise Lost(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return re.sub(r"^\[[^]]*\] ", "", str(error)).partition("\n")[0][:300]  # without gloo's file and line


def _address() -> tuple[str, int]:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise AiaynError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, but {name} is not set",
                "start the processes with torchrun or --gpus, or unset WORLD_SIZE to train with one",
            )
    return os.environ["MASTER_ADDR"], _count("MASTER_PORT", least=1)


def _count(name: str, *, least: int = 0, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise AiaynError(
            f"the environment's {name} is {text!r}, but must be a whole number from {least}",
            "torchrun sets it; unset WORLD_SIZE to train with one process",
        )
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
