"""Work for the processes of tests/test_processes.py, which import it by its name."""

import os
import signal
import time
from collections.abc import Callable

from aiayn_cli.errors import AiaynError, UsageError


def make(rank: int, at_start: str = "") -> tuple[str, Callable[[str], tuple[int, str]]]:
    """Work that says who did it; "sleep", "error", "bug" and "kill" do these instead.

    "deaf" says whether Ctrl-C is kept away.
    """
    _act(at_start)
    return f"info of {rank}", lambda item: (rank, _act(item))


def _act(item: str) -> str:
    match item.split()[0] if item else "":
        case "sleep":
            time.sleep(float(item.split()[1]))
        case "error":
            raise AiaynError(f"{item} is wrong", "way out")
        case "usage":
            raise UsageError("wrong usage", "way out")
        case "bug":
            raise ZeroDivisionError("our own")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "deaf":
            blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # since before it started
            return str(blocked and signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
        case "exit":
            os._exit(3)
    return item
