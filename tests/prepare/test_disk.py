"""The estimate of disk is known before the work starts, and too little of it is said with both numbers."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from aiayn_cli.corpora.corpus import Amount, Archive
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.formats import LinePairs, TsvPairs
from aiayn_cli.prepare.pairs import ArchiveMember, LocalFile, MadeText
from aiayn_cli.prepare.sources import Origin, check_disk, estimate_disk

ARCHIVE = Archive("dev.tgz", ("https://nowhere/dev.tgz",))


class Downloaded:
    """Downloads that say where an archive is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, archive: Archive) -> Path:
        return self._path

    def sha256(self, archive: Archive) -> str:
        return "0"


class Usage(NamedTuple):
    free: int


def local(folder: Path, name: str, size: int) -> LocalFile:
    (folder / name).write_bytes(bytes(size))
    return LocalFile(folder / name)


def member(folder: Path, name: str) -> ArchiveMember:
    (folder / "dev.tgz").write_bytes(bytes(100))
    return ArchiveMember(ARCHIVE, name, Downloaded(folder / "dev.tgz"))  # type: ignore[arg-type]


def test_compressed_files_grow_and_an_archive_counts_once(tmp_path: Path) -> None:
    files = Origin("a", LinePairs(local(tmp_path, "a.en", 1_000), local(tmp_path, "a.de.gz", 500)))
    archive = [Origin(name, LinePairs(member(tmp_path, "x"), member(tmp_path, "y"))) for name in "bc"]
    made = Origin("demo", TsvPairs(MadeText("demo", b"a\tb\n")))
    origins = [files, *archive, made]
    assert estimate_disk(origins, processed=False) == int((1_000 + 500 * 3.2 + 100 * 3.2) * 2)
    assert estimate_disk(origins, processed=True) > estimate_disk(origins, processed=False)


def test_each_weight_and_each_file_given_again_counts(tmp_path: Path) -> None:
    once = Origin("a", LinePairs(local(tmp_path, "a.en", 1_000), local(tmp_path, "a.de", 1_000)))
    alone = estimate_disk([once], processed=False)
    assert estimate_disk([once, once], processed=False) == 2 * alone
    assert estimate_disk([replace(once, weight=9)], processed=False) == 5 * alone


def test_an_archive_is_not_taken_for_all_text_where_the_pairs_are_counted(tmp_path: Path) -> None:
    part = Origin("part", LinePairs(member(tmp_path, "x"), member(tmp_path, "y")), expected=Amount(1))
    (tmp_path / "dev.tgz").write_bytes(bytes(1_000_000))
    assert estimate_disk([part], processed=False) == 1_000


def test_too_little_room_is_said_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(3_210_000_000))
    check_disk(tmp_path / "out.partial", 3_210_000_000)
    with pytest.raises(DataError) as caught:
        check_disk(tmp_path / "out.partial", 45_600_000_000)
    assert caught.value.problem == f"{tmp_path} has 3.2 GB free, but preparing takes about 45.6 GB"
    assert caught.value.hint == "free some space, or give an --out on another disk"
