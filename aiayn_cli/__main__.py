"""Where the process begins: `aiayn`, and `python -m aiayn_cli` as torchrun starts it.

Loading libraries takes seconds, and Ctrl-C within them does not end what it interrupts: an import that is broken off
inside numpy is forgotten by torch, whose work goes on and fails much later, and in C++ it ends the process with a
message of its own. So an interrupt ends the process at once as long as no command has begun its work, and waits for
the end of an import later on.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from aiayn_cli.loading import leave_out_shapes_of_torch

_INTERRUPTED = 128 + signal.SIGINT
_SECONDS_BETWEEN_TRIES = 0.05
_STAGES = str(Path(__file__).parent / "stages") + os.sep  # what commands do, once they have loaded it


def main() -> int:
    """Run the command line of this process; returns the exit code (see app.py)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as behind nohup
        signal.signal(signal.SIGINT, _interrupt)
    try:
        if sys.argv[1:2] == ["translate"]:
            leave_out_shapes_of_torch()
        from aiayn_cli.app import main as run  # here, since it loads libraries

        return run()
    except KeyboardInterrupt:  # outside of every command
        return _INTERRUPTED


def _interrupt(number: int, frame: FrameType | None) -> None:
    is_importing = has_begun = False
    while frame is not None:  # from the inside to the outside
        place = frame.f_code.co_filename
        if place.startswith("<frozen importlib"):
            is_importing, has_begun = True, False
        elif is_importing and place.startswith(_STAGES):
            has_begun = True
        frame = frame.f_back
    if not is_importing:
        raise KeyboardInterrupt
    if not has_begun:
        os._exit(_INTERRUPTED)
    again = threading.Timer(_SECONDS_BETWEEN_TRIES, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


if __name__ == "__main__":
    sys.exit(main())
