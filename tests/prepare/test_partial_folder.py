"""A folder appears whole or not at all, never in place of another, and goes on after kill -9 where it stopped."""

import errno
import fcntl
import os
import re
from pathlib import Path
from typing import BinaryIO

import pytest

from aiayn_cli.errors import AiaynError, DataError, ResumableError, Terminated
from aiayn_cli.prepare.partial_folder import Steps, new_folder, remove_leftovers

PLAN = {"seed": 3, "größe": [1, 2]}


def test_a_folder_appears_with_all_its_files_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "out"
    with new_folder(out) as folder:
        (Steps(folder, PLAN).scratch / "text").write_text("2")
        (folder / "a").write_text("1")
        (folder / "b").mkdir()
        assert not out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert sorted(path.name for path in out.iterdir()) == ["a", "b"]


def test_what_exists_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("mine")
    (tmp_path / "file").write_text("mine too")
    for name in ("out", "file"):
        refused(tmp_path / name, f"{name} exists and is not an empty folder")
    assert (tmp_path / "out" / "precious").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "mine too"


def refused(path: Path, problem: str) -> DataError:
    with pytest.raises(DataError, match=problem) as caught, new_folder(path):
        pytest.fail("it must not begin")
    return caught.value


def fill_half(out: Path, error: BaseException) -> None:
    with new_folder(out) as folder:
        steps = Steps(folder, PLAN)
        (folder / "a").write_text("1")
        steps.finish("first", {"n": 1}, [folder / "a"])
        raise error


@pytest.mark.parametrize("error", [DataError("bad text"), AiaynError("other")], ids=str)
def test_an_error_that_the_same_call_would_meet_again_leaves_nothing(tmp_path: Path, error: AiaynError) -> None:
    with pytest.raises(type(error)):
        fill_half(tmp_path / "out", error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        Terminated("SIGTERM"),
        ResumableError("a process was killed"),
        OSError(errno.EIO, "I/O error"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_interruption_leaves_what_is_done_to_the_next_call(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        fill_half(tmp_path / "out", error)
    assert [path.name for path in tmp_path.iterdir()] == ["out.partial"]
    with new_folder(tmp_path / "out") as folder:
        steps = Steps(folder, PLAN)
        assert steps.resumed
        assert steps.result("first") == {"n": 1}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_plainly_and_loses_nothing(tmp_path: Path, code: int) -> None:
    with pytest.raises(DataError, match=f"out does not fit on its disk: {os.strerror(code)}") as caught:
        fill_half(tmp_path / "out", OSError(code, os.strerror(code)))
    assert caught.value.hint == "free some space and run the same command again to resume, or give another --out"
    with new_folder(tmp_path / "out") as folder:
        assert Steps(folder, PLAN).result("first") == {"n": 1}


def test_a_link_to_a_folder_stays_and_the_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, target in (("link", "empty"), ("dangling", "elsewhere/new")):
        (tmp_path / name).symlink_to(target)
        with new_folder(tmp_path / name) as folder:
            (folder / "a").touch()
        assert (tmp_path / name).is_symlink()
        assert [path.name for path in (tmp_path / target).iterdir()] == ["a"]
    assert not list(tmp_path.rglob("*.partial"))


def test_folders_that_cannot_be_replaced_are_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, problem in (
        (Path(), ". is the folder that the command runs in"),
        (Path("nowhere") / "..", "nowhere/.. is the folder that the command runs in"),
        (Path("/"), "/ exists and is not an empty folder"),
    ):
        assert refused(path, re.escape(problem)).problem == problem
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "disk")
    error = refused(tmp_path / "disk", "disk is the root of a disk")
    assert error.hint == f"give a folder inside it, such as --out {tmp_path}/disk/prepared"
    assert [path.name for path in tmp_path.rglob("*")] == ["disk"]


def test_a_folder_that_another_process_finished_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def finish_first(lock: BinaryIO, operation: int) -> None:
        """What another process does between our look at the folder and our lock on it."""
        monkeypatch.setattr(fcntl, "flock", flock)
        (tmp_path / "out.partial").rename(tmp_path / "out")
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", finish_first)
    refused(tmp_path / "out", "out exists and is not an empty folder")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".lock", "out"]


def test_a_damaged_plan_is_another_plan(tmp_path: Path) -> None:
    steps = Steps(tmp_path, PLAN)
    (steps.scratch / "plan.json").write_bytes(b'{"seed')
    (tmp_path / "old").touch()
    assert not Steps(tmp_path, PLAN).resumed
    assert not (tmp_path / "old").exists()


def test_a_partial_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "mine").write_text("x")
    refused(tmp_path / "out", r"out\.partial is in the way")
    (tmp_path / "other.partial").symlink_to("out.partial")
    (tmp_path / "out.partial" / ".lock").touch()
    refused(tmp_path / "other", r"other\.partial is in the way")
    assert (tmp_path / "out.partial" / "mine").read_text() == "x"


def test_two_processes_do_not_write_the_same_folder(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("1")
        refused(tmp_path / "out", "is being written by another process")
    assert (tmp_path / "out" / "a").read_text() == "1"


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(tmp_path / "file" / "out", "out cannot be created")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_leftovers_that_cannot_be_removed_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("unlink", "rmdir"):
        monkeypatch.setattr(os, name, refuse)
    remove_leftovers(tmp_path)
