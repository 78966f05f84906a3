"""Before a run trains, impossible settings are refused by name; a dry run measures and leaves no trace."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import change_tensors, hash_anew
from training_runs import Train, flip_a_bit, tensors_of

from aiayn_cli import logs
from aiayn_cli.app import main
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import find_model, list_checkpoints, newest_run
from aiayn_cli.config import ModelConfig, Recipe, TrainingConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device
from aiayn_cli.errors import AiaynError, CheckpointError, ConfigError
from aiayn_cli.score import metrics
from aiayn_cli.train import preflight as module
from aiayn_cli.train import session as session_module
from aiayn_cli.train.preflight import DryRunResult, check_memory, disk_needed
from aiayn_cli.train.resume import load_newest
from aiayn_cli.train.session import TrainOptions, TrainResult, run_train
from aiayn_cli.train.trainer import Trainer
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
def eight_updates(small_data: PreparedData, small_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("eight") / "run"
    run_train(
        TrainOptions(recipe=str(small_recipe), overrides=["training.max_updates=8"], data=small_data.folder, out=run)
    )
    return run


@pytest.fixture(autouse=True)
def _short_dry_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_UPDATES", 4)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_newest_checkpoint_is_kept_aside_and_the_one_before_takes_its_place(
    damage: Callable[[Path], None], tmp_path: Path, eight_updates: Path, small_data: PreparedData,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    run = tmp_path / "run"
    shutil.copytree(eight_updates, run, symlinks=True)
    before, newest = list_checkpoints(run)
    damage(newest)
    files = {path.name: path.read_bytes() for path in newest.rglob("*") if path.is_file()}
    weights = {name: torch.zeros_like(weight) for name, weight in load_checkpoint(before).weights().items()}
    capsys.readouterr()
    found = load_newest(run, weights, len(small_data.train))
    assert "the checkpoint step-00000008 is damaged: step-00000004 takes its place" in capsys.readouterr().err
    assert found is not None
    assert found[0].step == 4
    assert all(torch.equal(weight, weights[name]) for name, weight in load_checkpoint(before).weights().items())
    aside = run / "checkpoints" / "damaged-step-00000008"
    assert {path.name: path.read_bytes() for path in aside.rglob("*") if path.is_file()} == files


def test_a_run_goes_on_exactly_from_before_a_damaged_checkpoint(
    train: Train, tmp_path: Path, eight_updates: Path, unbroken: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(eight_updates, run, symlinks=True)
    flip_a_bit(list_checkpoints(run)[-1] / "weights.safetensors")
    train()
    assert f"resuming {run} from update 4" in capsys.readouterr().err
    assert tensors_of(run) == unbroken["tensors"]


def test_where_all_checkpoints_are_damaged_the_newest_is_named_and_all_stay(
    train: Train, tmp_path: Path, eight_updates: Path
) -> None:
    shutil.copytree(eight_updates, tmp_path / "run", symlinks=True)
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
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    train: Train, small_data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = 1 + max(
        int(small_data.train.lengths(range(len(small_data.train)), "src").max()),
        int(small_data.train.lengths(range(len(small_data.train)), "tgt").max()),
    )
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
    assert "validation pairs are too long for the network and not in the validation loss" in capsys.readouterr().err
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


def test_checkpoints_that_will_not_fit_are_announced(
    train: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=17 << 20))  # enough for one small one
    train("max_updates=1")
    assert "GB are free; one that does not fit ends training" not in capsys.readouterr().err  # 3 of 0.07 MB fit
    monkeypatch.setattr(module, "bytes_of", lambda _: 10_000_000)
    train("max_updates=2")
    assert "checkpoints will take up to 0.06 GB more, and 0.02 GB are free" in capsys.readouterr().err


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
    monkeypatch.setattr(metrics, "BLEU", _not_installed)
    with pytest.raises(AiaynError, match="needs a package that is not installed"):
        train()
    assert not list_checkpoints(tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    assert train("best_metric=loss", "validation_bleu_pairs=0").updates == 12


def _not_installed(**_: Any) -> None:
    raise RuntimeError("please install MeCab")  # as sacreBLEU does for ja-mecab


def test_a_dry_run_says_what_it_takes_and_leaves_no_trace(
    train: Train, tmp_path: Path, small_data: PreparedData
) -> None:
    found = train(dry_run=True)
    assert isinstance(found, DryRunResult)
    assert list(tmp_path.iterdir()) == []
    longest = 1 + max(
        int(small_data.train.lengths(range(len(small_data.train)), "src").max()),
        int(small_data.train.lengths(range(len(small_data.train)), "tgt").max()),
    )
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


def test_a_dry_run_of_a_run_counts_what_is_left_and_changes_nothing(
    train: Train, tmp_path: Path, eight_updates: Path
) -> None:
    shutil.copytree(eight_updates, tmp_path / "run", symlinks=True)
    flip_a_bit(list_checkpoints(tmp_path / "run")[-1] / "weights.safetensors")
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
    lines = [line for line in capsys.readouterr().err.split("\n") if " updates, " in line]
    assert lines[0].startswith("trying out: 1 updates, ")
    assert all("left" not in line and " of " not in line for line in lines)
