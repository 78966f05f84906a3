"""From corpora and files that the user names to one source of pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiayn_cli.config import DataConfig
from aiayn_cli.corpora.corpus import Amount, Corpus, Part
from aiayn_cli.corpora.demo import generate
from aiayn_cli.corpora.download import Downloads
from aiayn_cli.errors import UsageError, did_you_mean
from aiayn_cli.prepare.formats import LinePairs, Pairs, SegmentPairs, TalkPairs, TsvPairs
from aiayn_cli.prepare.inputs import ArchiveMember, LocalFile, MadeText
from aiayn_cli.prepare.pairs import Drift
from aiayn_cli.prepare.sources import Origin, Source
from aiayn_cli.prepare.tmx import TmxPairs
from aiayn_cli.prepare.tree_pairs import TreePairs
from aiayn_cli.text.lines import display_name

PairOfFiles = tuple[Path, Path]  # source sides, target sides


@dataclass(frozen=True)
class Files:
    """Files of the user.

    Attributes:
        train: pairs of files for training, a record a line.
        tsv: files of tab-separated columns, for training.
        tsv_columns: which column has the source and which the target side, from 1 on.
        tmx: translation memories, for training.
        valid: validation files.
        test: test files.
        trees: treebanks for training, a tree on a line or over several.
        valid_trees: a treebank for validation.
        test_trees: a treebank for testing.
        weights: by the name of a corpus, of a part of one, or of a file: how often its pairs are taken.
    """

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

    def given(self) -> list[str]:
        """List the options that name files of pairs."""
        return [f"--{name}" for name in ("train", "tsv", "tmx", "valid", "test") if getattr(self, name)]

    def given_trees(self) -> list[str]:
        """List the options that name treebanks."""
        names = ("trees", "valid_trees", "test_trees")
        return ["--" + name.replace("_", "-") for name in names if getattr(self, name)]

    def has_train(self) -> bool:
        """Whether there is training text."""
        return bool(self.train or self.tsv or self.tmx or self.trees)


def make_source(
    corpora: Sequence[Corpus],
    files: Files,
    langs: tuple[str, str],
    *,
    config: DataConfig,
    asked: Mapping[str, Any],
    downloads: Downloads,
) -> Source:
    """Put together what is read: first the corpora, then the files.

    Validation and test pairs are the files given for them, else those of the first corpus that has some.

    Args:
        corpora: named corpora, all of the same two languages.
        files: files of the user.
        langs: source and target language.
        config: what is done where the text is not as it should be.
        asked: fields of it that the user set; the others are milder for corpora, whose archives nobody can repair.
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
        parts = _demo(config.seed) if not corpus.train else _parts(corpus, _milder(config, asked), downloads)
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
    return Source(train, valid, test, valid_every, downloads)


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


def _file_origins(files: Files, langs: tuple[str, str], config: DataConfig) -> list[Origin]:
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
