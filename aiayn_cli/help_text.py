"""Help pages: options under headings, types in words, the terminal's width, examples at the end."""

import re
from typing import Any

from typer.core import TyperCommand

WIDEST = 110  # columns; longer lines are hard to read

# How Typer names types and bounds, and how a user would.
_IN_WORDS = [
    (re.compile(r"<list\[Path\]>"), "..."),
    (re.compile(r"<int(?: range)?>"), "N"),
    (re.compile(r"<float(?: range)?>"), "X"),
    (re.compile(r"<path>"), "PATH"),
    (re.compile(r"<str>"), "NAME"),
    (re.compile(r"<([a-z0-9]+(?:\|[a-z0-9]+)+)>"), r"\1"),
]
_BOUND = re.compile(r"(?:; )?\bx>=\d+(?:\.0)?|  \[x>=\d+(?:\.0)?\]")


class HelpCommand(TyperCommand):
    """A command that groups its options by their `rich_help_panel`, and prints its epilog line by line."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            default = "Arguments" if parameter.param_type_name == "argument" else "General"
            heading = getattr(parameter, "rich_help_panel", None) or default
            panels.setdefault(heading, []).append((_in_words(record[0]), _BOUND.sub("", record[1])))
        general = panels.pop("General", None)
        if general:
            panels["General"] = general
        for heading, records in panels.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=28)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog:
            with formatter.section("Examples"):
                for line in self.epilog.strip().split("\n"):
                    formatter.write(f"  {line.strip()}\n")


def _in_words(option: str) -> str:
    for pattern, words in _IN_WORDS:
        option = pattern.sub(words, option)
    return option
