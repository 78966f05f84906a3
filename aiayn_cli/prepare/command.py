"""`aiayn prepare`."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from aiayn_cli.command_line import JsonOption, QuietOption, VerboseOption, loading, print_result, start_logs
from aiayn_cli.config import DataConfig, OnBadBytes
from aiayn_cli.corpora.corpus import CorpusList, ListedCorpus
from aiayn_cli.corpora.named_corpora import CORPORA, LIKE
from aiayn_cli.errors import UsageError

_DEFAULTS = DataConfig()

# Options of earlier versions: the setting that each became.
_RENAMED = {
    "--max-words": "max_words=N",
    "--drop-identical": "drop_identical=true",
    "--keep-identical": "drop_identical=false",
    "--drop-no-letters": "drop_no_letters=true",
    "--keep-no-letters": "drop_no_letters=false",
    "--drop-wrong-script": "drop_wrong_script=true",
    "--keep-wrong-script": "drop_wrong_script=false",
    "--drop-overlap": "drop_overlap=true",
    "--keep-overlap": "drop_overlap=false",
    "--drift-alarm": "drift_alarm=true",
    "--no-drift-alarm": "drift_alarm=false",
    "--case-copies": "case_copies=SHARE",
    "--normalise-punctuation": "normalise_punctuation=true",
    "--raw-punctuation": "normalise_punctuation=false",
    "--moses-tokenise": "moses_tokenise=true",
    "--no-moses-tokenise": "moses_tokenise=false",
    "--vocab-type": "vocab_type=bpe|unigram",
    "--separate-vocabs": "separate_vocabs=true",
    "--joint-vocab": "separate_vocabs=false",
    "--byte-fallback": "byte_fallback=true",
    "--no-byte-fallback": "byte_fallback=false",
    "--tree-tags": "tree_tags=true",
    "--no-tree-tags": "tree_tags=false",
    "--tree-words": "tree_words=true",
    "--no-tree-words": "tree_words=false",
    "--tree-functions": "tree_functions=true",
    "--no-tree-functions": "tree_functions=false",
}


class PrepareCommand(TyperCommand):
    """`--train A.en A.de`, repeatable: Typer has options with two values and options that repeat, but not both."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in ("--valid", "--test"):  # Typer would take the last pair and forget the others
            if sum(arg == option or arg.startswith(f"{option}=") for arg in args) > 1:
                raise UsageError(f"{option} is given more than once", "join the files first")
        for option in (arg.partition("=")[0] for arg in args):
            if option in _RENAMED:
                raise UsageError(f"{option} is gone", f"write --set data.{_RENAMED[option]}")
            if option == "--bpe-dropout":
                raise UsageError(f"{option} is gone: prepare no longer splits words at random", "remove it")
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
        typer.Argument(
            help="A named corpus (--list), either direction; several joined by +; or opus:CORPUS/VERSION for any "
            "corpus of OPUS. `demo` is built in and needs no network.",
            show_default=False,
        ),
    ] = None,
    list_corpora: Annotated[
        bool, typer.Option("--list", help="List the corpora that have a name, with sizes and licences.")
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            help="Take the corpora, sub-words, splits and limits of others: paper, t2t or fairseq; see --list.",
            metavar="|".join(LIKE),
        ),
    ] = None,
    train: Annotated[
        list[Path] | None,
        typer.Option(
            help="Training text: a file of source sentences and a file of their translations, one a line; repeatable.",
            metavar="SRC TGT",
        ),
    ] = None,
    tsv: Annotated[
        list[Path] | None,
        typer.Option(
            help="More training text: a file with both sides in columns between tabs; repeatable.", metavar="FILE"
        ),
    ] = None,
    tsv_columns: Annotated[
        tuple[int, int],
        typer.Option(help="Columns of the source and the target side in such files, from 1 on.", metavar="SRC TGT"),
    ] = (1, 2),
    tmx: Annotated[
        list[Path] | None,
        typer.Option(help="More training text: a translation memory in TMX; repeatable.", metavar="FILE"),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            help="Take the training pairs of this corpus, part of a corpus or file so many times; repeatable.",
            metavar="NAME=N",
        ),
    ] = None,
    valid: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Validation text, as for --train. Default: the corpus's, or else some pairs of the training text are "
            "held out.",
            metavar="SRC TGT",
        ),
    ] = None,
    test: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Test text, likewise, kept for scoring. Default: the corpus's.", metavar="SRC TGT"),
    ] = None,
    trees: Annotated[
        list[Path] | None,
        typer.Option(
            help="Train a parser: a treebank of bracketed trees, each on a line or over several; repeatable.",
            metavar="FILE",
        ),
    ] = None,
    valid_trees: Annotated[
        Path | None,
        typer.Option(help="Trees for validation. Default: some trees are held out.", metavar="FILE"),
    ] = None,
    test_trees: Annotated[
        Path | None, typer.Option(help="Trees for testing, kept for `aiayn score --brackets`.", metavar="FILE")
    ] = None,
    langs: Annotated[
        str | None,
        typer.Option(help="Languages, such as en-de: needed for files, and for OPUS.", metavar="SRC-TGT"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to make. Default: prepared/ and the corpus, the recipe's corpus, or the languages."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Take what is not given here from this recipe's data section.", metavar="NAME|FILE"),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set something else of the recipe's data section, such as data.max_words=100; repeatable. "
            "recipes/base.yaml lists all settings.",
            metavar="data.NAME=VALUE",
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            help="Sub-words in the joint vocabulary, special tokens included. "
            f"Default: the recipe's, the corpus's, or {_DEFAULTS.vocab_size}."
        ),
    ] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(
            help="Use this vocabulary: a vocab.model (and a vocab.tgt.model beside it), or a folder that holds it.",
            metavar="FILE",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            help=f"Drop a training pair with more sub-word tokens on a side. Default: {_DEFAULTS.max_length}."
        ),
    ] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option(
            help="Drop a training pair whose longer side has more tokens than this many times (the shorter side's "
            f"plus 5). Default: {_DEFAULTS.max_ratio}."
        ),
    ] = None,
    dedupe: Annotated[
        bool | None,
        typer.Option("--dedupe/--no-dedupe", help="Drop a training pair that came before. Default: yes."),
    ] = None,
    on_bad_bytes: Annotated[
        OnBadBytes | None,
        typer.Option(
            help="Where a line is not UTF-8: stop, or drop its pair. Default: drop in a named corpus, "
            f"{_DEFAULTS.on_bad_bytes} in files."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that work on text; they change nothing but the speed. Default: one a core, 16 at most."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=f"Seed of the held-out pairs and of `demo`. Default: {_DEFAULTS.seed}.")
    ] = None,
    from_folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Folder with archives that are at hand, under the names of their addresses; the rest is downloaded.",
            metavar="DIR",
        ),
    ] = None,
    downloads: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps what is downloaded, for the next time. Default: prepared/.downloads.", metavar="DIR"
        ),
    ] = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn text of two languages into training-ready data: cleaned, split into sub-words, memory-mapped."""
    start_logs(quiet, verbose)
    if list_corpora:
        print_result(CorpusList(tuple(map(ListedCorpus.of, CORPORA.values()))), as_json)
        return
    with loading():  # here, because it imports numpy and sentencepiece
        from aiayn_cli.prepare.pipeline import PrepareOptions, run_prepare

    given = {
        "vocab_size": vocab_size,
        "max_length": max_length,
        "max_ratio": max_ratio,
        "dedupe": dedupe,
        "on_bad_bytes": on_bad_bytes,
        "seed": seed,
    }
    options = PrepareOptions(
        corpus=corpus,
        like=like,
        train=_pair_up(train or []),
        tsv=tsv or [],
        tsv_columns=tsv_columns,
        tmx=tmx or [],
        weights=_read_weights(weight or []),
        valid=valid,
        test=test,
        trees=trees or [],
        valid_trees=valid_trees,
        test_trees=test_trees,
        langs=langs,
        out=out,
        recipe=recipe,
        settings={name: value for name, value in given.items() if value is not None},
        overrides=overrides or [],
        vocab=vocab,
        workers=workers,
        downloads=downloads,
        from_folder=from_folder,
    )
    print_result(run_prepare(options), as_json)


def _pair_up(files: list[Path]) -> list[tuple[Path, Path]]:
    if len(files) % 2:
        problem = f"--train needs files in pairs, but has {len(files)}: {', '.join(map(str, files))}"
        raise UsageError(problem, "give source and target file, such as --train train.en train.de")
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
