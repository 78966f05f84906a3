"""The user's options for `prepare`, and the plan that they make: every choice made, contradictions refused."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.corpora.corpus import SPLITS, Amount, Corpus
from aiayn_cli.corpora.demo_corpus import generate
from aiayn_cli.corpora.download import DOWNLOADS_FOLDER, Downloads
from aiayn_cli.corpora.named_corpora import OPUS, find_corpus, parse_langs
from aiayn_cli.data.prepared import PREPARED_FOLDER
from aiayn_cli.data.recipe_choice import AUTO
from aiayn_cli.errors import ConfigError, UsageError, did_you_mean
from aiayn_cli.prepare.formats import Drift, LinePairs, Pairs, SegmentPairs, TalkPairs, TreePairs, TsvPairs
from aiayn_cli.prepare.sources import ArchiveMember, LocalFile, MadeText, Origin, PairSource
from aiayn_cli.prepare.text_shards import make_processor
from aiayn_cli.prepare.tmx import TmxPairs
from aiayn_cli.processes import default_workers
from aiayn_cli.recipe import load_recipe, read_overrides
from aiayn_cli.recipe_keys import DataConfig
from aiayn_cli.text.codec import VOCAB, joint_sha256, load_vocabs
from aiayn_cli.text.languages import primary_language
from aiayn_cli.text.lines import display_name
from aiayn_cli.text.scripts import CODES, SCRIPTS, scripts_of
from aiayn_cli.text.vocab import Vocab

PairOfFiles = tuple[Path, Path]  # source sides, target sides
# Settings with an option of their own.
_OPTIONS = ("vocab_size", "max_length", "max_ratio", "dedupe", "on_bad_bytes", "seed", "trees")
_FILES = ("train", "tsv", "tmx", "valid", "test")
_TREEBANKS = ("trees", "valid_trees", "test_trees")

# Defaults for trees, unless the recipe is for trees: nothing of a treebank is dropped, a tree is three times as long as
# its sentence, and words and brackets have vocabularies of their own.
_FOR_TREES: dict[str, Any] = {
    "trees": True, "separate_vocabs": True, "max_length": 1_000, "max_ratio": 1_000.0, "max_words": 0, "dedupe": False,
    "drop_identical": False, "drop_no_letters": False, "drop_wrong_script": False, "drop_overlap": False,
    "case_copies": 0.0,
}  # fmt: skip
_OF_TREES = ("trees", "tree_tags", "tree_words", "tree_functions")
_LANGS_OF_TREES = "words-trees"

_OF_A_NEW_VOCAB = ("vocab_size", "vocab_type", "byte_fallback", "separate_vocabs")


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Named corpora, files, or both together, and how to prepare them; the command's help says more of each."""

    corpus: str | None = None  # several are joined by "+"; None: the files, or without files the recipe's corpus
    like: str | None = None
    train: Sequence[PairOfFiles] = ()
    tsv: Sequence[Path] = ()
    tsv_columns: tuple[int, int] = (1, 2)
    tmx: Sequence[Path] = ()
    valid: PairOfFiles | None = None
    test: PairOfFiles | None = None
    trees: Sequence[Path] = ()  # instead of all other text
    valid_trees: Path | None = None
    test_trees: Path | None = None
    weights: Mapping[str, int] = field(default_factory=dict)  # by the name of a corpus, of its part, or of a file
    langs: str | None = None  # such as "en-de"
    out: Path | None = None
    recipe: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # fields of DataConfig that the user set
    overrides: Sequence[str] = ()  # more of them, as text: "data.max_words=100"
    vocab: Path | None = None
    workers: int | None = None
    downloads: Path | None = None
    from_folder: Path | None = None

    def given(self, names: Iterable[str]) -> list[str]:
        """Which of these options the user gave, as typed."""
        return ["--" + name.replace("_", "-") for name in names if getattr(self, name)]


@dataclass(frozen=True)
class PreparePlan:
    """What one call does, all choices made."""

    out: Path
    corpus: str | None  # its name; None for files
    src_lang: str
    tgt_lang: str
    source: PairSource
    config: DataConfig
    sized_by_text: bool  # whether the vocabulary gets the size that suits the number of pairs, which is not known yet
    vocab: Path | None  # of the user; a vocab.model has its vocab.tgt.model in the same folder, if there is one
    vocab_sha256: str  # of that; empty for a new one
    workers: int

    def settings(self) -> dict[str, Any]:
        """Everything but the text that the result depends on, for the manifest."""
        unused = {"corpus", *(() if self.config.trees else _OF_TREES), *(_OF_A_NEW_VOCAB if self.vocab else ())}
        settings = {name: value for name, value in asdict(self.config).items() if name not in unused}
        if self.sized_by_text:
            settings["vocab_size"] = AUTO
        return {**settings, "vocab_sha256": self.vocab_sha256} if self.vocab else settings


def make_plan(options: PrepareOptions) -> PreparePlan:
    """Fill in what the user did not specify, and refuse contradictions with an AiaynError."""
    overrides = read_overrides("data", options.overrides)
    if "corpus" in overrides:
        name = overrides["corpus"]
        raise UsageError(f"--set data.corpus={name}: the corpus is an argument", f"write `aiayn prepare {name}`")
    options = replace(options, settings={**overrides, **options.settings})
    corpus, langs, files = options.corpus, options.langs, options.given(_FILES)
    base = load_recipe(options.recipe).data if options.recipe else None
    if options.given(_TREEBANKS) or (base is not None and base.trees):
        base, langs = _plan_trees(options, base)
    if corpus is None and not (options.train or options.tsv or options.tmx or options.trees):
        if files or (langs is not None and base is None):
            raise UsageError(f"{(*files, '--langs')[0]} needs --train", "add the training text: --train SRC TGT")
        if base is None:
            raise UsageError("nothing to prepare", "name a corpus (`aiayn prepare --list`), or give --train SRC TGT")
        corpus = base.corpus
    _refuse_contradictions(options, corpus)
    corpora = [] if corpus is None else _find_corpora(corpus, langs, options.like)
    if corpora:
        first = corpora[0]
        if base is None or options.like is not None:
            base = replace(base or DataConfig(), vocab_size=first.vocab_size, **first.settings)
        corpus = "+".join(each.name for each in corpora)
        config = _change(base, {"corpus": corpus, **options.settings})
        src_lang, tgt_lang = first.src_lang, first.tgt_lang
        folder = re.sub(r"[^\w.+-]+", "-", corpus)
        if corpus.startswith(OPUS):  # which has the same corpus in many languages
            folder += f"-{src_lang}-{tgt_lang}"
    else:
        if langs is None:
            raise UsageError(f"{files[0]} needs --langs", "name the languages: --langs en-de")
        src_lang, tgt_lang = parse_langs(langs)
        config = _change(base or DataConfig(), options.settings)
        folder = config.corpus if options.recipe else "trees" if config.trees else f"{src_lang}-{tgt_lang}"
    sized_by_text = not (corpora or options.recipe or options.vocab or config.trees or "vocab_size" in options.settings)
    if options.langs is not None and not config.trees:
        _mention_unknown_langs(src_lang, tgt_lang)
    for pair in (*options.train, *filter(None, (options.valid, options.test))):
        if [primary_language(path.suffix[1:]) for path in pair] == list(map(primary_language, (tgt_lang, src_lang))):
            warning = f"{pair[0]} is given as {src_lang}, {pair[1]} as {tgt_lang}"
            logs.warning(f"{warning}; did you mean --langs {tgt_lang}-{src_lang}?")
    source = _make_source(corpora, options, (src_lang, tgt_lang), config)
    make_processor(config.text, src_lang, tgt_lang)  # reports a missing package now
    vocab, vocab_sha256 = options.vocab, ""
    if vocab is not None:
        vocab = vocab / VOCAB if vocab.is_dir() else vocab
        vocab_sha256 = joint_sha256(*(load_vocabs(vocab.parent) if vocab.name == VOCAB else (Vocab.load(vocab),) * 2))
    return PreparePlan(
        out=options.out or PREPARED_FOLDER / folder,
        corpus=corpus,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        source=source,
        config=config,
        sized_by_text=sized_by_text,
        vocab=vocab,
        vocab_sha256=vocab_sha256,
        workers=options.workers or default_workers(),
    )


def _mention_unknown_langs(*langs: str) -> None:
    known = sorted({code for script in SCRIPTS.values() for code in script["languages"].split()})
    for lang in langs:
        if not scripts_of(lang):
            nearest = did_you_mean(CODES.get(lang.lower(), lang), (), unlisted=known)
            logs.notice(f"{lang} is not a known language code, so its script is not checked; {nearest}".rstrip("; "))


def _plan_trees(options: PrepareOptions, base: DataConfig | None) -> tuple[DataConfig, str]:
    """Refuse what cannot be combined with trees; return the settings for them and what the sides are called."""
    if not options.trees:
        given = (*options.given(_TREEBANKS), "a recipe for trees")[0]
        raise UsageError(f"{given} needs --trees", "add the treebank to train on: --trees FILE")
    if others := [*filter(None, [options.corpus]), *options.given(_FILES)]:
        raise UsageError(f"--trees and {others[0]} contradict each other", "trees cannot be mixed with other text")
    if base is None or not base.trees:
        base = replace(base or DataConfig(), **_FOR_TREES)
    return base, options.langs or _LANGS_OF_TREES


def _refuse_contradictions(options: PrepareOptions, corpus: str | None) -> None:
    for name in _OF_TREES:
        if name in options.settings and not options.trees:
            raise UsageError(f"{_option_of(name)} needs --trees", "it applies to treebanks only: remove it")
    for option, value in {"--like": options.like, "--from": options.from_folder}.items():
        if value is not None and corpus is None:
            raise UsageError(f"{option} needs a corpus", "it applies to named corpora, such as wmt14-en-de")
    if min(options.tsv_columns) < 1 or len(set(options.tsv_columns)) < 2:
        columns = " ".join(map(str, options.tsv_columns))
        raise UsageError(f"--tsv-columns is {columns}, but must be two different columns from 1 on", "such as 1 2")
    for name in _OF_A_NEW_VOCAB:
        if options.vocab is not None and name in options.settings:
            problem = f"--vocab and {_option_of(name)} contradict each other"
            raise UsageError(problem, "an existing vocabulary stays as it is: remove one of them")
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers is {options.workers}, but must be at least 1", "omit it to use all cores")


def _option_of(setting: str) -> str:
    """How a setting is typed: "--max-length", or "data.max_words"."""
    return "--" + setting.replace("_", "-") if setting in _OPTIONS else f"data.{setting}"


def _change(config: DataConfig, settings: Mapping[str, Any]) -> DataConfig:
    try:
        return replace(config, **settings)
    except ConfigError as error:  # name the option that the user typed, not the recipe's key
        problem = re.sub(r"\bdata\.(\w+)", lambda match: _option_of(match[1]), error.problem)
        raise UsageError(problem, error.hint) from error


def _find_corpora(names: str, langs: str | None, like: str | None) -> list[Corpus]:
    """Find corpora joined by "+"; without `langs`, OPUS is searched for the languages of the first corpus."""
    corpora: list[Corpus] = []
    for name in names.split("+"):
        of_first = f"{corpora[0].src_lang}-{corpora[0].tgt_lang}" if corpora else None
        corpus = find_corpus(name, langs or (of_first if name.startswith(OPUS) else None), like)
        if of_first not in (None, f"{corpus.src_lang}-{corpus.tgt_lang}"):
            problem = f"{corpora[0].name} is {of_first}, but {name} is {corpus.src_lang}-{corpus.tgt_lang}"
            raise UsageError(problem, "join corpora of the same languages in the same direction")
        corpora.append(corpus)
    return corpora


def _make_source(
    corpora: Sequence[Corpus], options: PrepareOptions, langs: tuple[str, str], config: DataConfig
) -> PairSource:
    """The corpora, then the files. Validation and test text is the user's, else that of the first corpus with some."""
    downloads = Downloads(options.downloads or DOWNLOADS_FOLDER, options.from_folder)
    drop = config.on_bad_bytes == "drop"
    drift: Drift = "stop" if config.drift_alarm else "ignore"

    def lines(pair: PairOfFiles) -> Origin:
        return Origin(display_name(pair[0]), LinePairs(LocalFile(pair[0]), LocalFile(pair[1]), drop, drift))

    def trees(path: Path) -> Origin:
        return Origin(display_name(path), TreePairs(LocalFile(path), config.tree_functions))

    train: list[tuple[str, Origin]] = []  # each with the name of its corpus
    valid: Sequence[Origin] = ()
    test: Sequence[Origin] = ()
    valid_every = 0
    # Users cannot repair an archive, so corpora are read leniently unless they say otherwise.
    lenient_drop = drop or "on_bad_bytes" not in options.settings
    lenient_drift: Drift = "warn" if drift == "stop" and "drift_alarm" not in options.settings else drift
    for corpus in corpora:
        is_demo = not corpus.train
        splits = _read_demo(config.seed) if is_demo else _read_corpus(corpus, downloads, lenient_drop, lenient_drift)
        train += [(corpus.name, origin) for origin in splits["train"]]
        if not valid and not valid_every:
            valid, valid_every = splits["valid"], corpus.valid_every
        test = test or splits["test"]
    files = [lines(pair) for pair in options.train]
    files += [Origin(display_name(path), TsvPairs(LocalFile(path), options.tsv_columns, drop)) for path in options.tsv]
    files += [Origin(display_name(path), TmxPairs(LocalFile(path), *langs, drop)) for path in options.tmx]
    files += [trees(path) for path in options.trees]
    train += [(origin.name, origin) for origin in files]
    if options.valid:
        valid, valid_every = [lines(options.valid)], 0
    if options.test:
        test = [lines(options.test)]
    if options.valid_trees:
        valid = [trees(options.valid_trees)]
    if options.test_trees:
        test = [trees(options.test_trees)]
    names = list(dict.fromkeys(name for corpus_name, origin in train for name in (corpus_name, origin.name)))
    for name, weight in ((display_name(name), weight) for name, weight in options.weights.items()):
        if name not in names:
            raise UsageError(f"--weight {name}={weight}: no corpus, part or file {name}", did_you_mean(name, names))
        train = [(of, replace(each, weight=weight) if name in (of, each.name) else each) for of, each in train]
    return PairSource([origin for _, origin in train], valid, test, valid_every, downloads)


def _read_corpus(corpus: Corpus, downloads: Downloads, drop_bad_bytes: bool, drift: Drift) -> dict[str, list[Origin]]:
    """The parts of a corpus by split."""
    origins: dict[str, list[Origin]] = {split: [] for split in SPLITS}
    langs = corpus.src_lang, corpus.tgt_lang
    for split, part in corpus.parts():
        texts = zip((part.sides[lang] for lang in langs), ("src", "ref"), strict=True)
        src, tgt = (ArchiveMember(text.archive, text.member.format(role=role), downloads) for text, role in texts)
        pairs: Pairs = LinePairs(src, tgt, drop_bad_bytes, drift)
        if part.format == "segments":
            pairs = SegmentPairs(src, tgt)
        elif part.format == "talks":
            pairs = TalkPairs(src, tgt, drop_bad_bytes, drift, part.titles)
        md5 = part.md5.get(langs[0], ""), part.md5.get(langs[1], "")
        origins[split].append(Origin(part.name, pairs, expected=Amount(part.pairs, part.approximate), md5=md5))
    return origins


def _read_demo(seed: int) -> dict[str, list[Origin]]:
    return {
        split: [Origin("demo", TsvPairs(MadeText("demo", "".join(f"{s}\t{t}\n" for s, t in pairs).encode())))]
        for split, pairs in generate(seed).items()
    }
