"""What all commands share: help, --quiet, --verbose, --json, loading their libraries, printing their results."""

import gc
import json
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from aiayn_cli import logs
from aiayn_cli.errors import UsageError

WIDEST = 110  # columns; longer lines are hard to read

# What Typer prints, and what a user would rather read.
_TYPES = [
    (re.compile(r"<list\[\w+\]>"), ""),
    (re.compile(r"<int(?: range)?>"), "N"),
    (re.compile(r"<float(?: range)?>"), "X"),
    (re.compile(r"<path>"), "PATH"),
    (re.compile(r"<str>"), "NAME"),
    (re.compile(r"<([a-z0-9-]+(?:\|[a-z0-9-]+)*)>"), r"\1"),
]
_BOUNDS = re.compile(r"; x>=[\d.]+|  \[x>=[\d.]+\]")
_DEFAULT = re.compile(r"\s+\[default: (.*)\]$")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more detail on stderr.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")]


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
                text = _DEFAULT.sub(r" Default: \1.", _BOUNDS.sub("", record[1]))
                records[heading].append((_with_types_in_words(record[0]), text))
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


def start_logs(quiet: bool, verbose: bool) -> None:
    """Set the log level from --quiet and --verbose; every command calls this first."""
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other", "give one of them")
    logs.setup(logs.QUIET if quiet else logs.VERBOSE if verbose else logs.NORMAL)


@contextmanager
def loading() -> Iterator[None]:
    """Import libraries inside this block.

    An interrupted import leaves numpy and torch half loaded, and their errors hide the interrupt; so Ctrl-C and SIGTERM
    end the process immediately. torch alone creates several hundred thousand objects that stay, and scanning them for
    garbage takes a sixth of the time.
    """
    interruptible = []
    if threading.current_thread() is threading.main_thread():  # SIGINT is ignored behind nohup
        handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
        interruptible = [(number, handler) for number, handler in handlers if callable(handler)]
    modules_before, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    for number, _ in interruptible:
        signal.signal(number, lambda number, _: os._exit(128 + number))
    try:
        yield
    finally:
        for number, handler in interruptible:
            signal.signal(number, handler)
        if len(sys.modules) > modules_before:  # otherwise garbage would be frozen too
            gc.freeze()
        if was_enabled:
            gc.enable()


def print_result(result: object, as_json: bool) -> None:
    """Print a command's result on stdout; an OSError names stdout.

    As text, a dataclass writes itself, and a mapping has a line for each name. As JSON, it is one object with all its
    fields (paths as text, NaN and infinity as null).
    """
    if as_json:
        text = json.dumps(_plain(result), ensure_ascii=False, allow_nan=False)
    elif isinstance(result, Mapping):
        text = "\n".join(f"{name}  {value}" for name, value in _plain(result).items())
    else:
        text = str(result)
    print_text(text)


def print_text(text: str) -> None:
    """Print lines on stdout; an OSError names stdout, since a full disk's error names no file."""
    try:
        print(text, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "stdout") from error


def _plain(value: object) -> Any:
    """Turn a result into JSON types."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")  # JSON is UTF-8
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    raise TypeError(f"a result holds a {type(value).__name__}, which JSON does not know")
