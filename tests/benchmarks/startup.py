"""How long `aiayn --help` takes, warm, beside what it avoids: the best of several fresh processes, in seconds.

Run: python tests/benchmarks/startup.py
"""

import os
import subprocess
import sys
import time

RUNS = 10
GOAL_SECONDS, LIMIT_SECONDS = 0.15, 0.3

LINES = {
    "python -c pass": ["-c", "pass"],
    "aiayn --help": ["-m", "aiayn_cli", "--help"],
    "aiayn train --help": ["-m", "aiayn_cli", "train", "--help"],
    "aiayn <TAB>": ["-m", "aiayn_cli"],
    "aiayn --version": ["-m", "aiayn_cli", "--version"],
    "import torch": ["-c", "import torch"],
}
COMPLETION = {"_AIAYN_COMPLETE": "complete_bash", "COMP_WORDS": "aiayn ", "COMP_CWORD": "1"}


def best_seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """Run a fresh interpreter RUNS times and return its shortest wall time."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=environment)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print one line for each command line."""
    print(f"seconds, best of {RUNS}; goal for --help {GOAL_SECONDS}, limit {LIMIT_SECONDS}")
    for name, arguments in LINES.items():
        environment = {**os.environ, **(COMPLETION if "TAB" in name else {})}
        print(f"{name:<20} {best_seconds(arguments, environment):.3f}", flush=True)


if __name__ == "__main__":
    main()
