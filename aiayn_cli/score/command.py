"""`aiayn score`."""

import os
import sys
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, print_text, start_logs
from aiayn_cli.errors import UsageError


class ScoreCommand(HelpCommand):
    groups: ClassVar = {
        "Metrics": "--metric --tokenize --lowercase --smooth --smooth-value --compound-split --comet-model",
        "Input": "--hyp --source --langs --test-set --echo --from",
        "Significance": "--confidence --compare --resamples --trials",
        "More detail": "--by --worst --sentences --html",
        "Trees": "--brackets --parameters",
    }
    examples = """
        aiayn score test.de < test.hyp
        aiayn score test.de --hyp a.hyp --hyp b.hyp --metric bleu,chrf --compare
        aiayn score test.de --hyp a.hyp --source test.en --html page.html
    """


def score(
    references: Annotated[
        list[Path] | None, typer.Argument(metavar="REFERENCE", help="Plain-text references, one sentence per line.")
    ] = None,
    hyp: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Translations; one --hyp for each system. Default: stdin.")
    ] = None,
    metric: Annotated[
        str, typer.Option(metavar="NAMES", help="Metrics, separated by commas: bleu, chrf, chrf++, ter, comet.")
    ] = "bleu",
    tokenize: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="13a, intl, zh, ja-mecab, ko-mecab, char or none. Default: by language."),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare BLEU and chrF without case.")] = False,
    smooth: Annotated[
        Literal["exp", "floor", "add-k", "none"], typer.Option(help="How BLEU smooths n-grams without a match.")
    ] = "exp",
    smooth_value: Annotated[float | None, typer.Option(help="Value for floor (0.1) or add-k (1).", min=0.0)] = None,
    langs: Annotated[
        str | None,
        typer.Option("--langs", "-l", metavar="SRC-TGT", help="Language pair. Default: from names such as test.de."),
    ] = None,
    test_set: Annotated[
        str | None,
        typer.Option("--test-set", "-t", metavar="NAME", help="One of sacreBLEU's sets, downloaded: wmt14/full."),
    ] = None,
    echo: Annotated[
        Literal["src", "ref"] | None, typer.Option(help="Write this side of the test set to stdout and stop.")
    ] = None,
    from_folder: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Folder with the downloaded archive of the test set.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="FILE", help="The source text, for --worst, --html, comet and checks.")
    ] = None,
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Add 95 % confidence intervals, by bootstrap resampling.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Test each system against the first, by bootstrap and randomisation.")
    ] = False,
    resamples: Annotated[int, typer.Option(help="Resamples of the bootstrap.", min=2)] = 1_000,
    trials: Annotated[int, typer.Option(help="Trials of approximate randomisation.", min=2)] = 10_000,
    compound_split: Annotated[
        bool, typer.Option("--compound-split", help="Add BLEU in the paper's convention: Moses tokens, hyphens split.")
    ] = False,
    by: Annotated[
        str | None, typer.Option(metavar="length|FILE", help="Add rows by length, or by a file of one label per line.")
    ] = None,
    worst: Annotated[int, typer.Option(help="Add the N worst lines, with what differs.", min=0)] = 0,
    sentences: Annotated[
        bool, typer.Option("--sentences", help="Write JSON for each line to stdout, and the score to stderr.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that shows one system or compares two.")
    ] = None,
    comet_model: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="Model for the metric comet.")
    ] = "Unbabel/wmt22-comet-da",
    brackets: Annotated[
        bool, typer.Option("--brackets", help="Score constituency trees, one per line, as EVALB does.")
    ] = False,
    parameters: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --brackets: EVALB's parameters. Default: its COLLINS.prm.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Score translations as sacreBLEU does, and print each score with its signature.

    All text is plain: detokenised, cased, one sentence per line.
    """
    start_logs(quiet, verbose)
    with loading():  # here, because it imports sacrebleu
        from aiayn_cli.score.session import MetricOptions, ScoreOptions, run_echo, run_score, run_score_brackets

    if parameters is not None and not brackets:
        raise UsageError("--parameters needs --brackets", "add --brackets, which scores trees")
    if brackets:
        if hyp is not None and len(hyp) > 1:
            raise UsageError(f"--brackets with {len(hyp)} files of trees", "score one at a time")
        of_text = {
            "--metric": metric != "bleu", "--compare": compare, "--confidence": confidence, "--by": by, "--html": html,
            "--worst": worst, "--sentences": sentences, "--compound-split": compound_split, "-t": test_set,
            "--source": source, "--echo": echo, "--tokenize": tokenize, "--lowercase": lowercase,
        }  # fmt: skip
        if given := [name for name, value in of_text.items() if value]:
            raise UsageError(f"--brackets with {given[0]}, which is for text", "remove one of the two")
        trees = "-" if hyp is None else hyp[0]
        print_result(run_score_brackets(references or (), trees, parameters), as_json)
        return
    if echo is not None:
        if test_set is None:
            raise UsageError("--echo needs a test set", "add -t, such as -t wmt14/full")
        if references or hyp:
            raise UsageError("--echo scores no files", "remove the files, or --echo")
        run_echo(test_set, langs, echo, from_folder)
        return
    if sentences and as_json:
        raise UsageError("--sentences and --json both write to stdout", "give only one")
    how = MetricOptions(tokenize=tokenize, lowercase=lowercase, smooth=smooth, smooth_value=smooth_value)
    options = ScoreOptions(
        references=references or (), hypotheses=hyp or ("-",), metrics=metric, how=how, langs=langs, test_set=test_set,
        from_folder=from_folder, source=source, confidence=confidence, compare=compare, resamples=resamples,
        trials=trials, compound_split=compound_split, by=by, worst=worst, html=html, sentences=sentences,
        comet_model=comet_model,
    )  # fmt: skip
    result = run_score(options)
    if as_json:
        print_result(result, as_json=True)
    elif sentences:
        logs.notice(str(result))
    else:
        print_text(result.text(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    if html is None and references:
        shown = " ".join(f"--hyp {file}" for file in hyp or ["HYPOTHESES"])
        logs.next_step("aiayn score", *references, shown, "--html page.html")
    elif html is not None:
        logs.next_step("open", html, "in a browser")
