"""The checkpoints of a run are in the order of their steps, and the one that is meant is found."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import described, fail_at, is_whole, kill, some_weights

from aiayn_cli.checkpoint.checkpoint import load_checkpoint, save_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import (
    checkpoint_path,
    find_model,
    interrupted_path,
    list_checkpoints,
    mark_best,
    newest_resumable,
    newest_run,
    prune_checkpoints,
    remove_leftovers,
)
from aiayn_cli.errors import CheckpointError

pytestmark = pytest.mark.usefixtures("no_flush")


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    steps = [100, 9, 10, 1_000_000_000, 99]
    run = tmp_path / "run"
    for step in steps:
        checkpoint_path(run, step).mkdir(parents=True)
    (run / "checkpoints" / "step-7").mkdir()  # without the zeros, as another version may write
    assert [int(path.name[5:]) for path in list_checkpoints(run)] == sorted([*steps, 7])
    assert newest_resumable(run) == checkpoint_path(run, 1_000_000_000)


def test_only_whole_checkpoints_of_the_run_itself_are_listed(saved: Callable[..., Path], tmp_path: Path) -> None:
    first, second = saved(3), saved(4)
    folder = first.parent
    (folder / "step-00000009").symlink_to(first.name)
    (folder / ".unfinished-step-00000008").mkdir()
    (folder / "step-last").mkdir()
    (folder / "step-00000006").write_text("a file")
    interrupted_path(tmp_path / "run", 5).mkdir()
    mark_best(tmp_path / "run", first)
    assert list_checkpoints(tmp_path / "run") == [first, second]
    assert newest_resumable(tmp_path / "run") == interrupted_path(tmp_path / "run", 5)
    assert list_checkpoints(tmp_path / "other") == []
    assert newest_resumable(tmp_path / "other") is None


def names(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_pruning_keeps_the_newest_and_the_best(saved: Callable[..., Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    paths = {step: saved(step) for step in (2, 4, 10, 100)}
    mark_best(run, paths[2])
    assert prune_checkpoints(run, keep=2) == [paths[4]]
    assert names(run) == ["best", "step-00000002", "step-00000010", "step-00000100"]
    mark_best(run, paths[100])
    assert prune_checkpoints(run, keep=2) == [paths[2]]
    assert prune_checkpoints(run, keep=2) == []
    assert load_checkpoint(run / "checkpoints" / "best").path == paths[100]


def test_the_place_of_an_interruption_goes_when_there_is_a_later_checkpoint_or_one_of_its_update(
    saved: Callable[..., Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    saved(2)
    for step, later in ((3, 4), (5, 5)):  # the second: where a validation was stopped
        place = saved(step, path=interrupted_path(run, step))
        assert prune_checkpoints(run, keep=2) == []
        regular = saved(later)
        assert newest_resumable(run) == regular
        assert prune_checkpoints(run, keep=3) == [place]


def test_a_kill_while_pruning_leaves_no_half_checkpoint(
    saved: Callable[..., Path], vocab: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for step in (2, 4, 6):
        saved(step)
    child = os.fork()
    if child == 0:
        with pytest.MonkeyPatch.context() as patch:
            fail_at(patch, os, "unlink", 2, kill)
            prune_checkpoints(run, keep=1)
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert all(is_whole(path, 0, vocab) for path in list_checkpoints(run))
    assert checkpoint_path(run, 6) in list_checkpoints(run)
    remove_leftovers(run)
    assert len(names(run)) == len(list_checkpoints(run))


@pytest.mark.parametrize(
    "before",
    [
        lambda best, first: mark_best(best.parent.parent, first),
        lambda best, first: shutil.copytree(first, best),  # as `cp -rL` and many archives do with a link
        lambda best, first: best.symlink_to("best"),
    ],
)
def test_the_best_is_a_link_whatever_was_in_its_place_and_moves_with_the_run(
    before: Callable[[Path, Path], object], saved: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    first, second = saved(2), saved(4)
    before(run / "checkpoints" / "best", first)
    assert prune_checkpoints(run, keep=2) == []
    mark_best(run, second)
    assert names(run) == ["best", "step-00000002", "step-00000004"]
    assert (run / "checkpoints" / "best").is_symlink()
    run.rename(tmp_path / "moved")
    assert load_checkpoint(tmp_path / "moved" / "checkpoints" / "best").step == 4
    monkeypatch.chdir(tmp_path)
    assert str(load_checkpoint(Path("moved/checkpoints/best")).path) == "moved/checkpoints/step-00000004"


def test_the_model_of_a_run_is_its_average_else_its_best_else_its_newest(
    saved: Callable[..., Path], vocab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    first, second = saved(9), saved(10)
    assert find_model(run) == second
    mark_best(run, first)
    assert find_model(run) == run / "checkpoints" / "best"
    assert load_checkpoint(find_model(run)).step == 9
    save_checkpoint(replace(described(run / "averaged"), parents=("x",)), some_weights(), vocab)
    assert find_model(run) == run / "averaged"
    assert find_model(second) == second
    assert "averaged is out of date (update 7; the run is at 10): run `aiayn average" in capsys.readouterr().err
    shutil.rmtree(run / "averaged")
    shutil.rmtree(first)  # best points nowhere
    assert find_model(run) == second


def test_without_a_path_the_run_that_was_trained_last_is_taken(
    saved: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(50, run="runs/a")
    saved(60, run="runs/b")
    saved(2, run="runs/a")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "notes.txt").write_text("")
    os.utime(checkpoint_path(Path("runs/a"), 50), ns=(1, 1_000))
    os.utime(checkpoint_path(Path("runs/b"), 60), ns=(1, 2_000))
    assert newest_run() == Path("runs/b")
    assert find_model() == checkpoint_path(Path("runs/b"), 60)
    os.utime(checkpoint_path(Path("runs/a"), 50), ns=(1, 3_000))
    assert newest_run() == Path("runs/a")


def test_a_run_without_a_checkpoint_is_not_the_newest_and_is_mentioned(
    saved: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    older = saved(50, run="runs/a")
    os.utime(older, ns=(1, 1_000))
    (tmp_path / "runs" / "crashed").mkdir()
    (tmp_path / "runs" / "crashed" / "manifest.json").write_text("{}")
    saved(3, path=interrupted_path(Path("runs/stopped"), 3))
    (tmp_path / "runs" / "stopped" / "manifest.json").write_text("{}")
    assert find_model() == checkpoint_path(Path("runs/a"), 50)
    said = capsys.readouterr().err.split("\n")
    assert said[:2] == [
        f"runs/{name} is newer, but has no checkpoint yet: taking runs/a" for name in ("crashed", "stopped")
    ]
    shutil.rmtree(older)
    assert find_model() == interrupted_path(Path("runs/stopped"), 3)


def test_where_there_is_no_model_the_message_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for path, message in ((None, "no trained model in runs/"), (Path("empty"), "empty holds no model")):
        with pytest.raises(CheckpointError, match=message) as error:
            find_model(path)
        assert error.value.hint


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("tiny", "did you mean runs/tiny?"),
        ("runs/tniy", "did you mean runs/tiny?"),
        ("runs/tiny/checkpoints/step-400", "did you mean runs/tiny/checkpoints/step-00000400?"),
        ("nowhere", "name a run such as runs/tiny, or a checkpoint in it"),
    ],
)
def test_a_run_that_does_not_exist_is_answered_with_the_nearest(
    path: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoint_path(Path("runs/tiny"), 400).mkdir(parents=True)
    with pytest.raises(CheckpointError, match=f"^{path} does not exist$") as error:
        find_model(Path(path))
    assert error.value.hint == hint
