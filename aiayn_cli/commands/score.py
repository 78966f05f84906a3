"""`aiayn score`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from aiayn_cli.commands.options import JsonOption, QuietOption, VerboseOption, print_result, start_logs


def score(
    references: Annotated[
        list[Path],
        typer.Argument(metavar="REFERENCE", help="Plain-text references, one line for each sentence."),
    ],
    hyp: Annotated[str, typer.Option(metavar="FILE", help="Translations to score; - is stdin.")] = "-",
    metric: Annotated[Literal["bleu"], typer.Option(help="What to compute.")] = "bleu",
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="BLEU's tokeniser: 13a, intl, zh, ja-mecab, ko-mecab, char or none. Default: what suits the target "
            "language, 13a for most.",
        ),
    ] = None,
    langs: Annotated[
        str | None,
        typer.Option(
            "--langs", "-l", metavar="SRC-TGT", help="Language pair. Default: from a name such as test.de, if it tells."
        ),
    ] = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Score translations with BLEU, as sacreBLEU computes it, and print the score with its signature.

    Both sides are plain text: detokenised, cased, one line for each sentence.
    """
    start_logs(quiet, verbose)
    from aiayn_cli.stages.score import run_score  # here, because it imports sacrebleu

    print_result(run_score(references, hypotheses=hyp, metric=metric, tokenize=tokenize, langs=langs), as_json)
