"""`aiayn translate`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from aiayn_cli import logs
from aiayn_cli.commands.options import JsonOption, QuietOption, VerboseOption, print_result, start_logs
from aiayn_cli.config import DecodingConfig

_DEFAULTS = DecodingConfig()


def translate(
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="DIR",
            help="Checkpoint or run to translate with; give it several times for an ensemble. "
            "Default: the newest run in runs/, averaged if it has been.",
        ),
    ] = None,
    source: Annotated[
        str, typer.Option("--input", "-i", metavar="FILE", help="Text to translate, one line each; - is stdin.")
    ] = "-",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write; a file appears when all is done; - is stdout."
        ),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Hypotheses followed for each line; 1 is greedy. Default: the model's, {_DEFAULTS.beam_size}."
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            min=0.0, help=f"Length penalty ((5 + n) / 6) ** alpha, n tokens. Default: the model's, {_DEFAULTS.alpha}."
        ),
    ] = None,
    max_extra: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Longest output, in tokens more than the input. Default: the model's, {_DEFAULTS.max_extra}."
        ),
    ] = None,
    nbest: Annotated[int, typer.Option(min=1, help="Outputs for each line, best first, one below the other.")] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Write log p / length penalty and a TAB before each output.")
    ] = False,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        Literal["auto", "bf16", "fp32"], typer.Option(help="auto takes bf16 where the device is fast at it.")
    ] = "auto",
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Source tokens translated together, padding included. "
            f"Default: the model's, {_DEFAULTS.batch_tokens}.",
        ),
    ] = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Translate text: one line in, one line out, in order; a blank line stays blank.

    A terminal or a slow pipe gets each answer as soon as its line is in; a file gets full batches. With --json and
    without -o the translations are part of the JSON object.
    """
    start_logs(quiet, verbose)
    from aiayn_cli.stages.translate import run_translate  # here, because it imports torch

    if str(output) == "-":
        output = None
    result = run_translate(
        model or (),
        source=source,
        output=output,
        beam_size=beam,
        alpha=alpha,
        max_extra=max_extra,
        batch_tokens=batch_tokens,
        n_best=nbest,
        with_scores=scores,
        device=device,
        precision=precision,
        keep_translations=as_json and output is None,
    )
    logs.notice(result.summary())
    if as_json:
        print_result(result, as_json=True)
