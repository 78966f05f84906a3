"""`aiayn train --gpus N`: the same command in N processes of this machine, through torch's elastic launcher.

The launcher (what torchrun is made of) ends all processes when one fails, and restarts them as often as it may. For
several machines use torchrun itself.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from aiayn_cli import logs
from aiayn_cli.device import device_of_each
from aiayn_cli.errors import AiaynError, SaidElsewhere, Terminated, UsageError
from aiayn_cli.processes import available_cores
from aiayn_cli.train.distributed import signals_to_obey

_EXIT_CODES = dict.fromkeys((signal.SIGHUP, signal.SIGUSR1), Terminated.exit_code)  # as after SIGTERM
_SAVING_SECONDS = 300  # for the processes to save after a signal, before they are killed


def launch(arguments: Sequence[str], processes: int, max_restarts: int, device: str) -> None:
    """Run `aiayn` with the same arguments in several processes, each with a GPU unless the device is the CPU.

    Raises SaidElsewhere if a process failed, or saved after a signal, which was passed on; it has said so.
    """
    if "WORLD_SIZE" in os.environ:
        raise UsageError("--gpus starts processes, but torchrun has started this one", "remove --gpus under torchrun")
    device_of_each(processes, device)  # refuses more than there are
    if logs.verbosity() < logs.VERBOSE:
        launcher_log = logging.getLogger("torch.distributed.elastic")
        launcher_log.propagate = False
        launcher_log.handlers = [_RestartWarnings(logging.ERROR) if max_restarts else logging.NullHandler()]
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_SAVING_SECONDS))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # our message about a lost process is shorter
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // processes)))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=processes, max_restarts=max_restarts, run_id=uuid.uuid4().hex,
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", local_addr="localhost",
    )  # fmt: skip
    handled = ",".join(number.name for number in (*signals_to_obey(), signal.SIGQUIT))
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle = handled  # by torch's version, one counts
    try:
        elastic_launch(config, sys.executable)("-m", "aiayn_cli", *arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            raise SaidElsewhere(failure.exitcode) from error
        often = f", after {logs.counted(max_restarts, 'restart')}" if max_restarts else ""
        problem = f"rank {rank} (process {failure.pid}) was ended by {signal.Signals(-failure.exitcode).name}{often}"
        hint = "the kernel sends SIGKILL when memory runs out; the same command resumes from the last checkpoint"
        raise AiaynError(problem, hint) from error
    except SignalException as error:
        raise SaidElsewhere(_EXIT_CODES.get(error.sigval, 128 + error.sigval)) from error


class _RestartWarnings(logging.Handler):
    """Prints which process failed before all are restarted."""

    def emit(self, record: logging.LogRecord) -> None:
        logs.warning(f"torch's launcher: {record.getMessage()}")
