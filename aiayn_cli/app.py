"""The command `aiayn`: six verbs, and the one place where an error becomes a message and an exit code.

Exit codes: 0 success; 1 the user can fix it; 2 wrong usage; 130 Ctrl-C; 141 the reader of our output went away;
143 SIGTERM. Anything else is our own bug and keeps its traceback.
"""

import atexit
import errno
import gc
import io
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from aiayn_cli import __version__, logs
from aiayn_cli.average.command import AverageCommand, average
from aiayn_cli.command_line import WIDEST, explain_usage
from aiayn_cli.errors import AiaynError, SaidElsewhere
from aiayn_cli.export.command import ExportCommand, export
from aiayn_cli.prepare.command import PrepareCommand, prepare
from aiayn_cli.score.command import ScoreCommand, score
from aiayn_cli.train.command import TrainCommand, train
from aiayn_cli.translate.command import TranslateCommand, translate

WRONG_USAGE, OUTPUT_CLOSED = 2, 128 + signal.SIGPIPE  # the latter as the shell counts signals

# What the system may refuse any command at any read or write, with hints; other kinds of OSError are our own bugs.
_REFUSALS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or write to another disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change the permissions, or choose another place"),
    errno.EROFS: "choose a place that can be written to",
    errno.EISDIR: "this must be a file: move the folder away, or name another file",
    errno.EIO: "the disk, or the network to it, failed: check the system's log",
    errno.ENAMETOOLONG: "give a shorter name",
}

# What Typer raises for a wrong command line; its common base has no public name.
_TyperUsageError: type[Exception] = typer.BadParameter.__bases__[0]


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


app = typer.Typer(
    help='Translate with the Transformer of "Attention Is All You Need": parallel text in, a translator out.',
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, easy to search, and no Rich to load
    context_settings={"help_option_names": ["-h", "--help"]},
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
        return _refuse("stdout is closed, so the result cannot be printed", "redirect it to a file, or to /dev/null")
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
        with _sigterm_as_interrupt():
            if "_AIAYN_COMPLETE" in os.environ:  # the shell asks what can come next
                app(prog_name="aiayn")
            command = typer.main.get_command(app)  # not app(), which has its own way with errors
            columns = min(shutil.get_terminal_size().columns, WIDEST)  # Typer itself takes 50 if there are fewer
            with command.make_context("aiayn", words or ["--help"], terminal_width=max(columns, 22) - 2) as context:
                command.invoke(context)
    except KeyboardInterrupt as error:
        if isinstance(error, _Terminated):
            return _refuse("stopped by SIGTERM", "", 128 + signal.SIGTERM)
        logs.notice(str(error) or "stopped by Ctrl-C")
        return 128 + signal.SIGINT
    except SaidElsewhere as error:
        return error.exit_code
    except AiaynError as error:
        return _refuse(error.problem, error.hint, error.exit_code)
    except BrokenPipeError:
        return OUTPUT_CLOSED
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        return _refuse(f"{place}{error.strerror}", _REFUSALS[error.errno])
    except _TyperUsageError as error:
        return _refuse(*explain_usage(error), WRONG_USAGE)
    except typer.Exit as error:
        return error.exit_code
    except SystemExit as error:  # how Typer ends after completion
        return error.code if isinstance(error.code, int) else 0
    return 0


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, with its messages and files closed; a second one does not wait."""

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise _Terminated

    in_main_thread = threading.current_thread() is threading.main_thread()
    takes = in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    try:
        if takes:
            signal.signal(signal.SIGTERM, end)
        yield
    finally:
        if takes:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
