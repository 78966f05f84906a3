"""From what the user asks of `prepare` to a plan without open choices."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aiayn_cli.config import DataConfig
from aiayn_cli.corpora.corpus import Amount, Corpus, Part
from aiayn_cli.corpora.demo_corpus import generate
from aiayn_cli.corpora.download import DOWNLOADS_FOLDER, Downloads
from aiayn_cli.corpora.named_corpora import OPUS, find_corpus, parse_langs
from aiayn_cli.data.prepared import PREPARED_FOLDER
from aiayn_cli.errors import ConfigError, UsageError, did_you_mean
from aiayn_cli.prepare.encoding import make_processor
from aiayn_cli.prepare.formats import LinePairs, Pairs, SegmentPairs, TalkPairs, TreePairs, TsvPairs
from aiayn_cli.prepare.pairs import ArchiveMember, Drift, LocalFile, MadeText
from aiayn_cli.prepare.sources import Origin, PairSource
from aiayn_cli.prepare.tmx import TmxPairs
from aiayn_cli.processes import default_workers
from aiayn_cli.recipe import load_recipe, read_overrides
from aiayn_cli.text.codec import VOCAB, joint_sha256, load_vocabs
from aiayn_cli.text.lines import display_name
from aiayn_cli.text.vocab import Vocab

PairOfFiles = tuple[Path, Path]  # source sides, target sides
# Settings with an option of their own.
SHORT_FORMS = ("vocab_size", "max_length", "max_ratio", "dedupe", "on_bad_bytes", "seed", "trees")


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Named corpora, files, or both together, and how to prepare them.

    Attributes:
        corpus: a name that corpora/table.py finds, or several joined by "+"; None takes the files, or without files
            the recipe's corpus.
        like: whose way of preparing the corpus to follow; None takes ours.
        train: pairs of files, source and target side, read one after the other.
        tsv: files of tab-separated columns, for training too.
        tsv_columns: which column has the source and which the target side, from 1 on.
        tmx: translation memories, for training too.
        valid: validation files; without them, the corpus's, or else pairs of the training text are held out.
        test: test files; without them, the corpus's.
        trees: treebanks to train a parser on, instead of all of these.
        valid_trees: a treebank for validation; without it, trees are held out.
        test_trees: a treebank for testing.
        weights: by the name of a corpus, of a part of one, or of a file: how often its training pairs are taken.
        langs: languages, such as "en-de"; needed for files and OPUS.
        out: folder to make; by default prepared/ and the name of the corpus, or else the languages.
        recipe: its data section holds for what `settings` does not say.
        settings: fields of DataConfig that the user set.
        overrides: more of them, as text: "data.max_words=100".
        vocab: a vocabulary to use instead of a new one: a file, or a folder that holds vocab.model.
        workers: processes that encode text; None takes one for each core. The result does not depend on it.
        downloads: folder where downloaded archives are kept; None takes prepared/.downloads.
        from_folder: folder with archives that are already here.
    """

    corpus: str | None = None
    like: str | None = None
    train: Sequence[PairOfFiles] = ()
    tsv: Sequence[Path] = ()
    tsv_columns: tuple[int, int] = (1, 2)
    tmx: Sequence[Path] = ()
    valid: PairOfFiles | None = None
    test: PairOfFiles | None = None
    trees: Sequence[Path] = ()
    valid_trees: Path | None = None
    test_trees: Path | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    langs: str | None = None
    out: Path | None = None
    recipe: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    vocab: Path | None = None
    workers: int | None = None
    downloads: Path | None = None
    from_folder: Path | None = None

    def given_files(self) -> list[str]:
        return [f"--{name}" for name in ("train", "tsv", "tmx", "valid", "test") if getattr(self, name)]

    def given_trees(self) -> list[str]:
        names = ("trees", "valid_trees", "test_trees")
        return ["--" + name.replace("_", "-") for name in names if getattr(self, name)]

    def has_train(self) -> bool:
        return bool(self.train or self.tsv or self.tmx or self.trees)


def option_of(setting: str) -> str:
    """How a data setting is written on the command line: "--max-length", or "data.max_words"."""
    return "--" + setting.replace("_", "-") if setting in SHORT_FORMS else f"data.{setting}"


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


def make_source(
    corpora: Sequence[Corpus],
    files: PrepareOptions,
    langs: tuple[str, str],
    config: DataConfig,
    downloads: Downloads,
) -> PairSource:
    """Put together what is read: first the corpora, then the files.

    Validation and test pairs are the files given for them, else those of the first corpus that has some.

    Args:
        corpora: named corpora, all of the same two languages.
        files: files of the user, and the settings that the user gave; other settings are milder for corpora, whose
            archives nobody can repair.
        langs: source and target language.
        config: all settings.
        downloads: where archives are.
    Raises:
        UsageError: a weight is for nothing that is read.
    """
    train: list[Origin] = []
    names: dict[str, list[int]] = {}  # what a weight may be given for, and which origins that is
    valid: Sequence[Origin] = ()
    test: Sequence[Origin] = ()
    valid_every = 0
    for corpus in corpora:
        parts = _demo(config.seed) if not corpus.train else _parts(corpus, _milder(config, files.settings), downloads)
        for origin in parts["train"]:
            names.setdefault(corpus.name, []).append(len(train))
            names.setdefault(origin.name, []).append(len(train))
            train.append(origin)
        if not valid and not valid_every:
            valid, valid_every = parts["valid"], corpus.valid_every
        test = test or parts["test"]
    for origin in _file_origins(files, langs, config):
        names.setdefault(origin.name, []).append(len(train))
        train.append(origin)
    if files.valid:
        valid, valid_every = [_lines(files.valid, config)], 0
    if files.test:
        test = [_lines(files.test, config)]
    if files.valid_trees:
        valid = [_trees(files.valid_trees, config)]
    if files.test_trees:
        test = [_trees(files.test_trees, config)]
    for name, weight in ((display_name(name), weight) for name, weight in files.weights.items()):
        if name not in names:
            raise UsageError(f"--weight {name}={weight}: nothing of that name is read", did_you_mean(name, names))
        for i in names[name]:
            train[i] = replace(train[i], weight=weight)
    return PairSource(train, valid, test, valid_every, downloads)


def _parts(corpus: Corpus, care: tuple[bool, Drift], downloads: Downloads) -> dict[str, list[Origin]]:
    origins: dict[str, list[Origin]] = {"train": [], "valid": [], "test": []}
    langs = corpus.src_lang, corpus.tgt_lang
    for split, part in corpus.parts():
        src, tgt = (
            ArchiveMember(part.sides[lang].archive, part.sides[lang].member.format(role=role), downloads)
            for lang, role in zip(langs, ("src", "ref"), strict=True)
        )
        origins[split].append(
            Origin(
                part.name,
                _read_as(part, src, tgt, care),
                expected=Amount(part.pairs, part.approximate),
                md5=(part.md5.get(langs[0], ""), part.md5.get(langs[1], "")),
            )
        )
    return origins


def _read_as(part: Part, src: ArchiveMember, tgt: ArchiveMember, care: tuple[bool, Drift]) -> Pairs:
    match part.format:
        case "segments":
            return SegmentPairs(src, tgt)
        case "talks":
            return TalkPairs(src, tgt, *care, titles=part.titles)
        case "lines":
            return LinePairs(src, tgt, *care)


def _demo(seed: int) -> dict[str, list[Origin]]:
    corpus = generate(seed)
    splits = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
    return {
        split: [Origin("demo", TsvPairs(MadeText("demo", "".join(f"{s}\t{t}\n" for s, t in pairs).encode())))]
        for split, pairs in splits.items()
    }


def _file_origins(files: PrepareOptions, langs: tuple[str, str], config: DataConfig) -> list[Origin]:
    drop = config.on_bad_bytes == "drop"
    tsv = (Origin(display_name(path), TsvPairs(LocalFile(path), files.tsv_columns, drop)) for path in files.tsv)
    tmx = (Origin(display_name(path), TmxPairs(LocalFile(path), *langs)) for path in files.tmx)
    return [*(_lines(pair, config) for pair in files.train), *tsv, *tmx, *(_trees(p, config) for p in files.trees)]


def _trees(path: Path, config: DataConfig) -> Origin:
    return Origin(display_name(path), TreePairs(LocalFile(path), config.tree_functions))


def _lines(pair: PairOfFiles, config: DataConfig) -> Origin:
    src, tgt = pair
    return Origin(display_name(src), LinePairs(LocalFile(src), LocalFile(tgt), *_care(config)))


def _care(config: DataConfig) -> tuple[bool, Drift]:
    """Say how lines are read: whether bad bytes drop their pair, and what drift does."""
    return config.on_bad_bytes == "drop", "stop" if config.drift_alarm else "ignore"


def _milder(config: DataConfig, asked: Mapping[str, Any]) -> tuple[bool, Drift]:
    """Say the same for corpora."""
    drop, drift = _care(config)
    return drop or "on_bad_bytes" not in asked, "warn" if drift == "stop" and "drift_alarm" not in asked else drift
