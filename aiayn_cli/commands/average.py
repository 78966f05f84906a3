"""The command `aiayn average`."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn_cli.commands.options import JsonOption, QuietOption, VerboseOption, print_result, start_logs


def average(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="A run, or checkpoints; default: the newest run.", metavar="RUN|CHECKPOINT"),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help="How many of the newest checkpoints; default: the recipe's average_last.", min=1)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write the model to; default: RUN/averaged.")] = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Average the weights of a run's last checkpoints into one model (paper, Section 6.1)."""
    from aiayn_cli.stages.average import run_average  # here, because it imports torch

    start_logs(quiet, verbose)
    print_result(run_average(paths or (), last=last, out=out), as_json)
