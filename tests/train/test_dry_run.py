"""A dry run says what a run will take, and leaves no trace."""

from pathlib import Path

import pytest
from training_runs import Train, flip_a_bit

from aiayn_cli import logs
from aiayn_cli.checkpoint.run import list_checkpoints
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.train.preflight import DryRunResult
from aiayn_cli.train.session import TrainResult

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")


def test_a_dry_run_says_what_it_takes_and_leaves_no_trace(
    train: Train, tmp_path: Path, small_data: PreparedData
) -> None:
    found = train(dry_run=True)
    assert isinstance(found, DryRunResult)
    assert list(tmp_path.iterdir()) == []
    longest = 1 + max(int(small_data.train.src_lengths.max()), int(small_data.train.tgt_lengths.max()))
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


def test_a_dry_run_of_a_run_counts_what_is_left_and_changes_nothing(train: Train, tmp_path: Path) -> None:
    train("max_updates=8")
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
