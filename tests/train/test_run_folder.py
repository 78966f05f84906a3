"""What is no run is left alone, a run belongs to one process and one experiment, and --fresh loses nothing."""

import shutil
from pathlib import Path

import pytest
from small_run import Train, ending_after

from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import AiaynError, CheckpointError, DataError, Terminated
from aiayn_cli.train.resume import held

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")


def test_fresh_sets_the_old_run_aside(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        train("max_updates=1", resume=False)
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run", "run.1", "run.2"]
    assert f"--fresh: the earlier run is now in {tmp_path / 'run.2'}" in capsys.readouterr().err
    assert len({load_checkpoint(list_checkpoints(run)[-1]).run_id for run in tmp_path.glob("run*")}) == 3


def test_fresh_moves_nothing_if_training_cannot_start(train: Train, tmp_path: Path) -> None:
    train("max_updates=1")
    with pytest.raises(AiaynError, match="unknown device"):
        train(resume=False, device="abacus")
    assert [path.name for path in tmp_path.glob("run*")] == ["run"]


def test_other_data_under_an_old_run_is_refused(
    train: Train, other_data: PreparedData, small_data: PreparedData, tmp_path: Path
) -> None:
    train("max_updates=1")
    with pytest.raises(DataError, match="whose content differs from") as error:
        train(data=other_data)
    assert str(small_data.folder) in error.value.problem
    assert str(other_data.folder) in error.value.problem
    assert "--out" in error.value.hint


@pytest.mark.parametrize("kind", ["folder", "file", "prepared data"])
def test_what_is_no_run_is_left_alone(kind: str, train: Train, tmp_path: Path, small_data: PreparedData) -> None:
    mine = tmp_path / "mine"
    if kind == "file":
        mine.write_text("mine")
    elif kind == "folder":
        mine.mkdir()
        (mine / "notes.txt").write_text("mine")
    else:
        shutil.copytree(small_data.folder, mine)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for resume in (True, False):
        with pytest.raises(DataError, match="mine exists and is not a run") as error:
            train(name="mine", resume=resume)
        assert "--out" in error.value.hint
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_two_processes_do_not_train_the_same_run(train: Train, tmp_path: Path) -> None:
    train("max_updates=1")
    for name in ("run", "new"):
        with held(tmp_path / name):
            for resume in (True, False):
                with pytest.raises(DataError, match=f"{name} is being trained by another process"):
                    train("max_updates=2", name=name, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert train("max_updates=2").updates == 2


def test_a_place_where_no_run_can_be_made_is_named(train: Train, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="run cannot be created: Not a directory"):
        train(name="file/run")


def test_an_empty_folder_and_one_where_a_first_start_was_cut_short_are_taken(train: Train, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert train("max_updates=1", name="empty").updates == 1
    cut_short = tmp_path / "cut-short"
    cut_short.mkdir()
    (cut_short / ".unfinished-manifest.json").write_text('{"format": 1')
    assert train("max_updates=1", name="cut-short").updates == 1
    assert not list(cut_short.glob(".unfinished-*"))


def test_a_changed_setting_is_applied_by_name_and_another_experiment_is_refused_by_name(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train("max_updates=4")
    recipe = tmp_path / "run" / "recipe.yaml"
    before = recipe.read_bytes()
    with pytest.raises(CheckpointError) as error:
        train("seed=2", "model.d_ff=25", "warmup_steps=9")
    assert "training.seed 1 -> 2" in error.value.problem
    assert "model.d_ff 24 -> 25" in error.value.problem
    assert "warmup" not in error.value.problem
    assert "--fresh" in error.value.hint
    assert recipe.read_bytes() == before
    capsys.readouterr()
    train("learning_rate_scale=0.5", "model.dropout=0.1", "data.max_length=90")
    err = capsys.readouterr().err
    assert "changed setting applied: training.learning_rate_scale 0.3 -> 0.5" in err
    assert "changed setting applied: model.dropout 0.2 -> 0.1" in err
    assert "max_length" not in err  # what prepare did is in the data
    text = recipe.read_text(encoding="utf-8")
    assert "learning_rate_scale: 0.5" in text
    assert "max_length: 250" in text


def test_a_changed_metric_begins_its_own_count_of_the_best(train: Train, tmp_path: Path) -> None:
    # A loss of 4 is no BLEU to beat.
    with ending_after(9, "SIGTERM"), pytest.raises(Terminated):
        train("best_metric=loss")
    train("best_metric=bleu")
    validations = [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if r["event"] == "validation"]
    assert validations[-1]["bleu"] < min(record["loss"] for record in validations)
    assert validations[-1]["best"]
    assert (tmp_path / "run" / "checkpoints" / "best").readlink() == Path("step-00000012")
