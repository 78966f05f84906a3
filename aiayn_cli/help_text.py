"""Help pages: options under headings, types in words, the terminal's width, examples at the end."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperCommand

WIDEST = 110  # columns; longer lines are hard to read

# What Typer prints, and what a user would rather read.
_TYPES = [
    (re.compile(r"<list\[Path\]>"), ""),
    (re.compile(r"<int(?: range)?>"), "N"),
    (re.compile(r"<float(?: range)?>"), "X"),
    (re.compile(r"<path>"), "PATH"),
    (re.compile(r"<str>"), "NAME"),
    (re.compile(r"<([a-z0-9-]+(?:\|[a-z0-9-]+)+)>"), r"\1"),
]
_BOUNDS = re.compile(r"; x>=[\d.]+|  \[x>=[\d.]+\]")
_DEFAULT = re.compile(r"\s+\[default: (.*)\]$")


class HelpCommand(TyperCommand):
    """A command with a readable --help.

    Attributes:
        groups: the options' names, with blanks between, by heading; what stands nowhere is under "General".
        examples: command lines, one a line.
    """

    groups: ClassVar[Mapping[str, str]] = {}
    examples: ClassVar[str] = ""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        headings = {option: heading for heading, options in self.groups.items() for option in options.split()}
        records: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Arguments", *self.groups, "General")}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "General"
                heading = next((headings[name] for name in parameter.opts if name in headings), usual)
                records[heading].append((_with_types_in_words(record[0]), _with_plain_default(record[1])))
        for heading, rows in records.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=28)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().split("\n"):
                    formatter.write(f"  {line.strip()}\n")


def _with_types_in_words(option: str) -> str:
    for pattern, words in _TYPES:
        option = pattern.sub(words, option)
    return option.rstrip()


def _with_plain_default(text: str) -> str:
    return _DEFAULT.sub(r" Default: \1.", _BOUNDS.sub("", text))
