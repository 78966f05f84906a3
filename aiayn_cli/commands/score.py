"""`aiayn score`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from aiayn_cli.commands.options import JsonOption, QuietOption, VerboseOption, print_result, start_logs
from aiayn_cli.errors import UsageError


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
    brackets: Annotated[
        bool,
        typer.Option("--brackets", help="Score constituency trees, one a line, by EVALB's rules: labelled bracket F1."),
    ] = False,
    parameters: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --brackets: a parameter file of EVALB. Default: as its COLLINS.prm, without the outermost "
            "bracket, whatever its name.",
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
    from aiayn_cli.stages.score import run_score, run_score_brackets  # here, because it imports sacrebleu

    if parameters is not None and not brackets:
        raise UsageError("--parameters without --brackets", "it is for scoring trees: add --brackets")
    if brackets:
        print_result(run_score_brackets(references, hypotheses=hyp, parameters=parameters), as_json)
        return
    print_result(run_score(references, hypotheses=hyp, metric=metric, tokenize=tokenize, langs=langs), as_json)
