"""A run goes on with what may be changed, and refuses by name what would make it another experiment."""

from pathlib import Path

import pytest
from training_runs import Train, ending_after

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.errors import CheckpointError, Terminated

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")


def test_a_changed_setting_is_applied_by_name_and_remembered(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    capsys.readouterr()
    train("learning_rate_scale=0.5", "model.dropout=0.1", "data.max_length=90")
    err = capsys.readouterr().err
    assert "changed setting applied: training.learning_rate_scale 0.3 -> 0.5" in err
    assert "changed setting applied: model.dropout 0.2 -> 0.1" in err
    assert "max_length" not in err  # what prepare did is in the data
    recipe = (tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8")
    assert "learning_rate_scale: 0.5" in recipe
    assert "max_length: 250" in recipe


def test_a_changed_metric_begins_its_own_count_of_the_best(train: Train, tmp_path: Path) -> None:
    # A loss of 4 is no BLEU to beat.
    with ending_after(9, "SIGTERM"), pytest.raises(Terminated):
        train("best_metric=loss")
    train("best_metric=bleu")
    validations = [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if r["event"] == "validation"]
    assert validations[-1]["bleu"] < min(record["loss"] for record in validations)
    assert validations[-1]["best"]
    assert (tmp_path / "run" / "checkpoints" / "best").readlink() == Path("step-00000012")


def test_what_would_make_another_experiment_of_a_run_is_refused_by_name(train: Train, tmp_path: Path) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    recipe = (tmp_path / "run" / "recipe.yaml").read_bytes()
    with pytest.raises(CheckpointError) as error:
        train("seed=2", "model.d_ff=25", "warmup_steps=9")
    assert "training.seed 1 -> 2" in error.value.problem
    assert "model.d_ff 24 -> 25" in error.value.problem
    assert "warmup" not in error.value.problem
    assert "--fresh" in error.value.hint
    assert (tmp_path / "run" / "recipe.yaml").read_bytes() == recipe
