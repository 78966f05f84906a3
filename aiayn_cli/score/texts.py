"""The text that `aiayn score` scores: hypotheses, references and perhaps the source, with as many lines each."""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.corpora.names import parse_langs
from aiayn_cli.corpora.test_sets import TestSet, load_test_set
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.text.lines import display_name, read_file


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What is scored.

    Attributes:
        systems: lines by name.
        references: lines by name; one or more.
        source: what was translated, if it is known.
    """

    systems: dict[str, list[str]]
    references: dict[str, list[str]]
    source: list[str] | None

    @property
    def reference_lines(self) -> list[list[str]]:
        """The references without their names."""
        return list(self.references.values())

    @property
    def lines(self) -> int:
        """How many lines each text has."""
        return len(self.reference_lines[0])


def read_texts(
    references: Sequence[Path], hypotheses: Sequence[str], test_set: TestSet | None, source: str | None
) -> Texts:
    """Read everything.

    Args:
        references: files; or nothing, with a test set.
        hypotheses: files, or "-" for stdin.
        test_set: instead of references and source.
        source: a file.
    Raises:
        DataError: a file is missing or not text, or line counts differ.
        UsageError: something is named twice.
    """
    names = [str(name) for name in (*references, *hypotheses, source) if name is not None]
    if names.count("-") > 1:
        raise UsageError("stdin is named more than once", "give the hypotheses with --hyp FILE")
    for group, what in ((hypotheses, "--hyp"), (list(map(str, references)), "reference")):
        if len(set(group)) < len(group):
            twice = next(name for name in group if list(group).count(name) > 1)
            raise UsageError(f"{what} {twice} is named twice", "name each once")
    if test_set is None:
        lines_of_references = {display_name(path): read_file(path) for path in references}
        lines_of_source = None if source is None else read_file(source)
    else:
        name = f"{test_set.name} {test_set.langs}"
        lines_of_references = {f"{name} {field}": lines for field, lines in test_set.references.items()}
        lines_of_source = test_set.source
    if "-" in hypotheses and sys.stdin is not None and sys.stdin.isatty():
        logs.notice("reading the translations from the terminal; Ctrl-D ends them (files: --hyp FILE)")
    systems = {display_name(path): read_file(path) for path in hypotheses}
    first_name, first = next(iter(lines_of_references.items()))
    others = [*list(lines_of_references.items())[1:], *systems.items()]
    if lines_of_source is not None:
        others.append((source or f"{first_name}'s source", lines_of_source))
    for other_name, lines in others:
        if len(lines) != len(first):
            raise DataError(
                f"{other_name} has {len(lines):,} lines, but {first_name} has {len(first):,}",
                "score the same test set that was translated, line by line",
            )
    if not first:
        raise DataError(f"there is no line to score: {first_name} is empty", "check the files")
    return Texts(systems=systems, references=lines_of_references, source=lines_of_source)


def load_set(name: str, langs: str | None, from_folder: Path | None) -> TestSet:
    """One of sacreBLEU's test sets, downloaded if it is not here.

    Raises:
        AiaynError: there is no such set, or it cannot be had.
    """
    # Here, because it loads requests, which takes as long as all else that a plain score loads.
    download = importlib.import_module("aiayn_cli.corpora.download")
    return load_test_set(name, langs, download.Downloads(download.DOWNLOADS_FOLDER, from_folder))


def target_language(langs: str | None, references: Sequence[Path]) -> str:
    """The language after the dash of a pair, else what a file name such as test.de.gz ends in."""
    if langs is not None:
        return parse_langs(langs)[1]
    if not references:
        return ""
    suffixes = [suffix for suffix in references[0].suffixes if suffix.lower() not in (".gz", ".xz", ".bz2", ".zst")]
    return suffixes[-1][1:] if suffixes else ""
