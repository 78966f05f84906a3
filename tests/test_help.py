"""--help can be read: each option under one heading, types in words, lines that fit, examples that exist."""

import re

import pytest

from aiayn_cli.app import main
from aiayn_cli.average.command import AverageCommand
from aiayn_cli.command_line import HelpCommand
from aiayn_cli.export.command import ExportCommand
from aiayn_cli.prepare.command import PrepareCommand
from aiayn_cli.score.command import ScoreCommand
from aiayn_cli.train.command import TrainCommand
from aiayn_cli.translate.command import TranslateCommand

COMMANDS = {
    "prepare": PrepareCommand, "train": TrainCommand, "average": AverageCommand,
    "translate": TranslateCommand, "score": ScoreCommand, "export": ExportCommand,
}  # fmt: skip
GENERAL = {"--quiet", "--verbose", "--json", "--help"}


def help_of(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int = 100) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([verb, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("verb", "command"), COMMANDS.items())
def test_every_option_stands_under_one_heading(
    verb: str, command: type[HelpCommand], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", help_of(verb, capsys, monkeypatch), flags=re.MULTILINE)
    named = [option for options in command.groups.values() for option in options.split()]
    assert len(named) == len(set(named))
    assert sorted(shown) == sorted({*named, *GENERAL})


@pytest.mark.parametrize("verb", COMMANDS)
def test_types_and_defaults_are_in_words(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(verb, capsys, monkeypatch)
    for technical in ("<int", "<path", "<str", "<float", "<list", "range>", "[default", "x>="):
        assert technical not in text


@pytest.mark.parametrize("columns", [60, 80, 110, 200])
def test_lines_use_the_terminal_s_width_up_to_what_reads_well(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of("train", capsys, monkeypatch, columns).partition("Examples")[0].split("\n")
    assert min(columns, 110) - 20 < max(map(len, lines)) <= min(columns, 110)


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_ends_with_examples_whose_options_exist(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _, examples = help_of(verb, capsys, monkeypatch).partition("\nExamples:\n")
    lines = [line for line in examples.split("\n") if line]
    assert 2 <= len(lines) <= 4
    for line in lines:
        command = re.search(r"aiayn (\w+)(.*)", line)
        assert command
        options = re.findall(r"--[a-z-]+", command[2])
        known = text if command[1] == verb else help_of(command[1], capsys, monkeypatch)
        assert all(option in known for option in options), line
