"""Several processes on one machine, one for each device, through torch's elastic launcher (what torchrun is made of).

The launcher starts the same command again in each process, ends all when one fails, and starts them anew as often as
it may. Many machines are torchrun's own business.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, SaidElsewhere

_SAVING_SECONDS = 300  # for the processes to save after a signal, before they are killed


def launch(arguments: Sequence[str], processes: int, max_restarts: int = 0) -> None:
    """Run `aiayn ARGUMENTS` in several processes until all have ended.

    Args:
        arguments: of the command, without those that ask for several processes.
        processes: how many.
        max_restarts: times that all are started again when one has failed.
    Raises:
        SaidElsewhere: a process failed, or saved after SIGTERM, which was passed on; it has said so.
        AiaynError: a process was killed.
        KeyboardInterrupt: Ctrl-C, likewise.
    """
    launcher_log = logging.getLogger("torch.distributed.elastic")
    if not logs.is_verbose():
        launcher_log.propagate = False
        launcher_log.handlers = [_Failures() if max_restarts else logging.NullHandler()]
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_SAVING_SECONDS))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # of a lost connection we say more, in fewer lines
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _processors() // processes)))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=max_restarts,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "aiayn_cli", *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise _explained(rank, failure, max_restarts) from error
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from error
        raise SaidElsewhere(128 + error.sigval) from error


class _Failures(logging.Handler):
    """Says which process failed, where all go on after that."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on what torch's launcher holds for an error."""
        if record.levelno >= logging.ERROR:
            logs.warning(f"torch's launcher: {record.getMessage()}")


def _explained(rank: int, failure: ProcessFailure, max_restarts: int) -> AiaynError:
    """What the user is told about the process that failed first."""
    if failure.exitcode >= 0:
        return SaidElsewhere(failure.exitcode)
    name = signal.Signals(-failure.exitcode).name
    often = f", after {max_restarts} restarts" if max_restarts else ""
    return AiaynError(
        f"rank {rank} (process {failure.pid}) was ended by {name}{often}",
        "out of memory is what the kernel sends SIGKILL for; the same command goes on from the last checkpoint",
    )


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
