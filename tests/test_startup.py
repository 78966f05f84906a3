"""Help and completion load nothing heavy and answer in a blink; loading collects no garbage and can be interrupted."""

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiayn_cli.command_line import loading

COMMANDS = ["prepare", "train", "average", "translate", "export", "score"]
HEAVY = ["torch", "numpy", "sentencepiece", "ctranslate2", "sacrebleu", "safetensors"]
HEAVY += ["yaml", "rich", "requests", "urllib3", "jinja2"]
HELP_LIMIT_SECONDS = 0.3
PROGRAM = f"""
import json, os, sys
from aiayn_cli.app import main

for environment, words in json.loads(sys.argv[1]):
    os.environ.update(environment)
    main(words)
    print("loaded", *(name for name in {HEAVY} if name in sys.modules))
"""


def run_fresh(*calls: tuple[dict[str, str], list[str]]) -> list[tuple[list[str], list[str]]]:
    """Run command lines one after the other in a fresh interpreter.

    Args:
        calls: environment variables and words of each.
    Returns:
        For each the words that it printed, and the heavy modules that have been loaded since the start.
    """
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(calls)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    found, printed = [], list[str]()
    for line in done.stdout.split("\n"):
        if line.startswith("loaded"):
            found.append((printed, line.split()[1:]))
            printed = []
        else:
            printed += line.split()
    return found


def test_help_and_version_load_nothing_heavy() -> None:
    calls: list[list[str]] = [[], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    found = run_fresh(*(({}, words) for words in calls))
    for words, (printed, loaded) in zip(calls, found, strict=True):
        assert printed, words
        assert loaded == [], words


def test_completion_loads_nothing_heavy() -> None:
    typed = {"aiayn sc": "score", "aiayn prepare --ver": "--verbose", "aiayn train --q": "--quiet"}
    calls = [
        ({"_AIAYN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}, ["x"])
        for words in typed
    ]
    for offered, (printed, loaded) in zip(typed.values(), run_fresh(*calls), strict=True):
        assert offered in printed
        assert set(loaded) <= {"rich"}  # Typer's own: it removes markup from help texts


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


@pytest.fixture(autouse=True)
def _frees_what_was_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_collects_nothing_while_it_loads_and_freezes_what_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_for_this_test.py").write_text("import gc\nenabled = gc.isenabled()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    frozen_before = gc.get_freeze_count()
    with loading():
        import made_for_this_test
    monkeypatch.delitem(sys.modules, "made_for_this_test")
    assert not made_for_this_test.enabled
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen_before


def test_freezes_nothing_where_all_is_loaded_or_an_import_fails() -> None:
    frozen_before = gc.get_freeze_count()
    with loading():
        import json  # noqa: F401
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen_before
    with pytest.raises(ModuleNotFoundError), loading():
        import no_module_of_this_name  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_leaves_collection_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


INTERRUPTED_IMPORT = """
import signal
import sys
from aiayn_cli.command_line import loading
signal.signal(signal.SIGTERM, signal.default_int_handler)  # as main() has one
sys.path.insert(0, {folder!r})
with loading():
    import library
print("went on")
"""
LIBRARY = """
import signal
try:
    signal.raise_signal({signal})
except KeyboardInterrupt:  # as torch does with numpy's
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_an_import_ends_the_process_in_one_line(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(LIBRARY.format(signal=int(number)))
    program = INTERRUPTED_IMPORT.format(folder=str(tmp_path))
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    said = "stopped by Ctrl-C\n" if number == signal.SIGINT else "error: stopped by SIGTERM\n"
    assert (process.returncode, process.stdout, process.stderr) == (128 + number, "", said)
