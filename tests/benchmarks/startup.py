"""How long a command takes until it answers, warm, beside what it cannot be shorter than: fresh processes, in seconds.

Run: python tests/benchmarks/startup.py

`--help` and its like must not load what they do not need. `translate` must load torch: how long it takes until the
prompt stands in a terminal (ready) and until the answer to a first line is out of a pipe, is measured in turn with
`import torch` alone, since that differs most between machines and hours. Its model has the paper's base shape and
37,000 sub-words, and random weights; its answer has 8 tokens.
"""

import os
import pty
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

RUNS = 10
GOAL_SECONDS, LIMIT_SECONDS = 0.15, 0.3
READY_GOAL_SECONDS = 2

LINES = {
    "python -c pass": ["-c", "pass"],
    "aiayn --help": ["-m", "aiayn_cli", "--help"],
    "aiayn train --help": ["-m", "aiayn_cli", "train", "--help"],
    "aiayn <TAB>": ["-m", "aiayn_cli"],
    "aiayn --version": ["-m", "aiayn_cli", "--version"],
}
COMPLETION = {"_AIAYN_COMPLETE": "complete_bash", "COMP_WORDS": "aiayn ", "COMP_CWORD": "1"}
SUB_WORDS = 37_000
TRANSLATE = ["-m", "aiayn_cli", "translate", "--max-length", "8"]
PROMPT = b"> "


def run(arguments: list[str], environment: dict[str, str] | None = None) -> float:
    """Seconds from the start of a fresh interpreter to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=environment)
    return time.perf_counter() - start


def until_ready(model: Path) -> float:
    """Seconds from the command to the prompt in a terminal."""
    terminal, side_of_the_command = pty.openpty()
    start = time.perf_counter()
    streams = {"stdin": side_of_the_command, "stdout": side_of_the_command, "stderr": side_of_the_command}
    process = subprocess.Popen([sys.executable, *TRANSLATE, "-m", model], **streams)
    os.close(side_of_the_command)  # else the end of a command that fails would not be seen
    shown = b""
    while not shown.endswith(PROMPT):
        try:
            shown += os.read(terminal, 1024)
        except OSError:  # what a terminal says that nobody writes to any more
            sys.exit(f"translate ended before it was ready: {shown.decode()}")
    seconds = time.perf_counter() - start
    process.kill()
    process.wait()
    os.close(terminal)
    return seconds


def until_answered(model: Path) -> float:
    """Seconds from the command to the answer to a first line in a pipe."""
    start = time.perf_counter()
    command = [sys.executable, *TRANSLATE, "--quiet", "-m", model]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"a short line\n")
    process.stdin.flush()
    is_answered = process.stdout.readline().endswith(b"\n")
    seconds = time.perf_counter() - start
    process.communicate()
    if not is_answered:
        sys.exit("translate ended without an answer")
    return seconds


def base_model(folder: Path) -> Path:
    """A checkpoint of the paper's base shape with random weights, and a vocabulary of random words."""
    import torch

    from aiayn_cli.checkpoint.checkpoint import Checkpoint, save_checkpoint
    from aiayn_cli.model.build import build_model
    from aiayn_cli.prepare.vocab_training import train_vocab
    from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig
    from aiayn_cli.text.vocab import Vocab

    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = Counter("".join(chance.choices(letters, k=chance.randint(3, 8))) for _ in range(60_000))
    vocab_file = folder / "vocab"
    vocab_file.write_bytes(train_vocab(words, SUB_WORDS))
    vocab = Vocab.load(vocab_file)
    assert vocab.size == SUB_WORDS
    torch.manual_seed(1)
    shape = ModelConfig()
    checkpoint = Checkpoint(
        path=folder / "base", step=1, model=shape, decoding=DecodingConfig(), vocab_size=vocab.size,
        vocab_sha256=vocab.sha256, data_sha256="", src_lang="en", tgt_lang="de", run_id="",
    )  # fmt: skip
    return save_checkpoint(checkpoint, dict(build_model(shape, vocab.size).named_parameters()), vocab_file).path


def main() -> None:
    """Print one line for each command line."""
    print(f"seconds, best of {RUNS}; goal for --help {GOAL_SECONDS}, limit {LIMIT_SECONDS}")
    for name, arguments in LINES.items():
        environment = {**os.environ, **(COMPLETION if "TAB" in name else {})}
        print(f"{name:<20} {min(run(arguments, environment) for _ in range(RUNS)):.3f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        model = base_model(Path(folder))
        measures: dict[str, Callable[[], float]] = {
            "import torch": lambda: run(["-c", "import torch"]),
            "ready": lambda: until_ready(model),
            "first answer": lambda: until_answered(model),
        }
        seconds: dict[str, list[float]] = {name: [] for name in measures}
        for _ in range(RUNS):
            for name, measure in measures.items():
                seconds[name].append(measure())
    print(f"\naiayn translate, base: seconds, best and median of {RUNS} in turn; goal for ready {READY_GOAL_SECONDS}")
    for name, each in seconds.items():
        print(f"{name:<20} {min(each):.3f} {statistics.median(each):.3f}")


if __name__ == "__main__":
    main()
