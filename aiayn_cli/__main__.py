"""Entry point of `aiayn`, of `python -m aiayn_cli`, and of the processes that torchrun starts."""

import signal
import sys


def main() -> int:
    """Run the command line of this process; returns the exit code (see app.py)."""
    try:
        from aiayn_cli.app import main as run  # inside `try`, since loading it takes time

        return run()
    except KeyboardInterrupt:  # outside of any command
        print("stopped by Ctrl-C", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
