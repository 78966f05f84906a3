"""The command `aiayn average`."""

from pathlib import Path
from typing import Annotated, ClassVar

import typer

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, start_logs


class AverageCommand(HelpCommand):
    groups: ClassVar = {
        "What to average": "--last --steps --best --ema",
        "Search": "--search --data --device",
        "Output": "--out",
    }
    examples = """
        aiayn average runs/mine
        aiayn average runs/mine --search
    """


def average(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="A run, or checkpoints. Default: the newest run.", metavar="RUN|CHECKPOINT"),
    ] = None,
    last: Annotated[
        int | None, typer.Option(help="The N newest checkpoints. Default: the recipe's average_last.", min=1)
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Or a range of updates, such as 3000-6000.", metavar="FROM-TO")
    ] = None,
    best: Annotated[int | None, typer.Option(help="Or the N best checkpoints by validation.", min=1)] = None,
    ema: Annotated[
        bool, typer.Option("--ema", help="Or the moving average from training (training.ema_decay).")
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Try several averages on the validation set, and keep the best.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Prepared data for --search. Default: what the run was trained on.")
    ] = None,
    device: Annotated[str, typer.Option(help="For --search: auto, cpu, cuda or cuda:N.", metavar="NAME")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder to write the model to. Default: RUN/averaged.")] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Average the weights of a run's checkpoints into one model (paper, Section 6.1)."""
    with loading():  # here, because it imports torch
        from aiayn_cli.average.session import AverageOptions, run_average

    start_logs(quiet, verbose)
    options = AverageOptions(
        last=last, steps=steps, best=best, ema=ema, search=search, data=data, device=device, out=out
    )
    if search:
        with loading():  # here, because it imports translation
            from aiayn_cli.average.best_average import run_search as run_average
    result = run_average(paths or (), options)
    print_result(result, as_json)
    logs.next_step("aiayn translate --model", result.model, "< FILE")
