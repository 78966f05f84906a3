"""Several processes that train together, forked from the test's, so that none has to load torch again."""

import ctypes
import io
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000  # sched.h


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit code (minus the signal's number where one killed it), and what it wrote."""

    code: int
    out: str
    err: str
    seconds: float  # since all were started


class Ranks:
    """Processes with the environment that torchrun gives them.

    Args:
        work: what each does; its result is the exit code. Called with the rank.
        n: how many.
        folder: for what they write.
        environment: further variables for all.
        address: of rank 0; None says nothing of a world, as where a user types the command.
        namespaces: a network namespace for each, by its path; "" stays here.
    """

    def __init__(
        self,
        work: Callable[[int], int],
        n: int,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        *,
        address: str | None = "127.0.0.1",
        namespaces: Sequence[str] = (),
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        port = free_port()
        self._started = time.monotonic()
        self.pids = []
        for rank in range(n):
            world = {"WORLD_SIZE": n, "RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": address, "MASTER_PORT": port}
            if address is None:
                world = {}
            variables = {**(environment or {}), **{name: str(value) for name, value in world.items()}}
            pid = os.fork()
            if pid == 0:
                _become(rank, work, folder, variables, namespaces[rank] if namespaces else "")
            self.pids.append(pid)

    def err(self, rank: int) -> str:
        """What a process has written to stderr so far."""
        path = self._folder / f"err.{rank}"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, codes: Sequence[int] | None = None, seconds: float = 120) -> list[Ended]:
        """Wait until all have ended; what has not by then, or not with these exit codes, fails the test."""
        ended: dict[int, Ended] = {}
        try:
            while len(ended) < len(self.pids):
                for rank, pid in enumerate(self.pids):
                    if rank in ended:
                        continue
                    has_ended, status = os.waitpid(pid, os.WNOHANG)
                    if has_ended:
                        now = time.monotonic() - self._started
                        out = (self._folder / f"out.{rank}").read_text(errors="replace")
                        ended[rank] = Ended(os.waitstatus_to_exitcode(status), out, self.err(rank), now)
                if time.monotonic() - self._started > seconds:
                    texts = "\n".join(f"rank {rank}:\n{self.err(rank)}" for rank in range(len(self.pids)))
                    raise AssertionError(f"only {sorted(ended)} ended within {seconds} s\n{texts}")
                time.sleep(0.02)
        finally:
            for rank, pid in enumerate(self.pids):
                if rank not in ended:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        found = [ended[rank] for rank in range(len(self.pids))]
        assert codes is None or [each.code for each in found] == list(codes), found
        return found


def _become(rank: int, work: Callable[[int], int], folder: Path, variables: Mapping[str, str], namespace: str) -> None:
    """Be that process; never returns into the test."""
    code = 70
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
        os.environ.update(variables)
        if namespace:
            with Path(namespace).open() as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
        code = work(rank)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
