"""`aiayn prepare`."""

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import Argument, Option

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, start_logs
from aiayn_cli.corpora.corpus import CorpusList, ListedCorpus
from aiayn_cli.corpora.named_corpora import CORPORA, LIKE
from aiayn_cli.data.recipe_choice import choose_recipe
from aiayn_cli.errors import UsageError
from aiayn_cli.recipe_keys import DataConfig, OnBadBytes

_DEFAULTS = DataConfig()


class PrepareCommand(HelpCommand):
    """`--train A.en A.de`, repeatable: Typer has options with two values and options that repeat, but not both."""

    groups: ClassVar = {
        "Named corpora": "--list --like --from --downloads",
        "Text of your own": "--train --tsv --tsv-columns --tmx --valid --test --langs --weight",
        "Trees": "--trees --valid-trees --test-trees",
        "Cleaning, vocabulary": "--recipe --set --vocab-size --vocab --max-length --max-ratio --dedupe --on-bad-bytes",
        "Output": "--out --workers --seed",
    }
    positional: ClassVar = "for your own files: --train SRC TGT --langs en-de"
    examples = """
        aiayn prepare demo
        aiayn prepare wmt14-en-de
        aiayn prepare --train a.en a.de --valid v.en v.de --langs en-de --out prepared/mine
    """
    sections: ClassVar = {"data": DataConfig}
    instead: ClassVar = {
        "--corpus": "write the name alone: aiayn prepare VALUE",
        "--joint-vocab": "write --set data.separate_vocabs=false",
        "--raw-punctuation": "write --set data.normalise_punctuation=false",
        "--bpe-dropout": "remove it: prepare no longer splits words at random",
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in ("--valid", "--test"):  # Typer would take the last pair and forget the others
            if sum(arg == option or arg.startswith(f"{option}=") for arg in args) > 1:
                raise UsageError(f"{option} is given more than once", "join the files first")
        for option in ("--train", "--tsv", "--tmx", "--trees", "--set"):
            args = repeat_option(args, option)
        return super().parse_args(ctx, args)


def repeat_option(args: list[str], option: str) -> list[str]:
    """Put the option before each of the values that follow it: `--train a b` becomes `--train a --train b`."""
    repeated: list[str] = []
    following = False
    words = (word for arg in args for word in (arg.split("=", 1) if arg.startswith(f"{option}=") else [arg]))
    for arg in words:
        if arg.startswith("-") and arg != "-":
            following = arg == option
        elif following and repeated[-1] != option:
            following = option != "--set" or "=" in arg  # else it is the corpus
            repeated += [option] * following
        repeated.append(arg)
    return repeated


def prepare(
    corpus: Annotated[
        str | None,
        Argument(
            help="A named corpus (see --list) in either direction, several joined by +, or any of OPUS as "
            "opus:CORPUS/VERSION. `demo` is built in and needs no network.",
            show_default=False,
        ),
    ] = None,
    list_corpora: Annotated[bool, Option("--list", help="List the named corpora with sizes and licences.")] = False,
    like: Annotated[
        str | None, Option(help="Prepare the corpus as another toolkit does; see --list.", metavar="|".join(LIKE))
    ] = None,
    train: Annotated[
        list[Path] | None, Option(help="Training text, a sentence per line; repeatable.", metavar="SRC TGT")
    ] = None,
    tsv: Annotated[
        list[Path] | None,
        Option(help="Training text: both sides in tab-separated columns; repeatable.", metavar="FILE"),
    ] = None,
    tsv_columns: Annotated[
        tuple[int, int], Option(help="Columns of source and target for --tsv, from 1 on.", metavar="SRC TGT")
    ] = (1, 2),
    tmx: Annotated[
        list[Path] | None, Option(help="Training text: a translation memory in TMX; repeatable.", metavar="FILE")
    ] = None,
    weight: Annotated[
        list[str] | None,
        Option(help="Take the pairs of this corpus, part or file N times; repeatable.", metavar="NAME=N"),
    ] = None,
    valid: Annotated[
        tuple[Path, Path] | None,
        Option(help="Validation text. Default: the corpus's, else held-out pairs.", metavar="SRC TGT"),
    ] = None,
    test: Annotated[
        tuple[Path, Path] | None, Option(help="Test text for `aiayn score`. Default: the corpus's.", metavar="SRC TGT")
    ] = None,
    trees: Annotated[
        list[Path] | None, Option(help="Training trees for a parser, in brackets; repeatable.", metavar="FILE")
    ] = None,
    valid_trees: Annotated[
        Path | None, Option(help="Trees for validation. Default: held-out trees.", metavar="FILE")
    ] = None,
    test_trees: Annotated[Path | None, Option(help="Test trees for `aiayn score --brackets`.", metavar="FILE")] = None,
    langs: Annotated[
        str | None, Option(help="Languages, such as en-de; required for files and OPUS.", metavar="SRC-TGT")
    ] = None,
    out: Annotated[
        Path | None, Option(help="Folder to create. Default: prepared/CORPUS, or prepared/SRC-TGT for files.")
    ] = None,
    recipe: Annotated[
        str | None, Option(help="Take settings that are not given from this recipe.", metavar="NAME|FILE")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        Option(
            "--set",
            help="Change a setting, such as data.max_words=100; repeatable. recipes/base.yaml lists all.",
            metavar="data.NAME=VALUE",
        ),
    ] = None,
    vocab_size: Annotated[
        int | None, Option(help="Sub-words. Default: the recipe's or corpus's, else what suits the number of pairs.")
    ] = None,
    vocab: Annotated[
        Path | None, Option(help="Use an existing vocabulary: vocab.model, or a folder with it.", metavar="FILE")
    ] = None,
    max_length: Annotated[
        int | None, Option(help=f"Drop training pairs with more sub-words on a side. Default: {_DEFAULTS.max_length}.")
    ] = None,
    max_ratio: Annotated[
        float | None,
        Option(
            help="Drop training pairs whose longer side has more sub-words than X times (the shorter side's + 5). "
            f"Default: {_DEFAULTS.max_ratio}."
        ),
    ] = None,
    dedupe: Annotated[
        bool | None, Option("--dedupe/--no-dedupe", help="Drop repeated training pairs. Default: yes.")
    ] = None,
    on_bad_bytes: Annotated[
        OnBadBytes | None,
        Option(
            help="If a line is not UTF-8: stop, or drop its pair. Default: drop for named corpora, "
            f"{_DEFAULTS.on_bad_bytes} for files."
        ),
    ] = None,
    workers: Annotated[
        int | None, Option(help="Processes for text; the result stays the same. Default: one per core, up to 16.")
    ] = None,
    seed: Annotated[
        int | None, Option(help=f"Seed of held-out pairs and of `demo`. Default: {_DEFAULTS.seed}.")
    ] = None,
    from_folder: Annotated[
        Path | None, Option("--from", help="Folder with archives, named as in their URLs.", metavar="DIR")
    ] = None,
    downloads: Annotated[
        Path | None, Option(help="Folder where downloads are kept. Default: prepared/.downloads.", metavar="DIR")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Turn parallel text into training data: cleaned, split into sub-words, memory-mapped."""
    start_logs(quiet, verbose)
    if list_corpora:
        print_result(CorpusList(tuple(map(ListedCorpus.of, CORPORA.values()))), as_json)
        return
    with loading():  # here, because it imports numpy and sentencepiece
        from aiayn_cli.prepare.pipeline import PrepareOptions, run_prepare

    given: dict[str, Any] = {"vocab_size": vocab_size, "max_length": max_length, "max_ratio": max_ratio}
    given |= {"dedupe": dedupe, "on_bad_bytes": on_bad_bytes, "seed": seed}
    options = PrepareOptions(
        corpus=corpus, like=like, langs=langs, weights=_read_weights(weight or []),
        train=_pair_up(train or []), tsv=tsv or [], tsv_columns=tsv_columns, tmx=tmx or [], valid=valid, test=test,
        trees=trees or [], valid_trees=valid_trees, test_trees=test_trees,
        recipe=recipe, settings={name: value for name, value in given.items() if value is not None},
        overrides=overrides or [], vocab=vocab,
        out=out, workers=workers, downloads=downloads, from_folder=from_folder,
    )  # fmt: skip
    result = run_prepare(options)
    print_result(result, as_json)
    has_gpu = Path("/dev/nvidia0").exists()  # torch knows better, but prepare does without it
    choice = choose_recipe(result.pairs_kept, corpus=corpus or "", trees=bool(trees), has_gpu=has_gpu)
    logs.notice(f"recipe: {choice.name} ({choice.reason})")
    logs.next_step("aiayn train --data", result.out)


def _pair_up(files: list[Path]) -> list[tuple[Path, Path]]:
    if len(files) % 2:
        problem = f"--train needs files in pairs, but has {len(files)}: {', '.join(map(str, files))}"
        raise UsageError(problem, "give a source and a target file: --train train.en train.de")
    return list(zip(files[::2], files[1::2], strict=True))


def _read_weights(given: list[str]) -> dict[str, int]:
    weights = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if not name or not re.fullmatch("0*[1-9][0-9]{0,3}", number):
            problem = f"--weight is {text!r}, but must be a name and a whole number from 1 to 9999"
            raise UsageError(problem, "write it like news-commentary-v9=3, or mine.en=2")
        weights[name] = int(number)
    return weights
