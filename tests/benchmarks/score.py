"""How long `aiayn score` takes beside the sacrebleu command, start-up included: seconds of fresh processes.

The hypotheses are the reference with some words left out and others exchanged, unless files are given; without a
reference it is 3,003 lines of words that mean nothing. The two commands take turns, so that other work on the machine
hits both.

Run: python tests/benchmarks/score.py [--reference test.de] [--hypotheses FILE] [--runs 15]
"""

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from sacrebleu_command import noisy, written

LIMIT = 1.15  # times sacreBLEU's own time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--hypotheses", type=Path)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reference = options.reference or made_up(Path(folder) / "reference")
        lines = reference.read_bytes().decode().split("\n")[:-1]
        hypotheses = options.hypotheses or written(Path(folder) / "hyp", noisy(lines, seed=1))
        print_times(reference, hypotheses, options.runs)


def made_up(target: Path) -> Path:
    """Write 3,003 lines of about 20 words, with commas and full stops."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abdefghiklmnorstuwz", k=chance.randint(2, 9))) for _ in range(5_000)]
    lines = []
    for _ in range(3_003):
        # A few words are frequent and most are rare, as in any language.
        line = [words[int(5_000 ** chance.random()) - 1] for _ in range(chance.randint(4, 36))]
        line[0], line[-1] = line[0].capitalize(), f"{line[-1]}."
        line[len(line) // 2] += ","
        lines.append(" ".join(line))
    return Path(written(target, lines))


def print_times(reference: Path, hypotheses: Path | str, runs: int) -> None:
    """Let both commands take turns; print the best and the median of wall and processor seconds."""
    commands = {
        "sacrebleu": [sys.executable, "-m", "sacrebleu", str(reference), "-i", str(hypotheses), "-w", "2"],
        "aiayn score": [sys.executable, "-m", "aiayn_cli", "score", str(reference), "--hyp", str(hypotheses)],
    }
    wall: dict[str, list[float]] = {name: [] for name in commands}
    processor: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            wall[name].append(time.perf_counter() - start)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            processor[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    lines = reference.read_bytes().count(b"\n")
    print(f"{lines:,} lines, BLEU, {runs} runs each, in turns; goal: at most {LIMIT} times sacrebleu")
    print(f"{'':<14}{'best s':>10}{'median s':>10}{'best CPU s':>12}{'median CPU s':>14}")
    rows = {name: figures(wall[name]) + figures(processor[name]) for name in commands}
    for name, row in rows.items():
        print(f"{name:<14}{row[0]:>10.3f}{row[1]:>10.3f}{row[2]:>12.3f}{row[3]:>14.3f}")
    ratios = [ours / theirs for ours, theirs in zip(rows["aiayn score"], rows["sacrebleu"], strict=True)]
    print(f"{'ratio':<14}{ratios[0]:>10.2f}{ratios[1]:>10.2f}{ratios[2]:>12.2f}{ratios[3]:>14.2f}")


def figures(seconds: list[float]) -> list[float]:
    """The best and the median."""
    return [min(seconds), statistics.median(seconds)]


if __name__ == "__main__":
    main()
