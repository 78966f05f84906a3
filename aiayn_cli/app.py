"""The command `aiayn`: six verbs, and the one place where an error becomes a message and an exit code.

Exit codes: 0 success; 1 the user can fix it; 2 wrong usage; 130 Ctrl-C; 141 the reader of our output went away;
143 SIGTERM after saving. Anything else is our own bug and keeps its traceback.
"""

import atexit
import errno
import gc
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aiayn_cli import __version__, logs
from aiayn_cli.average.command import AverageCommand, average
from aiayn_cli.command_line import WIDEST
from aiayn_cli.errors import AiaynError, SaidElsewhere
from aiayn_cli.export.command import ExportCommand, export
from aiayn_cli.prepare.command import PrepareCommand, prepare
from aiayn_cli.score.command import ScoreCommand, score
from aiayn_cli.train.command import TrainCommand, train
from aiayn_cli.translate.command import TranslateCommand, translate

WRONG_USAGE, INTERRUPTED, OUTPUT_CLOSED = 2, 130, 141  # the last two as the shell counts signals

# What the system may refuse any command at any read or write, with hints; other kinds of OSError are our own bugs.
_REFUSALS = {
    errno.ENOSPC: "free some space, or write to another disk",
    errno.EDQUOT: "free some space, or write to another disk",
    errno.EACCES: "change the permissions, or choose another place",
    errno.EPERM: "change the permissions, or choose another place",
    errno.EROFS: "choose a place that can be written to",
    errno.EISDIR: "a folder is in the place of a file: move it away",
    errno.EIO: "the disk or the network to it fails: check the system's log",
    errno.ENAMETOOLONG: "give a shorter name",
}

# What Typer raises for a wrong command line; its common base has no public name.
_TyperUsageError: type[Exception] = typer.BadParameter.__bases__[0]


@contextmanager
def _ended_from_outside() -> Iterator[None]:
    """Exit with the shell's code for what ends a command from outside, before Typer handles it in its own way."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    except BrokenPipeError as error:
        raise typer.Exit(OUTPUT_CLOSED) from error
    except EOFError as error:  # Typer would take it for Ctrl-D at a prompt, but we have none: it is our own bug
        raise RuntimeError("a file ended early") from error


class _Commands(TyperGroup):
    """The group of commands: making its context prints --help and --version, invoking it runs a command."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _ended_from_outside():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _ended_from_outside():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    help='Translate with the Transformer of "Attention Is All You Need": parallel text in, a translator out.',
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, easy to search, and no Rich to load
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST},
)


def _print_versions(asked: bool) -> None:
    if not asked:
        return
    from importlib.metadata import version  # here, because nothing else needs it

    print(f"aiayn {__version__} (Python {sys.version.split()[0]})")
    for package in ("torch", "sentencepiece", "sacrebleu"):
        print(f"{package} {version(package)}")
    raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_versions, is_eager=True, help="Print versions and exit.")
    ] = False,
) -> None:
    pass


app.command(cls=PrepareCommand, short_help="Turn text in two languages into training data.")(prepare)
app.command(cls=TrainCommand, short_help="Train a model, or resume a run that stopped.")(train)
app.command(cls=AverageCommand, short_help="Average a run's last checkpoints into one model.")(average)
app.command(cls=TranslateCommand, short_help="Translate text: one line in, one line out.")(translate)
app.command(cls=ExportCommand, short_help="Write a model in the format of another engine.")(export)
app.command(cls=ScoreCommand, short_help="Score translations: BLEU, chrF, TER, with signatures.")(score)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, by default the shell's; returns the exit code (see the top of this file)."""
    if sys.stderr is sys.__stderr__:
        sys.stderr = logs.unfailing(sys.stderr)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        return _refuse("stdout is closed, so there is no place for the result", "send it to a file, or to /dev/null")
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # a process that ends need not look for garbage, which takes a tenth of a second
    _speak_utf8()
    code = _run(list(sys.argv[1:] if arguments is None else arguments))
    try:
        sys.stdout.flush()
    except OSError as error:  # handled here, because the interpreter would print it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return OUTPUT_CLOSED
        if not code:  # else an error is already on stderr
            return _refuse(f"stdout: {error.strerror}", _REFUSALS.get(error.errno or 0, ""))
    return code


def _run(words: list[str]) -> int:
    try:
        code = app(words or ["--help"], prog_name="aiayn", standalone_mode=False)
    except SaidElsewhere as error:
        return error.exit_code
    except AiaynError as error:
        return _refuse(error.problem, error.hint, error.exit_code)
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        return _refuse(f"{place}{error.strerror}", _REFUSALS[error.errno])
    except _TyperUsageError as error:
        usage: Any = error
        problem = " ".join(usage.format_message().split())
        command = usage.ctx.command_path if usage.ctx is not None else "aiayn"
        hint = f"`{command} --help` shows what it takes"
        return _refuse(problem[:1].lower() + problem[1:].rstrip("."), hint, WRONG_USAGE)
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as error:  # Typer's own way out of shell completion
        code = error.code
    return code if isinstance(code, int) else 0


def _refuse(problem: str, hint: str, code: int = AiaynError.exit_code) -> int:
    print(f"error: {problem}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr, flush=True)
    return code


def _speak_utf8() -> None:
    """Write UTF-8 whatever the locale; file names that are not UTF-8 pass through unchanged."""
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
