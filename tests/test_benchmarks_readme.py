"""tests/benchmarks/README.md lists every benchmark with options that exist, and what make bench runs needs no data."""

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent
FOLDER = CHECKOUT / "tests" / "benchmarks"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"`python (tests/benchmarks/[a-z0-9_]+\.py)([^`]*)`", PAGE)
BENCHMARKS = sorted(path for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text("utf-8"))


def test_every_benchmark_and_nothing_else_has_a_command() -> None:
    assert {CHECKOUT / script for script, _ in COMMANDS} == set(BENCHMARKS)


@pytest.mark.parametrize(("script", "arguments"), COMMANDS)
def test_the_command_has_options_of_the_script_and_all_that_it_requires(script: str, arguments: str) -> None:
    text = (CHECKOUT / script).read_text(encoding="utf-8")
    splits = {f"--{split}" for split in ("train", "valid", "test")} if 'f"--{split}"' in text else set[str]()
    for option in re.findall(r"--[a-z0-9-]+", arguments):
        assert f'"{option}"' in text or option in splits, option
    required = re.findall(r'add_argument\(\s*"(--[a-z-]+)"[^)]*required=True', text)
    assert {*required, *splits} <= set(arguments.split())


def test_every_kept_output_is_there_and_listed() -> None:
    linked = {FOLDER / link for link in re.findall(r"\]\(([^)]+)\)", PAGE)}
    assert linked == set((FOLDER / "results").iterdir())


def test_what_make_bench_runs_is_what_the_page_marks() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    of_make = re.findall(r"^BENCHMARKS := (.*)$", makefile, flags=re.MULTILINE)[0].split()
    marked = re.findall(r"^\|.* \* \| `python tests/benchmarks/([a-z0-9_]+)\.py` \|", PAGE, flags=re.MULTILINE)
    assert sorted(of_make) == sorted(marked)
    assert len(of_make) >= 3
