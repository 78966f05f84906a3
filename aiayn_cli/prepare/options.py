"""What the user asks of `prepare`, as one object."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PairOfFiles = tuple[Path, Path]  # source sides, target sides
# Settings with an option of their own.
SHORT_FORMS = ("vocab_size", "max_length", "max_ratio", "dedupe", "on_bad_bytes", "seed", "trees")


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """Named corpora, files, or both together, and how to prepare them.

    Attributes:
        corpus: a name that find_corpus() knows, or several joined by "+"; None takes the files, or without files
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
