"""`aiayn prepare`."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from aiayn_cli.command_line import JsonOption, QuietOption, VerboseOption, loading, print_result, start_logs
from aiayn_cli.config import DataConfig, OnBadBytes, VocabType
from aiayn_cli.corpora.listing import CorpusList
from aiayn_cli.corpora.names import LIKE
from aiayn_cli.corpora.table import CORPORA
from aiayn_cli.errors import UsageError

_DEFAULTS = DataConfig()


class PrepareCommand(TyperCommand):
    """`--train A.en A.de`, repeatable: Typer has options with two values and options that repeat, but not both."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line."""
        for option in ("--valid", "--test"):  # Typer would take the last pair and forget the others
            if sum(arg == option or arg.startswith(f"{option}=") for arg in args) > 1:
                raise UsageError(f"{option} is given more than once", "join the files first")
        for option in ("--train", "--tsv", "--tmx", "--trees"):
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
            repeated.append(option)
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
    tree_tags: Annotated[
        bool | None,
        typer.Option(
            "--tree-tags/--no-tree-tags", help="Let the parser write the part of speech of each word. Default: yes."
        ),
    ] = None,
    tree_words: Annotated[
        bool | None,
        typer.Option(
            "--tree-words/--no-tree-words", help="Let the parser write the words, which it is given. Default: no."
        ),
    ] = None,
    tree_functions: Annotated[
        bool | None,
        typer.Option(
            "--tree-functions/--no-tree-functions",
            help="Keep what follows the category in labels, such as -SBJ in NP-SBJ. Default: no.",
        ),
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
    max_words: Annotated[
        int | None,
        typer.Option(
            help="Drop a training pair with more words between blanks on a side; 0 drops none. "
            f"Default: {_DEFAULTS.max_words}."
        ),
    ] = None,
    drop_identical: Annotated[
        bool | None,
        typer.Option(
            "--drop-identical/--keep-identical",
            help="Drop a training pair whose sides are the same text. Default: drop.",
        ),
    ] = None,
    drop_no_letters: Annotated[
        bool | None,
        typer.Option(
            "--drop-no-letters/--keep-no-letters",
            help="Drop a training pair with a side that has no letter. Default: drop.",
        ),
    ] = None,
    drop_wrong_script: Annotated[
        bool | None,
        typer.Option(
            "--drop-wrong-script/--keep-wrong-script",
            help="Drop a training pair with a side most of whose letters are of a script that its language is not "
            "written in. Default: drop.",
        ),
    ] = None,
    drop_overlap: Annotated[
        bool | None,
        typer.Option(
            "--drop-overlap/--keep-overlap",
            help="Drop a training pair of which a side is a line of the validation or test text. Default: drop.",
        ),
    ] = None,
    drift_alarm: Annotated[
        bool | None,
        typer.Option(
            "--drift-alarm/--no-drift-alarm",
            help="Stop where one of two files has lost or gained lines against the other. Default: yes.",
        ),
    ] = None,
    case_copies: Annotated[
        float | None,
        typer.Option(
            help="Share of the training pairs of which a copy is added, half in upper case and half in title case. "
            f"Default: {_DEFAULTS.case_copies}; 0 for `demo`."
        ),
    ] = None,
    normalise_punctuation: Annotated[
        bool | None,
        typer.Option(
            "--normalise-punctuation/--raw-punctuation",
            help="Normalise quotation marks, dashes and the like as Moses does; `translate` will do it too. "
            "Default: raw.",
        ),
    ] = None,
    moses_tokenise: Annotated[
        bool | None,
        typer.Option(
            "--moses-tokenise/--no-moses-tokenise",
            help="Put blanks around punctuation as Moses does; `translate` will do it too, and undo it. Default: no.",
        ),
    ] = None,
    vocab_type: Annotated[
        VocabType | None,
        typer.Option(help=f"Byte-pair encoding, or a unigram language model. Default: {_DEFAULTS.vocab_type}."),
    ] = None,
    bpe_dropout: Annotated[
        float | None,
        typer.Option(
            help="Split the words of the training text at random, leaving out each merge with this probability; pairs "
            f"with a --weight are split anew each time. Default: {_DEFAULTS.bpe_dropout}, usual is 0.1."
        ),
    ] = None,
    separate_vocabs: Annotated[
        bool | None,
        typer.Option(
            "--separate-vocabs/--joint-vocab",
            help="One vocabulary for each side, of --vocab-size each: for languages that share few words. A model then "
            "needs share_embeddings decoder or none. Default: joint.",
        ),
    ] = None,
    byte_fallback: Annotated[
        bool | None,
        typer.Option(
            "--byte-fallback/--no-byte-fallback",
            help="Write characters outside the vocabulary as bytes, which takes 256 sub-words. Default: no.",
        ),
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
        print_result(CorpusList.of(CORPORA.values()), as_json)
        return
    with loading():  # here, because it imports numpy and sentencepiece
        from aiayn_cli.prepare.session import run_prepare

    given = {
        "vocab_size": vocab_size,
        "max_length": max_length,
        "max_ratio": max_ratio,
        "dedupe": dedupe,
        "max_words": max_words,
        "drop_identical": drop_identical,
        "drop_no_letters": drop_no_letters,
        "drop_wrong_script": drop_wrong_script,
        "drop_overlap": drop_overlap,
        "drift_alarm": drift_alarm,
        "case_copies": case_copies,
        "normalise_punctuation": normalise_punctuation,
        "moses_tokenise": moses_tokenise,
        "tree_tags": tree_tags,
        "tree_words": tree_words,
        "tree_functions": tree_functions,
        "vocab_type": vocab_type,
        "bpe_dropout": bpe_dropout,
        "separate_vocabs": separate_vocabs,
        "byte_fallback": byte_fallback,
        "on_bad_bytes": on_bad_bytes,
        "seed": seed,
    }
    result = run_prepare(
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
        vocab=vocab,
        workers=workers,
        downloads=downloads,
        from_folder=from_folder,
    )
    print_result(result, as_json)


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
