"""--help can be read: each option under one heading, types in words, lines that fit, examples that exist."""

import re
from collections.abc import Callable
from importlib import import_module

import pytest

from aiayn_cli.app import main

VERBS = ("prepare", "train", "average", "translate", "score", "export")
GENERAL = {"--quiet", "--verbose", "--json", "--help"}
Help = Callable[..., str]


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Help:
    def text(verb: str, columns: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([verb, "--help"]) == 0
        return capsys.readouterr().out

    return text


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_stands_under_one_heading(verb: str, help_of: Help) -> None:
    command = getattr(import_module(f"aiayn_cli.{verb}.command"), f"{verb.title()}Command")
    shown = re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", help_of(verb), flags=re.MULTILINE)
    named = [option for options in command.groups.values() for option in options.split()]
    assert len(named) == len(set(named))
    assert sorted(shown) == sorted({*named, *GENERAL})


@pytest.mark.parametrize("verb", VERBS)
def test_types_and_defaults_are_in_words(verb: str, help_of: Help) -> None:
    text = help_of(verb)
    for technical in ("<int", "<path", "<str", "<float", "<list", "range>", "[default", "x>="):
        assert technical not in text


@pytest.mark.parametrize("columns", [60, 80, 110, 200])
def test_lines_use_the_terminal_s_width_up_to_what_reads_well(columns: int, help_of: Help) -> None:
    lines = help_of("train", columns).partition("Examples")[0].split("\n")
    assert min(columns, 110) - 20 < max(map(len, lines)) <= min(columns, 110)


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("verb", VERBS)
def test_no_line_is_wider_than_the_terminal(verb: str, columns: int, help_of: Help) -> None:
    assert [line for line in help_of(verb, columns).split("\n") if len(line) > columns] == []


@pytest.mark.parametrize("verb", VERBS)
def test_help_ends_with_examples_whose_options_exist(verb: str, help_of: Help) -> None:
    text, _, examples = help_of(verb).partition("\nExamples:\n")
    lines = [line for line in examples.split("\n") if line]
    assert 2 <= len(lines) <= 4
    for line in lines:
        command = re.search(r"aiayn (\w+)(.*)", line)
        assert command
        options = re.findall(r"--[a-z-]+", command[2])
        known = text if command[1] == verb else help_of(command[1])
        assert all(option in known for option in options), line
