"""`aiayn translate`."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

from typer import Argument, Context, Option

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, start_logs
from aiayn_cli.config import DecodingConfig, Precision
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.translate.options import (
    DecodingOverrides,
    Engine,
    EngineOptions,
    FormatName,
    OnSuspect,
    OutputOptions,
    OutputStyle,
    SearchOptions,
    TextOptions,
    TranslateOptions,
    make_sampling,
)

_DEFAULTS = DecodingConfig()
_WITH_SCORE_AGAINST = {
    "model", "lines", "source", "output", "score_against", "line_format", "input_format", "device", "precision",
    "batch_tokens", "quiet", "verbose", "as_json",
}  # fmt: skip


class TranslateCommand(HelpCommand):
    groups: ClassVar = {
        "Model": "--model --engine --int8",
        "Input and output": "--input --output --format --input-format --prefix --scores --alignments --nbest",
        "Search": "--beam --alpha --max-extra --max-length --min-length --no-repeat-ngram --tree-rules",
        "Sampling": "--sample --temperature --top-k --top-p --seed",
        "Terms and markup": "--glossary --markup",
        "Trust": "--report --on-suspect --attention --score-against",
        "Performance": "--device --gpus --precision --batch-tokens",
    }
    examples = """
        aiayn translate "Hello world."
        aiayn translate --model runs/mine --nbest 4 --scores < in > out
        aiayn translate --report report.jsonl --on-suspect retry -i in -o out
    """


def translate(
    context: Context,
    lines: Annotated[
        list[str] | None,
        Argument(metavar="TEXT", help="Text to translate instead of a file or a pipe; each one is a line."),
    ] = None,
    model: Annotated[
        list[Path] | None,
        Option(
            "--model",
            "-m",
            metavar="DIR",
            help="Checkpoint or run to translate with; give it several times for an ensemble. "
            "Default: the newest run in runs/, averaged if it has been.",
        ),
    ] = None,
    source: Annotated[
        str, Option("--input", "-i", metavar="FILE", help="Text to translate, a line each; - is stdin.")
    ] = TextOptions.source,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="Where to write; the file appears when done; - is stdout."),
    ] = None,
    beam: Annotated[
        int | None,
        Option(min=1, help=f"Hypotheses kept for each line; 1 is greedy. Default: the model's, {_DEFAULTS.beam_size}."),
    ] = None,
    alpha: Annotated[
        float | None,
        Option(
            min=0.0,
            help="Length penalty ((5 + n) / 6) ** alpha, n tokens; --engine ctranslate2 searches with n ** alpha. "
            f"Default: the model's, {_DEFAULTS.alpha}.",
        ),
    ] = None,
    max_extra: Annotated[
        int | None,
        Option(min=1, help=f"Longest output, in tokens beyond the input. Default: the model's, {_DEFAULTS.max_extra}."),
    ] = None,
    max_length: Annotated[
        int | None, Option(min=1, help="Longest output in tokens, whatever the input. Default: no such limit.")
    ] = None,
    min_length: Annotated[int, Option(min=0, help="Shortest output in tokens.")] = SearchOptions.min_length,
    no_repeat_ngram: Annotated[
        int, Option(min=0, metavar="N", help="No N tokens in a row occur twice in an output; 0 = no rule.")
    ] = SearchOptions.no_repeat_ngram,
    tree_rules: Annotated[
        bool | None,
        Option(
            "--tree-rules/--no-tree-rules",
            help="Let a parser write only trees over the words of its line: a tag for each, all brackets closed. "
            "Default: the model's, which is --tree-rules.",
        ),
    ] = None,
    nbest: Annotated[
        int, Option(min=1, help="Outputs for each line, best first, one below the other.")
    ] = SearchOptions.n_best,
    sample: Annotated[
        bool, Option("--sample", help="Draw outputs at random, --nbest of them, instead of searching.")
    ] = False,
    temperature: Annotated[
        float | None, Option(help="With --sample: below 1 makes likely tokens likelier. Default: 1.")
    ] = None,
    top_k: Annotated[
        int | None, Option(min=1, help="With --sample: draw among the K likeliest tokens. Default: all.")
    ] = None,
    top_p: Annotated[
        float | None,
        Option(help="With --sample: draw among the likeliest tokens of this joint probability. Default: 1."),
    ] = None,
    seed: Annotated[
        int | None, Option(min=0, help="With --sample: another seed gives other outputs. Default: 0.")
    ] = None,
    prefix: Annotated[
        Path | None, Option(metavar="FILE", help="How each output begins, one line each; an empty line leaves it free.")
    ] = None,
    line_format: Annotated[
        FormatName, Option("--format", help='jsonl reads and writes one object a line: {"id", "text", "prefix"} in.')
    ] = OutputStyle.format,
    input_format: Annotated[FormatName | None, Option(help="Format of the input alone. Default: as --format.")] = None,
    scores: Annotated[
        bool,
        Option(
            "--scores", help="Write log p / length penalty and a TAB before each output; in jsonl, log p of each token."
        ),
    ] = False,
    alignments: Annotated[
        bool, Option("--alignments", help="Write a TAB and source-target pairs of words (0-0 1-2) after each.")
    ] = False,
    score_against: Annotated[
        Path | None,
        Option(metavar="FILE", help="Do not translate: write log p and the perplexity of the translations in FILE."),
    ] = None,
    report: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write a JSON object a line: score, length ratio, and what looks wrong."),
    ] = None,
    on_suspect: Annotated[
        OnSuspect,
        Option(help="Translations that look wrong: keep, search again, write an empty line or the source, or stop."),
    ] = OutputOptions.on_suspect,
    markup: Annotated[
        bool, Option("--markup", help="Keep tags (<b>..</b>), placeholders ({name}, %s) and addresses, each once.")
    ] = False,
    glossary: Annotated[
        Path | None,
        Option(metavar="FILE.tsv", help="Terms to use: source term, TAB, its translation (or several: a|b)."),
    ] = None,
    attention: Annotated[
        Path | None,
        Option(metavar="FILE.html", help="Write a page of where the model looks, for the first 50 outputs."),
    ] = None,
    device: Annotated[str, Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")] = EngineOptions.device,
    gpus: Annotated[
        int | None, Option(min=1, help="GPUs that share the lines; with --device cpu, processes. Default: one.")
    ] = None,
    precision: Annotated[
        Precision, Option(help="auto takes bf16 where the device is fast at it.")
    ] = EngineOptions.precision,
    engine: Annotated[
        Engine, Option(help="What searches; ctranslate2 needs that package, and a model that `aiayn export` wrote.")
    ] = EngineOptions.engine,
    int8: Annotated[
        bool, Option("--int8", help="Multiply by 8-bit weights: faster on a CPU, a little less exact.")
    ] = False,
    batch_tokens: Annotated[
        int | None,
        Option(
            min=1,
            help="Source tokens translated together, padding included. "
            f"Default: the model's, {_DEFAULTS.batch_tokens}.",
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Translate text: one line in, one line out, in order; a blank line stays blank.

    A terminal or a slow pipe gets each answer as soon as its line arrives; a file is translated in full batches.
    --json without -o puts the translations into the JSON object; if an error stops the work, "stopped" says why.
    """
    start_logs(quiet, verbose)
    if score_against is not None:
        _refuse_with_score_against(context)
    path = None if str(output) == "-" else output
    options = TranslateOptions(
        search=SearchOptions(
            n_best=nbest, min_length=min_length, max_length=max_length or 0, no_repeat_ngram=no_repeat_ngram,
            sampling=make_sampling(sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
        ),
        decoding=DecodingOverrides(
            beam_size=beam, alpha=alpha, max_extra=max_extra, batch_tokens=batch_tokens, tree_rules=tree_rules
        ),
        engine=EngineOptions(
            models=tuple(model or ()), device=device, gpus=gpus, precision=precision, engine=engine, int8=int8
        ),
        text=TextOptions(
            source=source, lines=tuple(lines or ()), format=input_format or line_format, prefix=prefix,
            markup=markup, glossary=glossary,
        ),
        output=OutputOptions(
            path=path, style=OutputStyle(format=line_format, scores=scores, alignments=alignments),
            report=report, on_suspect=on_suspect, attention=attention, keep=as_json and path is None,
        ),
    )  # fmt: skip
    with loading():  # here, because it imports torch
        from aiayn_cli.translate.session import run_score_against, run_translate

    take_unfinished = partial(print_result, as_json=True) if as_json else None
    result = (
        run_translate(options, take_unfinished)
        if score_against is None
        else run_score_against(score_against, options, take_unfinished)
    )
    logs.notice(result.summary())
    if score_against is None and sys.stderr.isatty() and not sys.stdin.isatty():
        logs.next_step("aiayn score REFERENCE <", output or "TRANSLATIONS")
    if as_json:
        print_result(result, as_json=True)
    if result.unreadable_lines:
        raise DataError(
            f"{logs.counted(result.unreadable_lines, 'line')} of the input could not be read",
            "all others are done; the warnings above name the first ones",
        )


def _refuse_with_score_against(context: Context) -> None:
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name not in _WITH_SCORE_AGAINST and source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{option.opts[0]} is about translating, and --score-against translates nothing", "drop one of them"
            )
