"""Speed and memory of `aiayn prepare`, step by step.

    python tests/benchmarks/prepare.py [--text SRC TGT] [--pairs 1000000] [--workers N] [--vocab-size 8000]
    python tests/benchmarks/prepare.py --growth 1,4,16 [--workers N]

The first form makes as many different pairs as asked of a given text (each pair as it is, then two of them joined),
or generates them, and prints pairs/s of each step beside SentencePiece's own trainer and encoder, which read the same
text in the same run. The second prints time, memory and disk for generated text of so many million pairs, and what
they come to at 40 million. Memory is that of all processes together (shared pages count
once), read five times a second; disk is what the folder holds at most, the result among it.
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import sentencepiece
from command_line import print_header
from process_memory import family_mebibytes, repeating

from aiayn_cli import logs
from aiayn_cli.prepare import vocab_training
from aiayn_cli.prepare.partial_folder import Steps
from aiayn_cli.prepare.pipeline import run_prepare
from aiayn_cli.prepare.plan import PrepareOptions
from aiayn_cli.processes import available_cores
from aiayn_cli.text.lines import read_file

EXTRAPOLATE_TO = 40_000_000  # pairs
PAIRS_AT_ONCE = 50_000


def main() -> None:
    """Read the command line and run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs=2, type=Path, metavar=("SRC", "TGT"), help="text to make pairs from")
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--growth", metavar="MILLIONS", help="such as 1,4,16")
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--vocab-size", type=int, default=8_000)
    parser.add_argument("--folder", type=Path, help="where to work; by default the system's temporary folder")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # pairs: what a process of --growth measures
    parser.add_argument("--make", type=int, help=argparse.SUPPRESS)  # pairs: what another writes before
    arguments = parser.parse_args()
    logs.setup(logs.QUIET)
    if arguments.make is not None:
        write(arguments.folder, generate(arguments.make))
        return
    if arguments.one is not None:
        measure_growth(arguments.folder, arguments.one, arguments)
        return
    print_header(f", {arguments.workers} workers")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        if arguments.growth:
            show_growth(Path(scratch), arguments)
        else:
            show_speed(Path(scratch), arguments)


# ---- speed


def show_speed(folder: Path, arguments: argparse.Namespace) -> None:
    """Print pairs/s of each step, beside SentencePiece's own tools."""
    if arguments.text:
        pairs = vary(*(read_file(path) for path in arguments.text), arguments.pairs)
    else:
        pairs = generate(arguments.pairs)
    files = write(folder, pairs)
    size = sum(path.stat().st_size for path in files)
    print(f"{arguments.pairs:,} pairs, {size / 1e6:,.0f} MB of text, a vocabulary of {arguments.vocab_size:,}")
    watch = measure(folder, files, arguments)
    steps = watch.seconds_by_step()
    print(f"\n{'':32}{'seconds':>10}{'pairs/s':>12}")
    for name, seconds in steps.items():
        print(f"{name:32}{seconds:10.1f}{arguments.pairs / seconds if seconds else 0:12,.0f}")
    print(f"{'all of it':32}{watch.seconds:10.1f}{arguments.pairs / watch.seconds:12,.0f}")
    print(f"{'peak disk':32}{watch.peak_disk / 1e6:10,.0f} MB\n")

    seconds, model = time_of(lambda: train_theirs(folder, files, arguments))
    print(f"{'SentencePiece, its trainer':32}{seconds:10.1f}{arguments.pairs / seconds:12,.0f}")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    sides = [read_file(path) for path in files]
    seconds, _ = time_of(lambda: [processor.encode(side, num_threads=arguments.workers) for side in sides])
    theirs = arguments.pairs / seconds
    print(f"{'SentencePiece, its encoder':32}{seconds:10.1f}{theirs:12,.0f}")
    share = arguments.pairs / watch.seconds / theirs
    print(f"\nall of prepare at {share:.2f} of the speed of SentencePiece's encoder alone; the goal is 0.50")


def train_theirs(folder: Path, files: tuple[Path, Path], arguments: argparse.Namespace) -> str:
    """Train with SentencePiece itself on both files, and give the model's path."""
    sentencepiece.SentencePieceTrainer.train(
        input=[str(path) for path in files], model_prefix=str(folder / "theirs"), vocab_size=arguments.vocab_size,
        model_type="bpe", character_coverage=1.0, normalization_rule_name="identity",
        num_threads=arguments.workers, minloglevel=2,
    )  # fmt: skip
    return str(folder / "theirs.model")


def vary(src: list[str], tgt: list[str], n_pairs: int) -> Iterator[tuple[list[str], list[str]]]:
    """Make different pairs of some: each as it is, then two at a time joined."""
    rng = random.Random(1)
    yield src[:n_pairs], tgt[:n_pairs]
    for start in range(len(src), n_pairs, PAIRS_AT_ONCE):
        n = min(PAIRS_AT_ONCE, n_pairs - start)
        both = [(rng.randrange(len(src)), rng.randrange(len(src))) for _ in range(n)]
        yield [f"{src[i]} {src[k]}" for i, k in both], [f"{tgt[i]} {tgt[k]}" for i, k in both]


def time_of(work: Callable[[], object]) -> tuple[float, object]:
    """Do some work and give the seconds it took, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


# ---- growth


def show_growth(folder: Path, arguments: argparse.Namespace) -> None:
    """Print a line for each size, each measured in a process of its own, and extrapolate from the last two."""
    print("generated text, about 12 words a side\n")
    print(f"{'pairs':>12}{'text MB':>10}{'seconds':>10}{'pairs/s':>10}{'peak MB':>10}{'disk MB':>10}{'estimate':>10}")
    rows = []
    for millions in arguments.growth.split(","):
        n_pairs = str(int(float(millions) * 1e6))
        command = [sys.executable, __file__, "--folder", str(folder), "--vocab-size", str(arguments.vocab_size)]
        command += ["--workers", str(arguments.workers)]
        subprocess.run([*command, "--make", n_pairs], check=True)
        done = subprocess.run([*command, "--one", n_pairs], check=True, stdout=subprocess.PIPE, text=True)
        rows.append([float(value) for value in done.stdout.split()])
        print_row(rows[-1])
    if len(rows) > 1:
        (before, last), to = list(pairwise(rows))[-1], EXTRAPOLATE_TO
        slope = [(b - a) / (last[0] - before[0]) for a, b in zip(before, last, strict=True)]
        print_row([value + each * (to - last[0]) for value, each in zip(last, slope, strict=True)])
        print("the last line extrapolates the two before it; the limit of memory is 2,000 MB")


def print_row(row: list[float]) -> None:
    """Print pairs, bytes of text, seconds, and bytes of memory, disk and estimate."""
    pairs, text, seconds, memory, disk, estimate = row
    sizes = "".join(f"{size / 1e6:10,.0f}" for size in (memory, disk, estimate))
    print(f"{pairs:12,.0f}{text / 1e6:10,.0f}{seconds:10,.1f}{pairs / seconds:10,.0f}{sizes}", flush=True)


def measure_growth(folder: Path, n_pairs: int, arguments: argparse.Namespace) -> None:
    """Print the numbers of one size, for `show_growth`."""
    files = folder / "text.en", folder / "text.de"
    text = sum(path.stat().st_size for path in files)
    watch = measure(folder, files, arguments)
    print(n_pairs, text, watch.seconds, watch.peak_memory, watch.peak_disk, 2 * text)


def generate(n_pairs: int) -> Iterator[tuple[list[str], list[str]]]:
    """Make pairs whose words are as unevenly frequent as in real text, with ever new rare ones."""
    rng = np.random.default_rng(1)
    vocabularies = [make_words(rng), make_words(rng)]
    for start in range(0, n_pairs, PAIRS_AT_ONCE):
        lengths = np.clip(rng.gamma(4.0, 3.0, min(PAIRS_AT_ONCE, n_pairs - start)), 2, 80).astype(int)
        sides = []
        for words in vocabularies:
            ranks = np.minimum(rng.pareto(0.75, int(lengths.sum())) * 3, len(words) - 1).astype(int)
            picked = words[ranks].tolist()
            ends = np.cumsum(lengths).tolist()
            sides.append([" ".join(picked[a:b]) for a, b in pairwise([0, *ends])])
        yield sides[0], sides[1]


def make_words(rng: np.random.Generator, n_words: int = 1_000_000) -> np.ndarray:
    """Make different words of one to four syllables, the short ones first."""
    syllables = np.array([c + v + e for c in "bdfghklmnprstvwz" for v in "aeiouäö" for e in ("", "n", "r", "s", "st")])
    words: dict[str, None] = dict.fromkeys(syllables.tolist())
    for n, wanted in ((2, n_words // 10), (3, n_words // 2), (4, n_words)):
        while len(words) < wanted:
            words |= dict.fromkeys("".join(parts) for parts in rng.choice(syllables, (50_000, n)).tolist())
    return np.array(list(words), dtype=object)


# ---- both


def write(folder: Path, pairs: Iterator[tuple[list[str], list[str]]]) -> tuple[Path, Path]:
    """Write pairs into two files."""
    files = folder / "text.en", folder / "text.de"
    with files[0].open("wb") as src_file, files[1].open("wb") as tgt_file:
        for src, tgt in pairs:
            for file, side in ((src_file, src), (tgt_file, tgt)):
                file.write("".join(f"{record}\n" for record in side).encode())
    return files


@dataclass
class Watch:
    """What a call of run_prepare took."""

    started: float
    seconds: float = 0.0
    peak_memory: int = 0  # bytes
    peak_disk: int = 0  # bytes
    marks: list[tuple[str, float]] = field(default_factory=list)

    def seconds_by_step(self) -> dict[str, float]:
        """Sum up the time before each mark."""
        steps: dict[str, float] = {}
        for (_, before), (name, after) in pairwise([("", self.started), *self.marks]):
            steps[name] = steps.get(name, 0.0) + after - before
        return steps


def measure(folder: Path, files: tuple[Path, Path], arguments: argparse.Namespace) -> Watch:
    """Prepare two files, and watch time, memory and disk."""
    watch = Watch(time.perf_counter())
    names = {"text": "read, clean, write down", "selection": "hold out, drop repeats", "train": "encode"}
    names["sentences"] = "count sentences"
    finish, learn = Steps.finish, vocab_training.train_vocab

    def note(name: str) -> None:
        watch.marks.append((name, time.perf_counter()))

    def finish_noted(self: Steps, name: str, *rest: object) -> object:
        result = finish(self, name, *rest)
        if (step := name.split("-")[0]) in names:
            note(names[step])
        return result

    def learn_noted(*rest: object, **options: object) -> bytes:
        note("count words")
        model = learn(*rest, **options)
        note("learn the vocabulary")
        return model

    Steps.finish, vocab_training.train_vocab = finish_noted, learn_noted
    settings = {"vocab_size": arguments.vocab_size}
    options = PrepareOptions(
        train=[files], langs="en-de", out=folder / "out", workers=arguments.workers, settings=settings
    )
    try:
        with repeating(lambda: look_at(watch, folder), 0.2):
            run_prepare(options)
            note("flush, hash, rename")
            watch.seconds = time.perf_counter() - watch.started
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)
    return watch


def look_at(watch: Watch, folder: Path) -> None:
    """Take note of the memory and the disk that are in use."""
    watch.peak_memory = max(watch.peak_memory, int(family_mebibytes(os.getpid()) * 2**20))
    with contextlib.suppress(OSError):  # files come and go meanwhile
        files = (path for out in ("out.partial", "out") for path in (folder / out).rglob("*") if path.is_file())
        watch.peak_disk = max(watch.peak_disk, sum(path.stat().st_size for path in files))


if __name__ == "__main__":
    main()
