"""`aiayn translate`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from aiayn_cli import logs
from aiayn_cli.command_line import JsonOption, QuietOption, VerboseOption, loading, print_result, start_logs
from aiayn_cli.config import DecodingConfig
from aiayn_cli.errors import DataError, UsageError

_DEFAULTS = DecodingConfig()
_OF_SCORE_AGAINST = {
    "model", "source", "output", "score_against", "line_format", "input_format", "device", "precision", "batch_tokens",
    "quiet", "verbose", "as_json",
}  # fmt: skip


def translate(
    context: typer.Context,
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
            min=0.0,
            help="Length penalty ((5 + n) / 6) ** alpha, n tokens; --engine ctranslate2 searches with n ** alpha. "
            f"Default: the model's, {_DEFAULTS.alpha}.",
        ),
    ] = None,
    max_extra: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Longest output, in tokens more than the input. Default: the model's, {_DEFAULTS.max_extra}."
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Longest output in tokens, whatever the input. Default: no such limit.")
    ] = None,
    min_length: Annotated[int, typer.Option(min=0, help="Shortest output in tokens.")] = 0,
    no_repeat_ngram: Annotated[
        int, typer.Option(min=0, metavar="N", help="Let no N tokens in a row come twice in an output; 0 lets all.")
    ] = 0,
    tree_rules: Annotated[
        bool | None,
        typer.Option(
            "--tree-rules/--no-tree-rules",
            help="Whether a parser writes only trees over the words of its line: a tag for each, all brackets closed. "
            "Default: the model's, which is --tree-rules.",
        ),
    ] = None,
    nbest: Annotated[int, typer.Option(min=1, help="Outputs for each line, best first, one below the other.")] = 1,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw outputs at random, --nbest of them, instead of searching.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="With --sample: below 1 keeps nearer to what is likely. Default: 1.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="With --sample: draw among the K likeliest tokens. Default: all.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="With --sample: draw among the likeliest tokens of that probability together. Default: 1."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="With --sample: another seed draws other outputs. Default: 0.")
    ] = None,
    prefix: Annotated[
        Path | None, typer.Option(metavar="FILE", help="How each output begins, one line each; an empty line is free.")
    ] = None,
    line_format: Annotated[
        Literal["text", "jsonl"],
        typer.Option("--format", help='jsonl reads and writes one object a line: {"id", "text", "prefix"} in.'),
    ] = "text",
    input_format: Annotated[
        Literal["text", "jsonl"] | None, typer.Option(help="Format of the input alone. Default: as --format.")
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Write log p / length penalty and a TAB before each output; in jsonl, log p of each token."
        ),
    ] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Write a TAB and source-target pairs of words (0-0 1-2) after each.")
    ] = False,
    score_against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Translate nothing: write log p and the perplexity of the translations in FILE."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a JSON object on each line: score, length ratio, and what looks wrong."
        ),
    ] = None,
    on_suspect: Annotated[
        Literal["keep", "retry", "empty", "copy", "fail"],
        typer.Option(
            help="What to do about a translation that looks wrong: keep it, search again in other ways, "
            "write an empty line or the source instead, or stop."
        ),
    ] = "keep",
    markup: Annotated[
        bool,
        typer.Option(
            "--markup", help="Carry tags (<b>..</b>), placeholders ({name}, %s) and addresses through, each once."
        ),
    ] = False,
    glossary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.tsv", help="Terms to use: source term, TAB, its translation (or several: a|b) in each line."
        ),
    ] = None,
    attention: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Write a page that draws where the model looks, for the first 50 outputs."
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")] = "auto",
    gpus: Annotated[
        int | None,
        typer.Option(
            min=1, help="GPUs of this machine to divide the lines over; with --device cpu, processes. Default: one."
        ),
    ] = None,
    precision: Annotated[
        Literal["auto", "bf16", "fp32"], typer.Option(help="auto takes bf16 where the device is fast at it.")
    ] = "auto",
    engine: Annotated[
        Literal["torch", "ctranslate2"],
        typer.Option(help="What searches; ctranslate2 needs that package, and what `aiayn export` writes."),
    ] = "torch",
    int8: Annotated[
        bool, typer.Option("--int8", help="Multiply by 8-bit weights: faster on a CPU, a little less exact.")
    ] = False,
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
    without -o the translations are part of the JSON object; with --format jsonl too, as that format has them.
    Where an error ends the work, "stopped" in it says why, and all before it is there.
    """
    start_logs(quiet, verbose)
    if score_against is not None:
        _refuse_others(context)
    with loading():  # here, because it imports torch
        from aiayn_cli.translate.run import run_score_against, run_translate

    if str(output) == "-":
        output = None
    if score_against is not None:
        scored = run_score_against(
            score_against,
            model or (),
            source=source,
            output=output,
            batch_tokens=batch_tokens,
            line_format=line_format,
            input_format=input_format,
            device=device,
            precision=precision,
            keep_scores=as_json and output is None,
            take_unfinished=_print_json if as_json else None,
        )
        logs.notice(scored.summary())
        if as_json:
            _print_json(scored)
        _fail_on_broken(scored.broken_records)
        return
    result = run_translate(
        model or (),
        source=source,
        output=output,
        beam_size=beam,
        alpha=alpha,
        max_extra=max_extra,
        max_length=max_length,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
        batch_tokens=batch_tokens,
        tree_rules=tree_rules,
        n_best=nbest,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        prefix=prefix,
        line_format=line_format,
        input_format=input_format,
        with_scores=scores,
        with_alignments=alignments,
        report=report,
        on_suspect=on_suspect,
        markup=markup,
        glossary=glossary,
        attention=attention,
        device=device,
        gpus=gpus,
        precision=precision,
        engine=engine,
        int8=int8,
        keep_translations=as_json and output is None,
        take_unfinished=_print_json if as_json else None,
    )
    logs.notice(result.summary())
    if as_json:
        _print_json(result)
    _fail_on_broken(result.broken_records)


def _print_json(result: object) -> None:
    print_result(result, as_json=True)


def _fail_on_broken(records: int) -> None:
    """End with an exit code above 0 where records were no JSON as it should be; all others are done."""
    if records:
        raise DataError(
            f"{records:,} records of the input could not be read",
            "all others are done; the output of each broken one says what is wrong with it",
        )


def _refuse_others(context: typer.Context) -> None:
    """Refuse options that --score-against would not obey."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name not in _OF_SCORE_AGAINST and source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{option.opts[0]} is about translating, and --score-against translates nothing",
                "leave one of them away",
            )
