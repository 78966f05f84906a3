"""Before a run trains, impossible settings are refused by name; a dry run and the proof of resuming leave no trace."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import change_tensors, hash_anew
from small_run import Train, ending_after, flip_a_bit, tensors_of

from aiayn_cli import logs
from aiayn_cli.app import main
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import checkpoint_path, find_model, list_checkpoints, newest_run
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device
from aiayn_cli.errors import AiaynError, CheckpointError, ConfigError, Terminated
from aiayn_cli.recipe_keys import ModelConfig, Recipe, TrainingConfig
from aiayn_cli.score import metrics
from aiayn_cli.train import preflight
from aiayn_cli.train import session as session_module
from aiayn_cli.train.preflight import DryRunResult, check_memory, disk_needed, run_verify_resume
from aiayn_cli.train.resume import load_newest
from aiayn_cli.train.session import TrainResult
from aiayn_cli.train.validation import too_long

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")
CPU = Device(torch.device("cpu"), torch.float32, 1, "")

DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit of the weights": lambda path: flip_a_bit(path / "weights.safetensors"),
    "a bit of the moments": lambda path: flip_a_bit(path / "training" / "moments.safetensors"),
    "no weights": lambda path: (path / "weights.safetensors").unlink(),
    "no state": lambda path: shutil.rmtree(path / "training"),
    "an empty model.json": lambda path: (path / "model.json").write_bytes(b""),
    "a step of text": lambda path: (path / "training" / "state.json").write_text('{"step": "x", "position": {}}'),
    "a position below 0": lambda path: (path / "training" / "state.json").write_text(
        '{"step": 8, "position": {"epoch": 0, "pairs": -1}}'
    ),
    # With hashes that say nothing of it:
    "a weight that is no number": lambda path: spoil(path, "weights.safetensors"),
    "a moment that is no number": lambda path: spoil(path, "training/moments.safetensors"),
    "a position behind the data": lambda path: change_state(path, position={"epoch": 0, "pairs": 10**9}),
    "another update": lambda path: change_state(path, step=7),
    "a best checkpoint to come": lambda path: change_state(path, best_step=9),
}


def spoil(path: Path, name: str) -> None:
    change_tensors(path / name, lambda tensors: next(iter(tensors.values())).flatten()[5].fill_(torch.nan))
    hash_anew(path)


def change_state(path: Path, **changes: object) -> None:
    file = path / "training" / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **changes}))
    hash_anew(path)


@pytest.fixture(scope="module")
def eight_updates(train_into: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("eight") / "run"
    train_into(run, "max_updates=8")
    return run


@pytest.fixture
def run(eight_updates: Path, tmp_path: Path) -> Path:
    """A copy of it to change."""
    return shutil.copytree(eight_updates, tmp_path / "run", symlinks=True)


@pytest.fixture(autouse=True)
def _short_dry_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_MOST_UPDATES", 4)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_newest_checkpoint_is_kept_aside_and_the_one_before_takes_its_place(
    damage: Callable[[Path], None], run: Path, small_data: PreparedData, capsys: pytest.CaptureFixture[str]
) -> None:
    before, newest = list_checkpoints(run)
    damage(newest)
    files = {path.name: path.read_bytes() for path in newest.rglob("*") if path.is_file()}
    weights = {name: torch.zeros_like(weight) for name, weight in load_checkpoint(before).weights().items()}
    capsys.readouterr()
    found = load_newest(run, weights, len(small_data.train))
    assert "the checkpoint step-00000008 is damaged: using step-00000004 instead" in capsys.readouterr().err
    assert found is not None
    assert found[0].step == 4
    assert all(torch.equal(weight, weights[name]) for name, weight in load_checkpoint(before).weights().items())
    aside = run / "checkpoints" / "damaged-step-00000008"
    assert {path.name: path.read_bytes() for path in aside.rglob("*") if path.is_file()} == files


def test_a_run_goes_on_exactly_from_before_a_damaged_checkpoint(
    train: Train, run: Path, unbroken: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    flip_a_bit(list_checkpoints(run)[-1] / "weights.safetensors")
    train()
    assert f"resuming {run} from update 4" in capsys.readouterr().err
    assert tensors_of(run) == unbroken["tensors"]


def test_where_all_checkpoints_are_damaged_the_newest_is_named_and_all_stay(train: Train, run: Path) -> None:
    for path in list_checkpoints(run):
        flip_a_bit(path / "weights.safetensors")
    with pytest.raises(CheckpointError, match=r"step-00000008/weights\.safetensors is not as it was written"):
        train()
    assert len(list_checkpoints(run)) == 2


def test_a_run_stopped_before_its_first_checkpoint_has_a_model_and_goes_on(
    train: Train, tmp_path: Path, unbroken: dict[str, Any], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with ending_after(2, "SIGINT"), pytest.raises(KeyboardInterrupt):
        train(name="runs/early")
    place = Path("runs/early/checkpoints/interrupted-00000002")
    assert newest_run() == Path("runs/early")
    assert find_model() == place
    assert "was stopped before its first checkpoint" in capsys.readouterr().err
    assert main(["average"]) == 1
    said = capsys.readouterr().err
    assert "runs/early was stopped before its first checkpoint, so there is nothing to average" in said
    assert "translate with interrupted-00000002: `aiayn translate --model runs/early`" in said
    train(name="runs/early")
    assert tensors_of(tmp_path / "runs" / "early") == unbroken["tensors"]


def test_a_pair_too_long_for_learned_positions_is_refused_or_left_out_of_validation(
    train: Train, small_data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = 1 + max(small_data.train.longest)
    learned = "model.positions=learned"
    with pytest.raises(ConfigError, match=f"max_positions is 5, but a training pair has {longest} tokens") as error:
        train(learned, "model.max_positions=5")
    assert f"set it to {longest} or more" in error.value.hint
    assert not (tmp_path / "run").exists()
    assert too_long(small_data.train, longest) == 0
    assert too_long(small_data.train, longest - 1) > 0


def test_validation_goes_on_without_pairs_that_are_too_long(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_module, "longest_validated", lambda *_: 8)
    train("max_updates=4")
    assert "too long for the network" in capsys.readouterr().err
    record = next(r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if r["event"] == "validation")
    assert record["loss"] > 0


def test_a_network_too_large_for_the_memory_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(model=ModelConfig(d_model=1_000_000))
    with pytest.raises(AiaynError, match=r"too large for this device: [\d,]+ parameters take [\d,.]+ GB") as error:
        check_memory(recipe, 37_000, CPU)
    assert "lower model.d_model" in error.value.hint
    with pytest.raises(AiaynError, match="too large for this device"):
        check_memory(Recipe(model=ModelConfig(d_model=1 << 40)), 37_000, CPU)
    before = torch.get_rng_state()
    check_memory(Recipe(model=ModelConfig(d_model=32, d_ff=32)), 100, CPU)
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(preflight, "free_memory", lambda _: None)  # where nobody knows
    check_memory(recipe, 37_000, CPU)


def test_checkpoints_that_will_not_fit_are_announced(
    train: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=17 << 20))  # enough for one small one
    train("max_updates=1")
    assert "checkpoints will take up to" not in capsys.readouterr().err  # 3 of 0.07 MB fit
    monkeypatch.setattr(preflight, "bytes_of", lambda _: 10_000_000)
    train("max_updates=2")
    assert "checkpoints will take up to 60.0 MB more, and 17.8 MB are free" in capsys.readouterr().err


def test_a_short_run_needs_disk_for_the_checkpoints_that_it_makes() -> None:
    weights = [torch.zeros(3, 4), torch.zeros(5)]  # 17 numbers; each with two moments
    few = TrainingConfig(max_updates=10, save_every_steps=4, keep_checkpoints=7)
    assert disk_needed(weights, few) == (204, 204 * (3 + 2))
    assert disk_needed(weights, replace(few, max_updates=1_000)) == (204, 204 * (7 + 2))
    assert disk_needed(weights, replace(few, save_every_minutes=0.1)) == (204, 204 * (7 + 2))
    assert disk_needed(weights, replace(few, ema_decay=0.9)) == (272, 272 * (3 + 2))


def test_a_tokeniser_that_validation_lacks_is_named_before_the_first_update(
    train: Train, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def not_installed(**_: Any) -> None:
        raise RuntimeError("please install MeCab")  # as sacreBLEU does for ja-mecab

    monkeypatch.setattr(metrics, "BLEU", not_installed)
    with pytest.raises(AiaynError, match="needs a package that is not installed"):
        train()
    assert not list_checkpoints(tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert train("best_metric=loss", "validation_bleu_pairs=0").updates == 12


def test_a_dry_run_says_what_it_takes_and_leaves_no_trace(
    train: Train, tmp_path: Path, small_data: PreparedData
) -> None:
    found = train(dry_run=True)
    assert isinstance(found, DryRunResult)
    assert list(tmp_path.iterdir()) == []
    longest = 1 + max(small_data.train.longest)
    assert max(found.batch_src_tokens, found.batch_tgt_tokens) == longest
    assert found.batch_pairs == 70 // longest
    assert (found.max_tokens, found.updates_left) == (70, 12)
    assert found.micro_batches == 2  # 120 tokens in an update, at most 70 in each
    assert train("max_tokens=100", dry_run=True).micro_batches == 2  # 120 / 100, rounded up
    assert found.tokens_per_second > 0
    assert found.hours == pytest.approx(12 * found.seconds_per_update / 3600)
    assert found.memory_bytes > 50e6  # torch alone
    trained = train()
    assert isinstance(trained, TrainResult)
    size = sum(path.stat().st_size for path in list_checkpoints(tmp_path / "run")[-1].rglob("*.safetensors"))
    assert found.checkpoint_bytes == pytest.approx(size, rel=0.2)
    for text in ("largest batch", "memory", "disk", "speed", "time"):
        assert text in str(found)


def test_a_dry_run_of_a_run_counts_what_is_left_and_changes_nothing(train: Train, run: Path, tmp_path: Path) -> None:
    flip_a_bit(list_checkpoints(run)[-1] / "weights.safetensors")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert train(dry_run=True).updates_left == 8  # from the checkpoint of update 4
    assert train(dry_run=True, resume=False).updates_left == 12
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_dry_run_shows_its_own_updates_and_not_those_of_the_run(
    train: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_LINES", 0.0)
    train("max_updates=8")
    assert "training: 8 of 8 updates (100 %)" in capsys.readouterr().err
    train("max_updates=1000", dry_run=True)
    lines = [line for line in capsys.readouterr().err.split("\n") if line.startswith("measuring: ")]
    assert lines[0].startswith("measuring: 1 update, ")
    assert all("left" not in line and " of " not in line for line in lines)


@pytest.fixture
def arguments(small_recipe: Path, small_data: PreparedData) -> list[str]:
    return ["--recipe", str(small_recipe), "--data", str(small_data.folder), "--device", "cpu"]


def in_this_process(command: list[str], run: Path) -> None:
    assert main([*command[3:], "--out", str(run)]) == 0


def test_verify_resume_kills_a_run_and_finds_the_same(arguments: list[str], tmp_path: Path) -> None:
    found = run_verify_resume(arguments, tmp_path / "run")
    assert found.digest_resumed == found.digest_unbroken
    assert len(found.digest_unbroken) == 64
    assert found.resumed_from < found.killed_after < found.updates
    assert len(found.losses) == found.updates
    assert list(tmp_path.iterdir()) == []


def test_verify_resume_would_notice_a_difference(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(command: list[str], run: Path, updates: int) -> int:
        preflight._run([*command, "--set", f"training.max_updates={updates}"], run)
        # As if the rest of the epoch had been lost.
        change_state(checkpoint_path(run, updates), position={"epoch": 1, "pairs": 0})
        return updates + 1

    monkeypatch.setattr(preflight, "_run_and_kill", spoilt)
    monkeypatch.setattr(preflight, "_run", in_this_process)
    with pytest.raises(AiaynError, match=r"the resumed run differs: [0-9a-f]{64} instead of [0-9a-f]{64}"):
        run_verify_resume(arguments, tmp_path / "run")


def test_verify_resume_that_is_stopped_leaves_nothing_behind(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        run_verify_resume(arguments, tmp_path / "run")
    assert [child.returncode for child in children] == [-signal.SIGKILL]
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_proof_takes_no_fresh_that_would_begin_its_own_runs_anew(
    small_data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(preflight, "run_verify_resume", lambda arguments, *_: asked.append(arguments) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["train", "--verify-resume", "--fresh", "--recipe", "tiny", "--data", str(small_data.folder)])
    assert asked == [["--recipe", "tiny", "--data", str(small_data.folder), "--device", "auto"]]


def test_a_proof_whose_killed_run_began_anew_is_none(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(command: list[str], run: Path, updates: int) -> int:
        in_this_process([*command, "--set", f"training.max_updates={updates}"], run)
        return updates + 1

    monkeypatch.setattr(preflight, "_run_and_kill", half)
    monkeypatch.setattr(preflight, "_run", in_this_process)
    with pytest.raises(AiaynError, match="the killed run resumed from its beginning, not from update 4"):
        run_verify_resume([*arguments, "--fresh"], tmp_path / "run")


def test_a_dry_run_and_a_proof_at_once_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", "--verify-resume"]) == 2
    assert "contradict" in capsys.readouterr().err


def test_a_dry_run_of_a_finished_run_says_so_and_measures_nothing(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", *arguments, "--out", str(tmp_path / "run"), "--set", "training.max_updates=2"]
    assert main(line) == 0
    assert main([*line, "--fresh", "--dry-run"]) == 0
    assert f"next: aiayn train --recipe {arguments[1]} --data {arguments[3]}" in capsys.readouterr().err
    assert main([*line, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path / 'run'}: 2 updates")
    assert "is finished after 2 updates" in err
    assert f"next: aiayn average {tmp_path / 'run'}" in err
