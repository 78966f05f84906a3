"""What all commands share: help, --quiet, --verbose, --json, loading their libraries, printing their results."""

import gc
import json
import math
import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from aiayn_cli import logs
from aiayn_cli.errors import UsageError, did_you_mean

WIDEST = 110  # columns; longer lines are hard to read
_NARROW = 70  # columns, at most, with which descriptions start further left

# What Typer prints, and what a user would rather read.
_TYPES = [
    (re.compile(r"<list\[\w+\]>"), ""),
    (re.compile(r"<int(?: range)?>"), "N"),
    (re.compile(r"<float(?: range)?>"), "X"),
    (re.compile(r"<path>"), "PATH"),
    (re.compile(r"<str>"), "NAME"),
    (re.compile(r"<([a-z0-9-]+(?:\|[a-z0-9-]+)*)>"), r"\1"),
]
_BOUNDS = re.compile(r"; x>=[\d.]+|  \[[\d.<=]*x[<>]=[\d.]+\]")
_DEFAULT = re.compile(r"\s+\[default: (.*)\]$")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors on stderr.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more detail on stderr.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object on stdout.")]


class HelpCommand(TyperCommand):
    """A command with a readable --help, whose options never take another option for their value.

    Attributes:
        groups: the options' names, separated by blanks, by heading; all others are under "General".
        examples: command lines, one a line.
        sections: classes of a recipe's sections, by name, whose settings users may take for options.
        instead: hints for other options that do not exist; VALUE stands for the value given.
        positional: the hint for an argument too many, for which VALUE stands.
    """

    groups: ClassVar[Mapping[str, str]] = {}
    examples: ClassVar[str] = ""
    sections: ClassVar[Mapping[str, Any]] = {}
    instead: ClassVar[Mapping[str, str]] = {}
    positional: ClassVar[str] = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # which completion is
            self._check_words(ctx, args)
        return super().parse_args(ctx, args)

    def _check_words(self, ctx: Any, words: list[str]) -> None:
        options = {
            name: each
            for each in self.get_params(ctx)
            if each.param_type_name == "option"
            for name in (*each.opts, *each.secondary_opts)
        }
        place = 0
        while place < len(words) and words[place] != "--":
            name, equals, value = words[place].partition("=")
            place += 1
            following = takewhile(lambda word: word.partition("=")[0] not in options, words[place:])
            if name not in options:
                if (hint := self._hint_for(name)) is not None:
                    value = value or next((word for word in following if not word.startswith("-")), "VALUE")
                    raise UsageError(f"no such option: {name}", hint.replace("VALUE", value))
                continue
            option: Any = options[name]
            needed = 0 if option.is_flag else option.nargs
            values = [*([value] if equals else []), *islice(following, needed)][:needed]
            if len(values) < needed:
                wanted = "a value" if needed == 1 else f"{needed} values"
                found = f"only {values[0]}" if values else "none"
                problem = f"{name} needs {wanted}, but has {found}"
                raise UsageError(problem, f"write {_with_types_in_words(option.get_help_record(ctx)[0])}")
            place += needed - bool(equals and needed)

    def _hint_for(self, option: str) -> str | None:
        if option in self.instead:
            return self.instead[option]
        for section, config in self.sections.items():
            for each in fields(config):
                name, setting = each.name.replace("_", "-"), f"write --set {section}.{each.name}"
                if option == f"--{name}":
                    return f"{setting}={'true' if isinstance(each.default, bool) else 'VALUE'}"
                if option in (f"--no-{name}", f"--{name.replace('drop-', 'keep-')}"):
                    return f"{setting}=false"
        return None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        headings = {option: heading for heading, options in self.groups.items() for option in options.split()}
        rows: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Arguments", *self.groups, "General")}
        for parameter in self.get_params(ctx):
            if (row := parameter.get_help_record(ctx)) is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "General"
                heading = next((headings[name] for name in parameter.opts if name in headings), usual)
                words = _with_types_in_words(row[0])
                option = textwrap.wrap(words, formatter.width - 2, subsequent_indent="    ", break_on_hyphens=False)
                rows[heading].append(("\n".join(option), _DEFAULT.sub(r" Default: \1.", _BOUNDS.sub("", row[1]))))
        for heading, some in rows.items():
            if some:
                with formatter.section(heading):
                    formatter.write_dl(some, col_max=28 if formatter.width > _NARROW else 8)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().split("\n"):
                    words = textwrap.wrap(line.strip(), formatter.width - 4, break_on_hyphens=False)
                    formatter.write("  " + " \\\n    ".join(words) + "\n")


def explain_usage(usage: Any) -> tuple[str, str]:
    """The problem and the hint for what Typer raised about a command line."""
    hint = f"see `{usage.ctx.command_path if usage.ctx is not None else 'aiayn'} --help`"
    if hasattr(usage.__cause__, "errors"):  # of pydantic, about one value
        fault = usage.__cause__.errors()[0]
        limits = fault.get("ctx", {})
        need = "a whole number" if fault["type"].startswith("int") else "a number"
        if "error" in limits:
            choices = str(limits["error"]).partition(" is not one of ")[2].rstrip(".").replace("'", "")
            need, near = f"one of {choices}", did_you_mean(fault["input"], choices.split(", "))
            hint = near if near.startswith("did you mean") else hint
        elif limits.keys() & {"ge", "le"}:
            need = f"at least {limits['ge']:g}" if "ge" in limits else f"at most {limits['le']:g}"
        return f"{max(usage.param.opts, key=len)} is {fault['input'] or 'empty'}, but must be {need}", hint
    if hasattr(usage, "option_name") and getattr(usage, "possibilities", None):
        return f"no such option: {usage.option_name}", f"did you mean {' or '.join(usage.possibilities)}?"
    problem = " ".join(usage.format_message().split())
    if extra := re.match(r"Got unexpected extra argument\S* \((.*)\)$", problem):
        problem = f"unexpected argument: {extra[1]}"
        hint = getattr(usage.ctx.command, "positional", "").replace("VALUE", extra[1].split()[0]) or hint
    return problem[:1].lower() + problem[1:].rstrip("."), hint


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
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}  # SIGINT is ignored behind nohup
    interruptible = [(number, handler) for number, handler in handlers.items() if callable(handler)]
    modules_before, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    for number, _ in interruptible:
        signal.signal(number, _stop_now)
    try:
        yield
    finally:
        for number, handler in interruptible:
            signal.signal(number, handler)
        if len(sys.modules) > modules_before:  # otherwise garbage would be frozen too
            gc.freeze()
        if was_enabled:
            gc.enable()


def _stop_now(number: int, _: object) -> None:
    if number == signal.SIGINT:
        logs.notice("stopped by Ctrl-C")
    else:
        print("error: stopped by SIGTERM", file=sys.stderr, flush=True)
    os._exit(128 + number)


def print_result(result: object, as_json: bool) -> None:
    """Print a command's result on stdout; an OSError names stdout.

    As text, a dataclass writes itself, and a mapping has a line for each name. As JSON, it is one object with all its
    fields (paths as text, NaN and infinity as null).
    """
    if as_json:
        text = json.dumps(_plain(result), ensure_ascii=False, allow_nan=False)
    elif isinstance(result, Mapping):
        text = "\n".join(f"{name}: {value}" for name, value in _plain(result).items())
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
