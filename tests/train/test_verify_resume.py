"""The proof that a killed run goes on exactly: it finds a difference, and leaves nothing behind."""

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aiayn_cli.app import main
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import AiaynError, Terminated
from aiayn_cli.train import preflight
from aiayn_cli.train.preflight import run_verify_resume

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")


def test_verify_resume_kills_a_run_and_finds_the_same(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path
) -> None:
    arguments = ["--recipe", str(small_recipe), "--data", str(small_data.folder), "--device", "cpu"]
    found = run_verify_resume(arguments, tmp_path / "run")
    assert found.digest_resumed == found.digest_unbroken
    assert len(found.digest_unbroken) == 64
    assert found.resumed_from < found.killed_after < found.updates
    assert len(found.losses) == found.updates
    assert list(tmp_path.iterdir()) == []


def test_verify_resume_would_notice_a_difference(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(command: list[str], run: Path, updates: int) -> int:
        preflight._run([*command, "--set", f"training.max_updates={updates}"], run)
        state = run / "checkpoints" / f"step-{updates:08d}" / "training" / "state.json"
        content = json.loads(state.read_bytes())
        content["position"] = {"epoch": 1, "pairs": 0}  # as if the rest of the epoch had been lost
        state.write_text(json.dumps(content))
        described = state.parent.parent / "model.json"
        model = json.loads(described.read_bytes())
        model["files"]["training/state.json"] = hashlib.sha256(state.read_bytes()).hexdigest()
        described.write_text(json.dumps(model))
        return updates + 1

    monkeypatch.setattr(preflight, "_run_and_kill", spoilt)
    monkeypatch.setattr(preflight, "_run", in_this_process)
    arguments = ["--recipe", str(small_recipe), "--data", str(small_data.folder), "--device", "cpu"]
    with pytest.raises(AiaynError, match=r"the resumed run differs: [0-9a-f]{64} instead of [0-9a-f]{64}"):
        run_verify_resume(arguments, tmp_path / "run")


def test_verify_resume_that_is_stopped_leaves_nothing_behind(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[subprocess.Popen[str]] = []

    class Stopped(subprocess.Popen):  # type: ignore[type-arg]
        def poll(self) -> Any:  # while the first run trains
            if not children:
                children.append(self)
                os.kill(os.getpid(), signal.SIGTERM)
            return super().poll()

    monkeypatch.setattr(subprocess, "Popen", Stopped)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated):
        run_verify_resume(["--recipe", str(small_recipe), "--data", str(small_data.folder)], tmp_path / "run")
    assert [child.returncode for child in children] == [-signal.SIGKILL]
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def in_this_process(command: list[str], run: Path) -> None:
    assert main([*command[3:], "--out", str(run)]) == 0


def test_a_proof_takes_no_fresh_that_would_begin_its_own_runs_anew(
    small_data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(preflight, "run_verify_resume", lambda arguments, *_: asked.append(arguments) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["train", "--verify-resume", "--fresh", "--recipe", "tiny", "--data", str(small_data.folder)])
    assert asked == [["--recipe", "tiny", "--data", str(small_data.folder), "--device", "auto"]]


def test_a_proof_whose_killed_run_began_anew_is_none(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(command: list[str], run: Path, updates: int) -> int:
        in_this_process([*command, "--set", f"training.max_updates={updates}"], run)
        return updates + 1

    monkeypatch.setattr(preflight, "_run_and_kill", half)
    monkeypatch.setattr(preflight, "_run", in_this_process)
    arguments = ["--recipe", str(small_recipe), "--data", str(small_data.folder), "--device", "cpu", "--fresh"]
    with pytest.raises(AiaynError, match="the killed run resumed from its beginning, not from update 4"):
        run_verify_resume(arguments, tmp_path / "run")


def test_a_dry_run_and_a_proof_at_once_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", "--verify-resume"]) == 2
    assert "contradict" in capsys.readouterr().err
