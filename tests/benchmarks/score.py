"""How long `aiayn score` takes beside the sacrebleu command, start-up included: seconds of fresh processes.

The hypotheses are the reference with some words left out and others exchanged, unless files are given; without a
reference it is 3,003 lines of words that mean nothing. The two commands take turns, so that other work on the machine
hits both.

Run: python tests/benchmarks/score.py [--reference test.de] [--hypotheses FILE FILE] [--runs 15] [--equality]
With --equality it also compares scores and signatures with those of the sacrebleu command over many options.
"""

import argparse
import itertools
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1.15  # times sacreBLEU's own time

SYSTEM_OPTIONS = [
    ("--metric bleu", "-m bleu"),
    *((f"--tokenize {name}", f"-tok {name}") for name in ("13a", "intl", "char", "zh", "none")),
    ("--lowercase", "-lc"),
    ("--smooth floor", "-s floor"),
    ("--smooth floor --smooth-value 0.5", "-s floor -sv 0.5"),
    ("--smooth add-k", "-s add-k"),
    ("--smooth none", "-s none"),
    ("--tokenize intl --lowercase --smooth add-k --smooth-value 2", "-tok intl -lc -s add-k -sv 2"),
    ("--confidence --resamples 200", "--confidence -cin 200"),
    ("--langs en-zh", "-tok zh"),
    ("--metric chrf", "-m chrf"),
    ("--metric chrf++", "-m chrf --chrf-word-order 2"),
    ("--metric chrf --lowercase", "-m chrf --chrf-lowercase"),
    ("--metric chrf++ --confidence --resamples 50", "-m chrf --chrf-word-order 2 --confidence -cin 50"),
    ("--metric ter", "-m ter"),
    ("--metric ter --langs en-ja", "-m ter --ter-asian-support --ter-normalized"),
]


def main() -> None:
    """Print the times, and what --equality asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--hypotheses", type=Path, nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--equality", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reference = options.reference or made_up(Path(folder) / "reference")
        files = options.hypotheses or [noisy_copy(reference, Path(folder) / f"hyp{seed}", seed) for seed in (1, 2)]
        print_times(reference, files[0], options.runs)
        if options.equality:
            print_equality(reference, files, Path(folder))


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
    target.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return target


def noisy_copy(reference: Path, target: Path, seed: int) -> Path:
    """Write the reference with one word in eight left out and one in eight exchanged with its neighbour."""
    chance = random.Random(seed)
    lines = []
    for line in reference.read_bytes().decode().split("\n")[:-1]:
        words = [word for word in line.split(" ") if chance.random() > 1 / 8]
        for number in range(len(words) - 1):
            if chance.random() < 1 / 8:
                words[number : number + 2] = words[number + 1], words[number]
        lines.append(" ".join(words))
    target.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return target


def print_times(reference: Path, hypotheses: Path, runs: int) -> None:
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


def print_equality(reference: Path, files: list[Path], folder: Path) -> None:
    """Compare with the sacrebleu command: one line for each combination of options, then a count."""
    second = noisy_copy(reference, folder / "second-reference", seed=9)
    unequal = total = 0
    for (ours, theirs), references in itertools.product(SYSTEM_OPTIONS, ([reference], [reference, second])):
        for hypotheses in files:
            expected = json.loads(run("sacrebleu", *references, "-i", hypotheses, "-w", "9", *theirs.split()))
            found = json.loads(run("aiayn_cli", "score", *references, "--hyp", hypotheses, "--json", *ours.split()))
            [score] = found["systems"][0]["scores"]
            same = round(score["score"], 9) == expected["score"] and score["signature"] == expected["signature"]
            if "confidence_mean" in expected:
                same &= abs(score["mean"] - expected["confidence_mean"]) < 1e-5
                same &= abs(score["interval"] - expected["confidence_var"]) < 1e-5
            total, unequal = total + 1, unequal + (not same)
            if not same:
                print(f"UNEQUAL {ours}: {score['score']} {score['signature']}")
                print(f"        sacrebleu: {expected['score']} {expected['signature']}")
    for metric, flags in (("bleu", ["-m", "bleu"]), ("chrf++", ["-m", "chrf", "--chrf-word-order", "2"])):
        ours_all = ["--hyp", files[0], "--hyp", files[1], "--compare", "--json", "--metric", metric]
        found = json.loads(run("aiayn_cli", "score", reference, *ours_all))["comparisons"][0]
        for kind, key in (("--paired-bs", "p_bootstrap"), ("--paired-ar", "p_randomisation")):
            # As text, since its JSON fails in this mode on a number that json does not know.
            out = run("sacrebleu", reference, "-i", *files[:2], *flags, kind, "-f", "text", "--no-color")
            [expected_p] = re.findall(r"\(p = (\S+)\)", out)
            same = f"{found[key]:.4f}" == expected_p and found[key.removeprefix("p_") + "_signature"] in out
            total, unequal = total + 1, unequal + (not same)
            print(f"{metric} {kind}: p {found[key]:.4f}, sacrebleu {expected_p}")
    print(f"{total} comparisons with the sacrebleu command, score and signature: {unequal} unequal")


def run(module: str, *arguments: object) -> str:
    """What a command writes to stdout."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout


if __name__ == "__main__":
    main()
