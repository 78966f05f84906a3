"""Before a run trains, what cannot work is refused by name, and a damaged checkpoint costs no more than itself."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aiayn_cli.app import main
from aiayn_cli.checkpoint import load_checkpoint, load_training
from aiayn_cli.config import ModelConfig, Recipe, TrainingConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device
from aiayn_cli.errors import AiaynError, CheckpointError, ConfigError, Terminated
from aiayn_cli.evaluation import metrics
from aiayn_cli.run_checkpoints import find_model, list_checkpoints, newest_run
from aiayn_cli.stages import train_session as session_module
from aiayn_cli.stages import train_start as module
from aiayn_cli.stages.dry_run import DryRunResult
from aiayn_cli.stages.train import run_train
from aiayn_cli.stages.train_result import TrainResult
from aiayn_cli.stages.train_start import check_memory, disk_needed
from aiayn_cli.stages.verify_resume import run_verify_resume
from aiayn_cli.training.metrics import read_metrics
from aiayn_cli.training.trainer import Trainer

CPU = Device(torch.device("cpu"), torch.float32, 1, "")


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


@pytest.fixture
def train(small_data: PreparedData, small_recipe: Path, tmp_path: Path) -> Callable[..., Any]:
    def run(*settings: str, name: str = "run", **options: Any) -> Any:
        return run_train(str(small_recipe), settings, data=small_data.folder, out=tmp_path / name, **options)

    return run


def tensors_of(run: Path) -> dict[str, bytes]:
    newest = list_checkpoints(run)[-1]
    tensors = {**load_checkpoint(newest).weights(), **load_training(newest).moments}
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


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
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_newest_checkpoint_is_kept_aside_and_the_one_before_takes_its_place(
    damage: Callable[[Path], None], train: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train("training.max_updates=8")
    newest = list_checkpoints(run)[-1]
    damage(newest)
    files = {path.name: path.read_bytes() for path in newest.rglob("*") if path.is_file()}
    capsys.readouterr()
    train("training.max_updates=12")
    err = capsys.readouterr().err
    assert "the checkpoint step-00000008 is damaged: step-00000004 takes its place" in err
    assert f"going on with {run} from update 4" in err
    train("training.max_updates=12", name="unbroken")
    assert tensors_of(run) == tensors_of(tmp_path / "unbroken")
    aside = run / "checkpoints" / "damaged-step-00000008"
    assert {path.name: path.read_bytes() for path in aside.rglob("*") if path.is_file()} == files


def test_where_all_checkpoints_are_damaged_the_newest_is_named_and_all_stay(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    train("training.max_updates=8")
    for path in list_checkpoints(tmp_path / "run"):
        flip_a_bit(path / "weights.safetensors")
    with pytest.raises(CheckpointError, match=r"step-00000008/weights\.safetensors is not as it was written"):
        train()
    assert len(list_checkpoints(tmp_path / "run")) == 2


def stop_after(updates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    update, count = Trainer._update, iter(range(1, 100))

    def watched(self: Trainer, *args: Any) -> Any:
        found = update(self, *args)
        return replace(found, signal="SIGINT") if next(count) == updates else found

    monkeypatch.setattr(Trainer, "_update", watched)


def test_a_run_stopped_before_its_first_checkpoint_has_a_model_and_goes_on(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(KeyboardInterrupt):
            train(name="runs/early")
    place = Path("runs/early/checkpoints/interrupted-00000002")
    assert newest_run() == Path("runs/early")
    assert find_model() == place
    assert "was stopped before its first checkpoint" in capsys.readouterr().err
    assert main(["average"]) == 1
    said = capsys.readouterr().err
    assert "runs/early was stopped before its first checkpoint, and there is nothing to average" in said
    assert "`aiayn translate --model runs/early` takes interrupted-00000002 as it is" in said
    train(name="runs/early")
    train(name="unbroken")
    assert tensors_of(tmp_path / "runs" / "early") == tensors_of(tmp_path / "unbroken")


def test_a_pair_too_long_for_learned_positions_is_refused_or_left_out_of_validation(
    train: Callable[..., Any], small_data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = 1 + max(int(small_data.train.src_lengths.max()), int(small_data.train.tgt_lengths.max()))
    learned = "model.positions=learned"
    with pytest.raises(ConfigError, match=f"max_positions is 5, but a training pair has {longest} tokens") as error:
        train(learned, "model.max_positions=5")
    assert f"set it to {longest} or more" in error.value.hint
    assert not (tmp_path / "run").exists()
    assert module.too_long(small_data.train, longest) == 0
    assert module.too_long(small_data.train, longest - 1) > 0


def test_validation_goes_on_without_pairs_that_are_too_long(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_module, "longest_validated", lambda *_: 8)
    train("training.max_updates=4")
    assert "validation pairs are too long for the network and left out" in capsys.readouterr().err
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
    monkeypatch.setattr(module, "free_memory", lambda _: None)  # where nobody knows
    check_memory(recipe, 37_000, CPU)


def test_a_dry_run_says_what_it_takes_and_leaves_no_trace(
    train: Callable[..., Any], tmp_path: Path, small_data: PreparedData
) -> None:
    found = train(dry_run=True)
    assert isinstance(found, DryRunResult)
    assert list(tmp_path.iterdir()) == []
    longest = 1 + max(int(small_data.train.src_lengths.max()), int(small_data.train.tgt_lengths.max()))
    assert max(found.batch_src_tokens, found.batch_tgt_tokens) == longest
    assert found.batch_pairs == 70 // longest
    assert (found.max_tokens, found.updates_left) == (70, 12)
    assert found.micro_batches == 2  # 120 tokens in an update, at most 70 in each
    assert train("training.max_tokens=100", dry_run=True).micro_batches == 2  # 120 / 100, rounded up
    assert found.tokens_per_second > 0
    assert found.hours == pytest.approx(12 * found.seconds_per_update / 3600)
    assert found.memory_bytes > 50e6  # torch alone
    trained = train()
    assert isinstance(trained, TrainResult)
    size = sum(path.stat().st_size for path in list_checkpoints(tmp_path / "run")[-1].rglob("*.safetensors"))
    assert found.checkpoint_bytes == pytest.approx(size, rel=0.2)
    for text in ("largest batch", "memory", "disk", "speed", "time"):
        assert text in str(found)


def test_a_dry_run_of_a_run_counts_what_is_left_and_changes_nothing(train: Callable[..., Any], tmp_path: Path) -> None:
    train("training.max_updates=8")
    flip_a_bit(list_checkpoints(tmp_path / "run")[-1] / "weights.safetensors")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert train(dry_run=True).updates_left == 8  # from the checkpoint of update 4
    assert train(dry_run=True, resume=False).updates_left == 12
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_checkpoints_that_will_not_fit_are_announced(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=17 << 20))  # enough for one small one
    train("training.max_updates=1")
    assert "GB are free; one that does not fit ends training" not in capsys.readouterr().err  # 3 of 0.07 MB fit
    monkeypatch.setattr(module, "bytes_of", lambda _: 10_000_000)
    train("training.max_updates=2")
    assert "checkpoints will take up to 0.06 GB more, and 0.02 GB are free" in capsys.readouterr().err


def test_verify_resume_kills_a_run_and_finds_the_same(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path
) -> None:
    arguments = ["--recipe", str(small_recipe), "--data", str(small_data.folder), "--device", "cpu"]
    found = run_verify_resume(arguments, str(small_recipe), tmp_path / "run")
    assert found.digest_resumed == found.digest_unbroken
    assert len(found.digest_unbroken) == 64
    assert found.resumed_from < found.killed_after < found.updates
    assert len(found.losses) == found.updates
    assert list(tmp_path.iterdir()) == []


def test_verify_resume_would_notice_a_difference(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiayn_cli.stages import verify_resume

    def spoilt(command: list[str], run: Path, updates: int) -> int:
        verify_resume._run([*command, "--set", f"training.max_updates={updates}"], run)
        state = run / "checkpoints" / f"step-{updates:08d}" / "training" / "state.json"
        content = json.loads(state.read_bytes())
        content["position"] = {"epoch": 1, "pairs": 0}  # as if the rest of the epoch had been lost
        state.write_text(json.dumps(content))
        described = state.parent.parent / "model.json"
        model = json.loads(described.read_bytes())
        model["files"]["training/state.json"] = hashlib.sha256(state.read_bytes()).hexdigest()
        described.write_text(json.dumps(model))
        return updates + 1

    monkeypatch.setattr(verify_resume, "_run_and_kill", spoilt)
    monkeypatch.setattr(verify_resume, "_run", in_this_process)
    arguments = ["--recipe", str(small_recipe), "--data", str(small_data.folder), "--device", "cpu"]
    with pytest.raises(AiaynError, match=r"the resumed run differs: [0-9a-f]{64} instead of [0-9a-f]{64}"):
        run_verify_resume(arguments, str(small_recipe), tmp_path / "run")


def test_verify_resume_that_is_stopped_leaves_nothing_behind(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[subprocess.Popen[str]] = []

    class Stopped(subprocess.Popen):  # type: ignore[type-arg]
        def communicate(self, *args: Any, **kwargs: Any) -> Any:  # by subprocess.run, while the first run trains
            children.append(self)
            os.kill(os.getpid(), signal.SIGTERM)
            return super().communicate(*args, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", Stopped)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated):
        run_verify_resume(["--recipe", str(small_recipe), "--data", str(small_data.folder)], "x", tmp_path / "run")
    assert [child.returncode for child in children] == [-signal.SIGKILL]
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def in_this_process(command: list[str], run: Path) -> None:
    assert main([*command[3:], "--out", str(run)]) == 0


def test_a_proof_takes_no_fresh_that_would_begin_its_own_runs_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiayn_cli.stages import verify_resume

    asked: list[list[str]] = []
    monkeypatch.setattr(verify_resume, "run_verify_resume", lambda arguments, *_: asked.append(arguments) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["train", "--verify-resume", "--fresh", "--recipe", "tiny"])
    assert asked == [["--recipe", "tiny", "--device", "auto"]]


def test_a_proof_whose_killed_run_began_anew_is_none(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aiayn_cli.stages import verify_resume

    def half(command: list[str], run: Path, updates: int) -> int:
        in_this_process([*command, "--set", f"training.max_updates={updates}"], run)
        return updates + 1

    monkeypatch.setattr(verify_resume, "_run_and_kill", half)
    monkeypatch.setattr(verify_resume, "_run", in_this_process)
    arguments = ["--recipe", str(small_recipe), "--data", str(small_data.folder), "--device", "cpu", "--fresh"]
    with pytest.raises(AiaynError, match="the killed run went on from its beginning, not from update 4"):
        run_verify_resume(arguments, str(small_recipe), tmp_path / "run")


def test_a_dry_run_and_a_proof_at_once_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", "--verify-resume"]) == 2
    assert "contradict" in capsys.readouterr().err


def test_a_short_run_needs_disk_for_the_checkpoints_that_it_makes() -> None:
    weights = [torch.zeros(3, 4), torch.zeros(5)]  # 17 numbers; each with two moments
    few = TrainingConfig(max_updates=10, save_every_steps=4, keep_checkpoints=7)
    assert disk_needed(weights, few) == (204, 204 * (3 + 2))
    assert disk_needed(weights, replace(few, max_updates=1_000)) == (204, 204 * (7 + 2))
    assert disk_needed(weights, replace(few, save_every_minutes=0.1)) == (204, 204 * (7 + 2))
    assert disk_needed(weights, replace(few, ema_decay=0.9)) == (272, 272 * (3 + 2))


def test_a_tokeniser_that_validation_lacks_is_named_before_the_first_update(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(metrics, "BLEU", _not_installed)
    with pytest.raises(AiaynError, match="needs a package that is not installed"):
        train()
    assert not list_checkpoints(tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert train("training.best_metric=loss", "training.validation_bleu_pairs=0").updates == 12


def _not_installed(**_: Any) -> None:
    raise RuntimeError("please install MeCab")  # as sacreBLEU does for ja-mecab
