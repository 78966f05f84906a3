"""The estimate of disk is known before the work starts, and too little of it is said with both numbers."""

from pathlib import Path
from typing import NamedTuple

import pytest

from aiayn_cli.data.disk import check_disk, estimate_disk
from aiayn_cli.errors import DataError

INPUTS = [
    {"split": "train", "side": "src", "path": "a.en", "bytes": 1_000},
    {"split": "train", "side": "tgt", "path": "a.de.gz", "bytes": 500},
    {"split": "valid", "side": "src", "archive": "dev", "member": "x.en", "read": {"file": "dev.tgz", "bytes": 100}},
    {"split": "valid", "side": "tgt", "archive": "dev", "member": "x.de", "read": {"file": "dev.tgz", "bytes": 100}},
    {"split": "train", "side": "both", "made": "demo"},
]


class Usage(NamedTuple):
    free: int


def test_compressed_files_grow_and_an_archive_counts_once() -> None:
    assert estimate_disk(INPUTS, processed=False) == int((1_000 + 500 * 3.2 + 100 * 3.2) * 2)
    assert estimate_disk(INPUTS, processed=True) > estimate_disk(INPUTS, processed=False)


def test_too_little_room_is_said_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(3_210_000_000))
    check_disk(tmp_path / "out.partial", 3_210_000_000)
    with pytest.raises(DataError) as caught:
        check_disk(tmp_path / "out.partial", 45_600_000_000)
    assert caught.value.problem == f"{tmp_path} has 3.2 GB free, but preparing takes about 45.6 GB"
    assert caught.value.hint == "free some space, or give an --out on another disk"
