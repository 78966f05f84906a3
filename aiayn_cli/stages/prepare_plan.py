"""From what the user asked of `prepare` to what is to be done."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aiayn_cli.config import DataConfig
from aiayn_cli.data.corpora import find_corpus, parse_langs
from aiayn_cli.data.encoding import available_cores
from aiayn_cli.data.prepared import PREPARED_FOLDER, VOCAB
from aiayn_cli.data.sources import DemoSource, FileSource, PairOfFiles, Source
from aiayn_cli.data.vocab import Vocab
from aiayn_cli.errors import ConfigError, UsageError
from aiayn_cli.recipe import load_recipe


@dataclass(frozen=True)
class PreparePlan:
    """What one call is to do, after all choices were made.

    Attributes:
        out: folder to make.
        corpus: its name; None for files.
        src_lang: code of the source language.
        tgt_lang: code of the target language.
        source: where the pairs come from.
        config: how they are treated.
        vocab: a vocabulary's file to use; None makes a new one.
        vocab_sha256: of that file; empty without one.
        workers: processes that encode text.
    """

    out: Path
    corpus: str | None
    src_lang: str
    tgt_lang: str
    source: Source
    config: DataConfig
    vocab: Path | None
    vocab_sha256: str
    workers: int

    def settings(self) -> dict[str, Any]:
        """Everything but the text that the result depends on, for the manifest."""
        values = asdict(self.config)
        del values["corpus"]
        if self.vocab:
            del values["vocab_size"]
            values["vocab_sha256"] = self.vocab_sha256
        return values


def make_plan(
    *,
    corpus: str | None,
    files: Mapping[str, Sequence[PairOfFiles]],
    langs: str | None,
    out: Path | None,
    recipe: str | None,
    settings: Mapping[str, Any],
    vocab: Path | None,
    workers: int | None,
) -> PreparePlan:
    """Choose what the user left open, and refuse what does not go together; see `run_prepare` for the arguments.

    Raises:
        AiaynError: what the user can fix.
    """
    _refuse_contradictions(corpus, files, langs, settings, vocab, workers)
    base = load_recipe(recipe).data if recipe else None
    if corpus is None and not files["train"]:
        if base is None:
            raise UsageError("nothing to prepare", "name a corpus (see `aiayn prepare --list`), or give --train")
        corpus = base.corpus
    if corpus is not None:
        known = find_corpus(corpus)
        base = base or replace(DataConfig(), vocab_size=known.vocab_size)
        config = _change(base, {"corpus": corpus, **settings})
        src_lang, tgt_lang = known.src_lang, known.tgt_lang
        source: Source = DemoSource(config.seed)
        name = corpus
    else:
        if langs is None:
            raise UsageError("--train without --langs", "say which languages these are, such as --langs en-de")
        src_lang, tgt_lang = parse_langs(langs)
        config = _change(base or DataConfig(), settings)
        given = {split: pairs for split, pairs in files.items() if pairs}
        source = FileSource(given, drop_bad_bytes=config.on_bad_bytes == "drop")
        name = config.corpus if recipe else f"{src_lang}-{tgt_lang}"
    if vocab is not None and vocab.is_dir():
        vocab = vocab / VOCAB
    return PreparePlan(
        out=out or PREPARED_FOLDER / name,
        corpus=corpus,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        source=source,
        config=config,
        vocab=vocab,
        vocab_sha256=Vocab.load(vocab).sha256 if vocab else "",
        workers=workers or available_cores(),
    )


def _refuse_contradictions(
    corpus: str | None,
    files: Mapping[str, Sequence[PairOfFiles]],
    langs: str | None,
    settings: Mapping[str, Any],
    vocab: Path | None,
    workers: int | None,
) -> None:
    of_files = {"--train": files["train"], "--valid": files["valid"], "--test": files["test"], "--langs": langs}
    given = [option for option, value in of_files.items() if value]
    if corpus is not None and given:
        raise UsageError(f"corpus {corpus} and {given[0]} together", "name a corpus, or give files: not both")
    if given and not files["train"]:
        raise UsageError(f"{given[0]} without --train", "give the training text too")
    if vocab is not None and "vocab_size" in settings:
        raise UsageError("--vocab and --vocab-size together", "a vocabulary that exists has its size: give one of them")
    if workers is not None and workers < 1:
        raise UsageError(f"--workers is {workers}, but must be at least 1", "leave it out to use all cores")


def _change(config: DataConfig, settings: Mapping[str, Any]) -> DataConfig:
    try:
        return replace(config, **settings)
    except ConfigError as error:  # the user typed an option, and knows nothing of a recipe's key
        option = "--" + error.key.removeprefix("data.").replace("_", "-")
        raise UsageError(error.problem.replace(error.key, option), error.hint) from error
