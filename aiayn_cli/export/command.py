"""The command `aiayn export`."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, start_logs


class ExportCommand(HelpCommand):
    groups: ClassVar = {"Output": "--format --int8 --out", "Check": "--check"}
    examples = """
        aiayn export runs/mine --int8
        aiayn translate --model runs/mine --engine ctranslate2 --int8 < in > out
    """


def export(
    model: Annotated[
        Path | None, typer.Argument(help="A checkpoint or run. Default: the newest run.", metavar="RUN|CHECKPOINT")
    ] = None,
    target_format: Annotated[Literal["ctranslate2"], typer.Option("--format", help="Format to write.")] = "ctranslate2",
    int8: Annotated[bool, typer.Option("--int8", help="Store weights in 8 bits: a quarter of the size.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. Default: one in the checkpoint, where `translate` finds it.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Source text to translate with both engines. Default: random sub-words."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Write a model in another engine's format.

    Both engines translate a check set; if they disagree, nothing is written.
    """
    start_logs(quiet, verbose)
    with loading():  # here, because it imports torch
        from aiayn_cli.export.session import run_export

    assert target_format == "ctranslate2"
    print_result(run_export(model, int8=int8, out=out, check=check), as_json)
    which: list[str | Path] = [] if model is None else ["--model", model]
    logs.next_step("aiayn translate", *which, f"--engine ctranslate2{' --int8' if int8 else ''} < FILE")
