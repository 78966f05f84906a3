"""From what the user asks of `prepare` to a plan without open choices."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aiayn_cli.config import DataConfig
from aiayn_cli.corpora.corpus import Corpus
from aiayn_cli.corpora.download import DOWNLOADS_FOLDER, Downloads
from aiayn_cli.corpora.named_corpora import OPUS, find_corpus, parse_langs
from aiayn_cli.data.prepared import PREPARED_FOLDER
from aiayn_cli.errors import ConfigError, UsageError
from aiayn_cli.prepare.encoding import make_processor
from aiayn_cli.prepare.options import PrepareOptions, option_of
from aiayn_cli.prepare.sources import PairSource, make_source
from aiayn_cli.processes import default_workers
from aiayn_cli.recipe import load_recipe, read_overrides
from aiayn_cli.text.codec import VOCAB, joint_sha256, load_vocabs
from aiayn_cli.text.vocab import Vocab

# What suits trees, where no recipe for trees says something else: nothing of a treebank is left out, a tree is three
# times as long as its sentence, and words and brackets have vocabularies of their own.
_FOR_TREES: dict[str, Any] = {
    "trees": True, "separate_vocabs": True, "max_length": 1_000, "max_ratio": 1_000.0, "max_words": 0, "dedupe": False,
    "drop_identical": False, "drop_no_letters": False, "drop_wrong_script": False, "drop_overlap": False,
    "case_copies": 0.0,
}  # fmt: skip
_OF_TREES = ("trees", "tree_tags", "tree_words", "tree_functions")
_LANGS_OF_TREES = "words-trees"

_OF_A_NEW_VOCAB = ("vocab_size", "vocab_type", "byte_fallback", "separate_vocabs")


@dataclass(frozen=True)
class PreparePlan:
    """What one call does, all choices made.

    Attributes:
        out: folder to make.
        corpus: its name; None for files.
        src_lang: code of the source language.
        tgt_lang: code of the target language.
        source: where the pairs come from.
        config: how they are treated.
        vocab: a vocabulary's file to use; if it is a vocab.model with a vocab.tgt.model beside it, that is for the
            target side. None makes a new one.
        vocab_sha256: of that file, or of both hashes; empty without one.
        workers: processes that encode text.
    """

    out: Path
    corpus: str | None
    src_lang: str
    tgt_lang: str
    source: PairSource
    config: DataConfig
    vocab: Path | None
    vocab_sha256: str
    workers: int

    def settings(self) -> dict[str, Any]:
        """Everything but the text that the result depends on, for the manifest."""
        values = asdict(self.config)
        del values["corpus"]
        if not self.config.trees:
            for name in _OF_TREES:
                del values[name]
        if self.vocab:
            for name in _OF_A_NEW_VOCAB:
                del values[name]
            values["vocab_sha256"] = self.vocab_sha256
        return values


def make_plan(options: PrepareOptions) -> PreparePlan:
    """Choose what the user left open, and refuse what does not go together.

    Raises:
        AiaynError: what the user can fix.
    """
    options = replace(options, settings={**read_overrides("data", options.overrides), **options.settings})
    corpus, settings = options.corpus, options.settings
    base, langs = load_recipe(options.recipe).data if options.recipe else None, options.langs
    if options.given_trees() or (base is not None and base.trees):
        base, langs = _plan_trees(options, base)
    if corpus is None and not options.has_train():
        if options.given_files() or (langs is not None and base is None):
            raise UsageError(f"{(*options.given_files(), '--langs')[0]} without --train", "give the training text too")
        if base is None:
            raise UsageError("nothing to prepare", "name a corpus (see `aiayn prepare --list`), or give --train")
        corpus = base.corpus
    _refuse_contradictions(options, corpus)
    corpora = [] if corpus is None else _find_corpora(corpus, langs, options.like)
    if corpora:
        first = corpora[0]
        if base is None or options.like is not None:
            base = replace(base or DataConfig(), vocab_size=first.vocab_size, **first.settings)
        corpus = "+".join(each.name for each in corpora)
        config = _change(base, {"corpus": corpus, **settings})
        src_lang, tgt_lang = first.src_lang, first.tgt_lang
        name = _folder_name(corpus, f"{src_lang}-{tgt_lang}")
    else:
        if langs is None:
            raise UsageError(f"{options.given_files()[0]} without --langs", "name the languages: --langs en-de")
        src_lang, tgt_lang = parse_langs(langs)
        config = _change(base or DataConfig(), settings)
        name = config.corpus if options.recipe else "trees" if config.trees else f"{src_lang}-{tgt_lang}"
    downloads = Downloads(options.downloads or DOWNLOADS_FOLDER, options.from_folder)
    source = make_source(corpora, options, (src_lang, tgt_lang), config, downloads)
    make_processor(config.text, src_lang, tgt_lang)  # reports a missing package at once
    vocab, vocab_sha256 = options.vocab, ""
    if vocab is not None:
        vocab = vocab / VOCAB if vocab.is_dir() else vocab
        vocabs = load_vocabs(vocab.parent) if vocab.name == VOCAB else (Vocab.load(vocab),) * 2
        vocab_sha256 = joint_sha256(*vocabs)
    return PreparePlan(
        out=options.out or PREPARED_FOLDER / name,
        corpus=corpus,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        source=source,
        config=config,
        vocab=vocab,
        vocab_sha256=vocab_sha256,
        workers=options.workers or default_workers(),
    )


def _plan_trees(options: PrepareOptions, base: DataConfig | None) -> tuple[DataConfig, str]:
    """Refuse what does not go with trees; return the settings that suit them, and what the sides are called."""
    if not options.trees:
        given = (*options.given_trees(), "a recipe for trees")[0]
        raise UsageError(f"{given} without --trees", "give the treebank to train on too: --trees FILE")
    if options.corpus is not None or options.given_files():
        what = options.corpus or options.given_files()[0]
        raise UsageError(f"--trees together with {what}", "trees cannot be mixed with other text")
    if base is None or not base.trees:
        base = replace(base or DataConfig(), **_FOR_TREES)
    return base, options.langs or _LANGS_OF_TREES


def _find_corpora(names: str, langs: str | None, like: str | None) -> list[Corpus]:
    """Find corpora joined by "+"; OPUS is asked for the languages of the first where none are given."""
    corpora: list[Corpus] = []
    for name in names.split("+"):
        of_first = f"{corpora[0].src_lang}-{corpora[0].tgt_lang}" if corpora else None
        corpus = find_corpus(name, langs or (of_first if name.startswith(OPUS) else None), like)
        if of_first not in (None, f"{corpus.src_lang}-{corpus.tgt_lang}"):
            problem = f"{corpora[0].name} is {of_first}, but {name} is {corpus.src_lang}-{corpus.tgt_lang}"
            raise UsageError(problem, "only corpora of the same languages, in the same direction, go together")
        corpora.append(corpus)
    return corpora


def _folder_name(corpus: str, langs: str) -> str:
    """Make a file name of a corpus's; OPUS has each of its corpora in many languages."""
    name = re.sub(r"[^\w.+-]+", "-", corpus)
    return f"{name}-{langs}" if corpus.startswith(OPUS) else name


def _refuse_contradictions(options: PrepareOptions, corpus: str | None) -> None:
    if given := [name for name in _OF_TREES if name in options.settings and not options.trees]:
        raise UsageError(f"{option_of(given[0])} without --trees", "it is about the trees of a treebank: remove it")
    for option, value in {"--like": options.like, "--from": options.from_folder}.items():
        if value is not None and corpus is None:
            raise UsageError(f"{option} without a corpus", "it is for corpora that have a name, such as wmt14-en-de")
    if min(options.tsv_columns) < 1 or len(set(options.tsv_columns)) < 2:
        columns = " ".join(map(str, options.tsv_columns))
        raise UsageError(f"--tsv-columns is {columns}, but must be two columns from 1 on", "write it like 1 2")
    for name in _OF_A_NEW_VOCAB:
        if options.vocab is not None and name in options.settings:
            problem = f"--vocab and {option_of(name)} together"
            raise UsageError(problem, "an existing vocabulary cannot change: give one of them")
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers is {options.workers}, but must be at least 1", "leave it out to use all cores")


def _change(config: DataConfig, settings: Mapping[str, Any]) -> DataConfig:
    try:
        return replace(config, **settings)
    except ConfigError as error:  # name the option that the user typed, not the recipe's key
        problem = re.sub(r"\bdata\.(\w+)", lambda match: option_of(match[1]), error.problem)
        raise UsageError(problem, error.hint) from error
