"""A disk that is full, or that cannot be written any more, costs no more than the updates since the last checkpoint."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_run import result_of

from aiayn_cli.app import main
from aiayn_cli.checkpoint import checkpoint as checkpoint_module
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("a disk of its own needs root and `mount`")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(done.stderr.strip())
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def after_update(number: int, act: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Do something when a trainer has done an update, before it records it."""
    update = Trainer._update

    def watched(self: Trainer, *args: Any) -> Any:
        found = update(self, *args)
        if self.state.step == number:
            act()
        return found

    patch.setattr(Trainer, "_update", watched)


def fill(disk: Path, left: int) -> None:
    """Leave so many bytes of a disk free."""
    with (disk / "ballast").open("wb") as file:
        file.write(bytes(max(0, shutil.disk_usage(disk).free - left)))


def told_in(err: str) -> list[str]:
    """The one message of what ended a command."""
    told = [line for line in err.split("\n") if line.startswith(("error:", "hint:"))]
    assert len(told) == 2, err
    assert "Traceback" not in err
    return told


@pytest.mark.parametrize(
    ("update", "left"),
    [(6, 0), (8, 90_112)],  # in metrics.jsonl, in a checkpoint's last file
)
def test_a_disk_that_fills_up_leaves_the_last_checkpoint_whole_and_the_run_goes_on_exactly(
    update: int, left: int, small_disk: Path, command: Callable[..., list[str]], unbroken: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(checkpoint_module, "_SPARE_BYTES", 0)  # else it would not even begin to write
    run, words = small_disk / "run", command("max_updates=12", run="disk/run")
    with monkeypatch.context() as patch:
        after_update(update, lambda: fill(small_disk, left), patch)
        code = main(words)
    err = capsys.readouterr().err
    (small_disk / "ballast").unlink()
    assert code == 1
    told = told_in(err)
    assert "No space left" in told[0] or "it takes" in told[0]
    assert str(run) in told[0]
    assert "space" in told[1]
    newest = list_checkpoints(run)[-1]
    assert load_checkpoint(newest).step == load_training(newest).state["step"] >= 4
    assert main(words) == 0
    assert result_of(run) == unbroken


def test_a_disk_that_becomes_read_only_is_told_and_the_run_goes_on_exactly_when_it_can(
    small_disk: Path, command: Callable[..., list[str]], unbroken: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(checkpoint_module, "_SPARE_BYTES", 0)
    run, words = small_disk / "run", command("max_updates=12", run="disk/run")
    with monkeypatch.context() as patch:
        after_update(8, lambda: remount(small_disk, "ro"), patch)
        assert main(words) == 1
    assert "Read-only file system" in told_in(capsys.readouterr().err)[0]
    for each in (words, [*words, "--fresh"], [*words[:-2], "--out", str(small_disk / "other")]):
        assert main(each) == 1
        assert "Read-only file system" in told_in(capsys.readouterr().err)[0]
    remount(small_disk, "rw")
    assert main(words) == 0
    assert result_of(run) == unbroken


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)
