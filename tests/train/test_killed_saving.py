"""A kill at any file-system step of saving and pruning leaves whole checkpoints, and a run that goes on exactly."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import kill
from small_run import Train, ending_after, result_of

from aiayn_cli.average.session import AverageOptions, run_average
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints, resumable
from aiayn_cli.errors import Terminated
from aiayn_cli.files import UNFINISHED
from aiayn_cli.train import session as session_module

pytestmark = pytest.mark.usefixtures("one_process")

# The last save removes a checkpoint, and the place of an interruption, and moves `best`.
SETTINGS = ["training.best_metric=loss", "training.validation_bleu_pairs=0", "training.keep_checkpoints=2"]
STEPS = ("mkdir", "rename", "replace", "symlink", "link", "unlink", "rmdir", "chmod", "truncate", "fsync")


def killed_at(number: int, save: Callable[[], None]) -> str:
    """Save in another process that dies before its n-th step; name the step, or "" where it had fewer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        count = iter(range(1, 10_000))

        def watch(name: str) -> None:
            original = getattr(os, name)

            def watched(*args: Any, **kwargs: Any) -> Any:
                if next(count) == number:
                    os.write(writing, name.encode())
                    kill()
                return original(*args, **kwargs)

            setattr(os, name, watched)

        try:
            for name in STEPS:
                watch(name)
            save()
        finally:
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        step = said.read()
    assert os.WIFSIGNALED(status) == bool(step)
    return step


def content_of(run: Path, *, with_unfinished: bool = True) -> str:
    """A hash of a run; without what stands under names that show it is unfinished, which the next call removes."""
    found = hashlib.sha256()
    for path in sorted(run.rglob("*")):
        if not with_unfinished and UNFINISHED in str(path):
            continue
        found.update(str(path.relative_to(run)).encode())
        found.update(str(path.readlink()).encode() if path.is_symlink() else b"")
        found.update(path.read_bytes() if path.is_file() and not path.is_symlink() else b"")
    return found.hexdigest()


def check_is_whole(path: Path) -> None:
    found = load_checkpoint(path)  # each file is compared to its hash
    assert found.weights()
    assert load_training(path).state["step"] == found.step
    assert found.vocab_path.is_file()


def test_a_kill_at_any_step_of_saving_and_pruning_loses_nothing(
    train: Train, tmp_path: Path, run_once: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_once(*SETTINGS)
    assert expected["in the folder"] == ["best", "step-00000008", "step-00000012"]
    assert expected["best"] == Path("step-00000012")
    with ending_after(11, "SIGTERM"), pytest.raises(Terminated):
        train(*SETTINGS)
    run = tmp_path / "run"
    save = session_module.Session._save
    steps: list[str] = []
    left: dict[str, Path] = {}  # what kills leave: the same may come of several

    def save_and_die(*args: Any) -> None:
        shutil.copytree(run, tmp_path / "before", symlinks=True)
        while step := killed_at(len(steps) + 1, lambda: save(*args)):
            steps.append(step)
            left.setdefault(content_of(run), run.rename(tmp_path / f"killed-{len(steps)}"))
            shutil.copytree(tmp_path / "before", run, symlinks=True)
        save(*args)

    with monkeypatch.context() as patch:
        patch.setattr(session_module.Session, "_save", save_and_die)
        train(*SETTINGS)
    assert {"mkdir", "rename", "replace", "symlink", "unlink", "rmdir", "fsync"} <= set(steps)
    assert steps.count("rename") == 3  # the new checkpoint, and two that are removed
    assert len(left) > 15
    assert result_of(run) == expected

    kinds: set[str] = set()
    for killed in left.values():
        best = killed / "checkpoints" / "best"
        for path in (*resumable(killed), *([best] if best.is_symlink() else [])):
            check_is_whole(path)
        assert len(list_checkpoints(killed)) >= 2
        if (kind := content_of(killed, with_unfinished=False)) in kinds:
            continue
        kinds.add(kind)
        run_average([killed], AverageOptions(last=2))
        shutil.rmtree(killed / "averaged")
        train(*SETTINGS, name=killed.name)
        assert result_of(killed) == expected, killed.name
    assert len(kinds) >= 4
