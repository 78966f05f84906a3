"""Runs the toolkit's own commands, for the benchmarks that go from text to a score."""

import json
import subprocess
import sys
from typing import Any


def aiayn(*words: object) -> dict[str, Any]:
    """Run a command and give its result; what it says on stderr comes through."""
    command = [sys.executable, "-m", "aiayn_cli", *map(str, words), "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result
