"""`aiayn translate`."""

import re
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import Argument, Context, Option

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, start_logs
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.recipe_keys import DecodingConfig, Precision
from aiayn_cli.translate.options import (
    DecodingOverrides,
    Engine,
    EngineOptions,
    FormatName,
    OnSuspect,
    OutputOptions,
    OutputStyle,
    SearchOptions,
    Split,
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
        "Input and output": "--input --output --format --input-format --split --prefix --scores --alignments --nbest",
        "Search": "--beam --alpha --max-extra --max-length --min-length --no-repeat-ngram --tree-rules",
        "Sampling": "--sample --temperature --top-k --top-p --seed",
        "Terms and markup": "--glossary --markup",
        "Trust": "--report --on-suspect --attention --score-against",
        "Performance": "--device --gpus --precision --batch-tokens",
    }
    examples = """
        aiayn translate "Our young uncle is meeting a doctor in the house."
        aiayn translate --model runs/mine --nbest 4 --scores < in > out
        aiayn translate --report report.jsonl --on-suspect retry -i in -o out
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Refuse text that looks like an option: -5 degrees, or a dash before a sentence."""
        with_value = {name for each in self.params if not getattr(each, "is_flag", True) for name in each.opts}
        for before, word in pairwise(["", *args]):
            if word == "--":
                break
            if before not in with_value and re.match(r"-\d|-[^=]*\s", word):
                hint = f'for text, put -- before it: aiayn translate -- "{word}"'
                raise UsageError(f"{word} starts with a dash, like an option", hint)
        return super().parse_args(ctx, args)


def translate(
    context: Context,
    lines: Annotated[
        list[str] | None, Argument(metavar="TEXT", help="Text to translate, instead of a file or a pipe.")
    ] = None,
    model: Annotated[
        list[Path] | None,
        Option("--model", "-m", metavar="DIR", help="Run or checkpoint; several: ensemble. Default: the newest run."),
    ] = None,
    source: Annotated[
        str, Option("--input", "-i", metavar="FILE", help="Text to translate, line by line; - is stdin.")
    ] = TextOptions.source,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", help="File, written at the very end. Default: stdout (-)."),
    ] = None,
    beam: Annotated[
        int | None, Option(min=1, help=f"Beam size; 1 is greedy. Default: the model's, {_DEFAULTS.beam_size}.")
    ] = None,
    alpha: Annotated[
        float | None,
        Option(
            min=0.0,
            help="Length penalty ((5 + n) / 6) ** alpha for n tokens; n ** alpha with --engine ctranslate2. "
            f"Default: the model's, {_DEFAULTS.alpha}.",
        ),
    ] = None,
    max_extra: Annotated[
        int | None, Option(min=1, help=f"Most tokens beyond the input. Default: the model's, {_DEFAULTS.max_extra}.")
    ] = None,
    max_length: Annotated[int | None, Option(min=1, help="Longest output in tokens. Default: no limit.")] = None,
    min_length: Annotated[int, Option(min=0, help="Shortest output in tokens.")] = SearchOptions.min_length,
    no_repeat_ngram: Annotated[
        int, Option(min=0, metavar="N", help="Never repeat N tokens in a row within an output; 0 = allow repeats.")
    ] = SearchOptions.no_repeat_ngram,
    tree_rules: Annotated[
        bool | None,
        Option(
            "--tree-rules/--no-tree-rules",
            help="For parsers: search only among complete trees over the words of the line. Default: the model's.",
        ),
    ] = None,
    split: Annotated[
        Split,
        Option(
            help="Where a line is cut: at sentences, by length (only what is too long for the model), or auto: "
            "at sentences for models trained on single ones."
        ),
    ] = TextOptions.split,
    nbest: Annotated[int, Option(min=1, help="Outputs for each line, best first.")] = SearchOptions.n_best,
    sample: Annotated[bool, Option("--sample", help="Draw --nbest outputs at random instead of searching.")] = False,
    temperature: Annotated[
        float | None, Option(help="With --sample: below 1 favours likely tokens. Default: 1.")
    ] = None,
    top_k: Annotated[
        int | None, Option(min=1, help="With --sample: draw from the N most likely tokens. Default: all.")
    ] = None,
    top_p: Annotated[
        float | None, Option(help="With --sample: draw from the top tokens that add up to X. Default: 1.")
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="With --sample: seed of the random numbers. Default: 0.")] = None,
    prefix: Annotated[
        Path | None, Option(metavar="FILE", help="Forced beginning of each output, line by line; empty lines set none.")
    ] = None,
    line_format: Annotated[
        FormatName, Option("--format", help='jsonl reads and writes one object a line: {"id", "text", "prefix"} in.')
    ] = OutputStyle.format,
    input_format: Annotated[FormatName | None, Option(help="Format of the input alone. Default: as --format.")] = None,
    scores: Annotated[
        bool, Option("--scores", help="Write log p / length penalty and a TAB before each output; jsonl: token log p.")
    ] = False,
    alignments: Annotated[
        bool, Option("--alignments", help="Write a TAB and aligned words, source-target (0-0 1-2), after each output.")
    ] = False,
    score_against: Annotated[
        Path | None, Option(metavar="FILE", help="Do not translate: write log p and perplexity of the lines in FILE.")
    ] = None,
    report: Annotated[
        Path | None, Option(metavar="FILE", help="Write a JSON object for each line: score, and what looks wrong.")
    ] = None,
    on_suspect: Annotated[
        OnSuspect, Option(help="If an output looks wrong: keep it, search again, write nothing or the source, or stop.")
    ] = OutputOptions.on_suspect,
    markup: Annotated[
        bool, Option("--markup", help="Keep tags (<b>..</b>), placeholders ({name}, %s) and addresses intact.")
    ] = False,
    glossary: Annotated[
        Path | None, Option(metavar="FILE.tsv", help="Terms to use: source, TAB, translation (or several: a|b).")
    ] = None,
    attention: Annotated[
        Path | None, Option(metavar="FILE.html", help="Write a page that shows attention for the first 50 outputs.")
    ] = None,
    device: Annotated[str, Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")] = EngineOptions.device,
    gpus: Annotated[
        int | None, Option(min=1, help="GPUs to share the lines, or processes with --device cpu. Default: 1.")
    ] = None,
    precision: Annotated[
        Precision, Option(help="auto is bf16 where the device is fast at it.")
    ] = EngineOptions.precision,
    engine: Annotated[
        Engine, Option(help="ctranslate2 needs that package, and `aiayn export` first.")
    ] = EngineOptions.engine,
    int8: Annotated[bool, Option("--int8", help="8-bit weights: faster on a CPU, slightly less exact.")] = False,
    batch_tokens: Annotated[
        int | None,
        Option(min=1, help=f"Padded source tokens in a batch. Default: the model's, {_DEFAULTS.batch_tokens}."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Translate text: one line in, one line out, in order; blank lines stay blank.

    A terminal or a slow pipe gets each answer as soon as its line arrives; files are translated in full batches.
    --json without -o puts the translations into the JSON object; after an error, "stopped" says why.
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
            markup=markup, glossary=glossary, split=split,
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
    logs.notice(result.summary() if result.lines else "the input is empty")
    if score_against is None and sys.stderr.isatty() and not sys.stdin.isatty():
        logs.next_step("aiayn score REFERENCE <", output or "TRANSLATIONS")
    if as_json:
        print_result(result, as_json=True)
    if result.unreadable_lines:
        raise DataError(
            f"{logs.counted(result.unreadable_lines, 'line')} of the input could not be read",
            "all others are translated; the warnings above name the first ones",
        )


def _refuse_with_score_against(context: Context) -> None:
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name not in _WITH_SCORE_AGAINST and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{option.opts[0]} has no effect with --score-against", "drop one of them")
