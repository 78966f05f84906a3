"""A soak of `aiayn translate`: many lines through a pipe, and the memory that the process holds on the way.

    python tests/benchmarks/translate_soak.py [MODEL] [--lines 200000] [--source FILE]

Prints, for every tenth of the lines, how many were answered, the memory of the process and of those that it started,
and the speed. Memory that grows with the number of lines shows as a rise from the second tenth on; the first one still
fills buffers and caches. Without a MODEL it is the newest run's. Linux only: it reads /proc.
"""

import argparse
import itertools
import subprocess
import sys
import threading
import time
from pathlib import Path

from process_memory import family_mebibytes

WORDS = ["the", "a", "dog", "cat", "man", "woman", "house", "runs", "sees", "red", "big", "in", "on", "with", "and"]


def sources(path: Path | None) -> list[bytes]:
    """Lines of a file, or some of a few words each, all different."""
    if path is not None:
        return [line for line in path.read_bytes().split(b"\n") if line.strip()]
    return [" ".join(words).encode() + b"." for words in itertools.islice(itertools.permutations(WORDS, 6), 5000)]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?")
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--source", type=Path)
    arguments = parser.parse_args()
    lines = sources(arguments.source)
    model = ["-m", arguments.model] if arguments.model else []
    command = [sys.executable, "-m", "aiayn_cli", "translate", "--quiet", *model]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    pipe = process.stdin

    def feed() -> None:
        for line in itertools.islice(itertools.cycle(lines), arguments.lines):
            pipe.write(line + b"\n")
        pipe.close()

    threading.Thread(target=feed, daemon=True).start()
    started = time.perf_counter()
    step = max(arguments.lines // 10, 1)
    print(f"{'lines':>9} {'MiB':>9} {'lines/s':>8}")
    answered, memory = 0, []
    for _ in process.stdout:
        answered += 1
        if answered % step == 0:
            seconds = time.perf_counter() - started
            memory.append(family_mebibytes(process.pid))
            print(f"{answered:>9,} {memory[-1]:>9.0f} {answered / seconds:>8.0f}", flush=True)
    code = process.wait()
    print(f"{answered:,} of {arguments.lines:,} lines answered, exit code {code}")
    if len(memory) > 3:  # at the last line the process may be ending already
        print(f"memory rose by {memory[-2] - memory[1]:.0f} MiB from the second tenth to the last but one")
    sys.exit(code or answered != arguments.lines)


if __name__ == "__main__":
    main()
