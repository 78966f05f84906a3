"""sacreBLEU's test sets through our downloader, which checks hashes and resumes.

sacreBLEU's table says where a set is and what is in it; its own downloader reads whole archives into memory, extracts
them all, and ends the process if a hash is wrong. Lines are as from sacreBLEU: white space is collapsed where it does.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sacrebleu.dataset import DATASETS

from aiayn_cli import logs
from aiayn_cli.corpora.archive_members import open_member
from aiayn_cli.corpora.corpus import Archive
from aiayn_cli.errors import DataError, UsageError, did_you_mean
from aiayn_cli.text.lines import open_text_bytes, read_records

if TYPE_CHECKING:  # it loads requests, which `aiayn score` of files starts without
    from aiayn_cli.corpora.download import Downloads

_SEGMENT = re.compile(r"<seg.*?>(.*)</seg>")
_ARCHIVES = (".tgz", ".tar.gz", ".zip", ".tar")


@dataclass(frozen=True)
class TestSet:
    """A test set in one direction."""

    name: str  # sacreBLEU's, such as "wmt14/full"
    langs: str  # such as "en-de"
    source: list[str]  # lines to translate
    references: dict[str, list[str]]  # as many lines each; by sacreBLEU's name of the field, "ref" or "ref:..."


def load_test_set(name: str, langs: str | None, downloads: "Downloads") -> TestSet:
    """Read a test set, downloaded if it is not here yet; raises DataError, or UsageError for other languages."""
    if name not in DATASETS:
        raise DataError(f"unknown test set {name!r}", did_you_mean(name, DATASETS))
    dataset: Any = DATASETS[name]
    if langs is None or langs not in dataset.langpairs:
        what = f"test set {name} needs --langs" if langs is None else f"the test set {name} has no pair {langs!r}"
        raise UsageError(what, f"add --langs with one of {', '.join(dataset.langpairs)}")
    kind, entry = type(dataset).__name__, dataset.langpairs[langs]
    fields: dict[str, list[str]] = {}
    if kind == "WMTXMLDataset":  # of WMT 2021 or later: one well-formed file with everything
        with _open(dataset, entry["path"] if isinstance(entry, dict) else entry[0], downloads) as file:
            found = dataset._unwrap_wmt21_or_later(file)
        wanted = ("src", *dataset._get_langpair_allowed_refs(langs))
        fields = {field: [_collapsed(line) for line in lines] for field, lines in found.items() if field in wanted}
    else:
        names = [field for field in dataset.fieldnames(langs) if field.startswith(("src", "ref"))]
        for field, member in zip(names, entry, strict=True):
            column = None
            if kind == "TSVDataset":
                number, _, member = member.rpartition(":")
                column = int(number) if number else int(field != "src")
            with _open(dataset, member, downloads) as file:
                fields[field] = _read_lines(file, member, column)
    source = fields.pop("src")
    for field, lines in fields.items():
        if len(lines) != len(source):
            problem = f"{name} {langs} has {len(source):,} source lines, but {len(lines):,} of {field}"
            raise DataError(problem, "the archive may be another version: remove it from the folder of downloads")
    return TestSet(name, langs, source, fields)


def _read_lines(file: BinaryIO, member: str, column: int | None) -> list[str]:
    """Read one side from plain lines, from SGML or, with a column from 0 on, from a table."""
    records = list(read_records(file, member))
    if column is not None:
        rows = [record.split("\t") for record in records]
        for number, cells in enumerate(rows, start=1):
            if column >= len(cells):
                problem = f"{member}:{number} has {logs.counted(len(cells), 'column')}, but needs {column + 1}"
                raise DataError(problem, "the file may be damaged: remove it from the folder of downloads")
        return [cells[column].rstrip() for cells in rows]
    if member.endswith((".sgm", ".xml")):
        # Without an XML parser, since some of these files are not well formed.
        return [_collapsed(_SEGMENT.sub(r"\1", record)) for record in records if record.startswith("<seg ")]
    return [record.rstrip() for record in records]


def _open(dataset: Any, member: str, downloads: "Downloads") -> BinaryIO:
    """Open what sacreBLEU's table calls `member`: a file inside one of the set's archives, or a download itself."""
    archives = {}
    for url, md5 in zip(dataset.data, dataset.md5 or [], strict=False):
        # One archive serves many sets; its hash tells it from others of the same name.
        archives[url] = Archive(f"sacrebleu-{md5[:8]}-{url.rpartition('/')[2]}", (url,), md5=md5)
    alone = [url for url in archives if dataset._get_tarball_filename(url) == member]
    folder = member.partition("/")[0]
    # Sets with an archive for each language pair name it after the folder inside.
    own = [url for url in archives if Path(url).name.partition(".")[0] == folder]
    chosen = [archives[url] for url in alone or own or [url for url in archives if url.endswith(_ARCHIVES)]]
    downloads.fetch(chosen)
    paths = [downloads.path(archive) for archive in chosen]
    if alone:
        return open_text_bytes(paths[0])
    for path in paths[:-1]:
        with suppress(DataError):
            return open_member(path, member)
    return open_member(paths[-1], member)


def _collapsed(line: str) -> str:
    return re.sub(r"\s+", " ", line.strip())
