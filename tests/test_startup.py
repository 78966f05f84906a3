"""Help and completion answer in a blink: in a fresh interpreter they load nothing heavy."""

import os
import subprocess
import sys

import pytest

COMMANDS = ["prepare", "train", "average", "translate", "export", "score"]
HEAVY = [
    "torch",
    "numpy",
    "sentencepiece",
    "ctranslate2",
    "sacrebleu",
    "safetensors",
    "yaml",
    "rich",
    "requests",
    "urllib3",
    "jinja2",
]
PROGRAM = (
    "import atexit, sys\n"
    f"atexit.register(lambda: print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr))\n"
    "from aiayn_cli.app import main\n"
    "sys.exit(main())"
)
HELP_LIMIT_SECONDS = 0.3


def run_fresh(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a fresh interpreter; its last line on stderr names the heavy modules that it loaded."""
    arguments = [sys.executable, "-c", PROGRAM, *words]
    env = {**os.environ, **environment}
    return subprocess.run(arguments, env=env, capture_output=True, text=True, check=True, timeout=60)


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_and_version_load_nothing_heavy(words: list[str]) -> None:
    done = run_fresh(*words)
    assert done.stderr == "\n"
    assert done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("aiayn sc", "score"), ("aiayn prepare --ver", "--verbose"), ("aiayn train --q", "--quiet")],
)
def test_completion_loads_nothing_heavy(typed: str, offered: str) -> None:
    position = str(len(typed.split()) - 1)
    done = run_fresh(_AIAYN_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=position)
    assert offered in done.stdout.split()
    assert set(done.stderr.split()) <= {"rich"}  # Typer's own: it removes markup from help texts


def test_the_test_would_see_a_heavy_module() -> None:
    program = PROGRAM.replace("from aiayn_cli", "import yaml\nfrom aiayn_cli")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == "yaml\n"


def test_help_answers_within_its_limit() -> None:
    def spent() -> float:  # by processes that this one started: what other work takes from them is not theirs
        times = os.times()
        return times.children_user + times.children_system

    seconds = []
    while not seconds or (min(seconds) >= HELP_LIMIT_SECONDS and len(seconds) < 20):  # a full cache may slow one down
        before = spent()
        subprocess.run([sys.executable, "-m", "aiayn_cli", "--help"], stdout=subprocess.DEVNULL, check=True, timeout=60)
        seconds.append(spent() - before)
    assert min(seconds) < HELP_LIMIT_SECONDS
