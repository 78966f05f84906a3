"""A folder appears whole or not at all, also after kill -9, and never in place of another."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from aiayn_cli.data.folders import new_folder
from aiayn_cli.errors import DataError


def test_a_folder_appears_with_all_its_files_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "out"
    with new_folder(out) as folder:
        (folder / "a").write_text("1")
        (folder / "b").mkdir()
        assert not out.exists()
    assert sorted(path.name for path in out.iterdir()) == ["a", "b"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_an_empty_folder_may_become_the_result(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
    assert (tmp_path / "out" / "a").read_text() == "1"


def test_what_exists_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("mine")
    (tmp_path / "file").write_text("mine too")
    for name in ("out", "file"):
        with pytest.raises(DataError, match=f"{name} exists already"), new_folder(tmp_path / name):
            pytest.fail("entered")
    assert (tmp_path / "out" / "precious").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "mine too"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fill_half() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("1")
            raise error

    with pytest.raises(error):
        fill_half()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_and_is_said_plainly(tmp_path: Path, code: int) -> None:
    def fill_the_disk() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("1")
            raise OSError(code, os.strerror(code))

    with pytest.raises(DataError, match=f"out does not fit on its disk: {os.strerror(code)}") as caught:
        fill_the_disk()
    assert caught.value.hint == "free some space, or give another --out"
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from aiayn_cli.data.folders import new_folder\n"
        "with new_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'half').write_text('x'); (folder / 'sub').mkdir(); (folder / 'sub' / 'file').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "out"], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    with new_folder(tmp_path / "out") as folder:
        (folder / "whole").write_text("y")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["whole"]


def test_a_partial_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "mine").write_text("x")
    with pytest.raises(DataError, match=r"out\.partial is in the way"), new_folder(tmp_path / "out"):
        pytest.fail("entered")
    assert (tmp_path / "out.partial" / "mine").read_text() == "x"
    (tmp_path / "other.partial").symlink_to("out.partial")
    (tmp_path / "out.partial" / ".lock").touch()
    with pytest.raises(DataError, match=r"other\.partial is in the way"), new_folder(tmp_path / "other"):
        pytest.fail("entered")
    assert (tmp_path / "out.partial" / "mine").read_text() == "x"


def test_two_processes_do_not_write_the_same_folder(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        with pytest.raises(DataError, match="is being written by another process"), new_folder(tmp_path / "out"):
            pytest.fail("entered")
    assert (tmp_path / "out" / "a").read_text() == "1"


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="out cannot be made"), new_folder(tmp_path / "file" / "out"):
        pytest.fail("entered")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
