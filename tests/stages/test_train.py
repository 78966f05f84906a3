"""A run that is stopped, killed or cut short goes on as if nothing had happened, and nothing existing is harmed."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aiayn_cli.app import main
from aiayn_cli.checkpoint import load_checkpoint, load_training
from aiayn_cli.data.batches import split_update
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import TokenStore, TokenStoreWriter
from aiayn_cli.errors import AiaynError, CheckpointError, ConfigError, DataError, Terminated
from aiayn_cli.run_checkpoints import checkpoint_path, list_checkpoints, newest_resumable
from aiayn_cli.stages import train_session as session_module
from aiayn_cli.stages.average import run_average
from aiayn_cli.stages.run_folder import held, write_whole
from aiayn_cli.stages.signals import signals
from aiayn_cli.stages.train import run_train
from aiayn_cli.stages.train_result import TrainResult
from aiayn_cli.stages.validation_bleu import ValidationBleu
from aiayn_cli.training import gradient as gradient_module
from aiayn_cli.training.metrics import read_metrics, standing
from aiayn_cli.training.optimizer import MasterAdam

Train = Callable[..., TrainResult]


@pytest.fixture(autouse=True)
def _one_thread_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds would wait for the disk; the real kill below has them
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)


@pytest.fixture
def train(small_data: PreparedData, small_recipe: Path, tmp_path: Path) -> Train:
    """Train the small recipe in a folder of its own."""

    def run(name: str = "run", *overrides: str, data: Path | None = None, **options: Any) -> TrainResult:
        out = options.pop("out", tmp_path / name)
        settings = [f"training.{override}" if "." not in override.split("=")[0] else override for override in overrides]
        return run_train(str(small_recipe), settings, data=data or small_data.folder, out=out, **options)

    return run


class Killed(BaseException):
    """Ends a run at once, as kill -9 does; nothing catches it."""


@contextmanager
def ending_after(updates: int, how: str) -> Iterator[None]:
    """Within it, a call of run_train gets a signal, or dies, when it has done so many updates."""
    done = iter(range(1, 1_000))

    def interrupted() -> str:
        if next(done) < updates:
            return ""
        if how == "kill":
            raise Killed
        return how

    @contextmanager
    def counted() -> Iterator[Callable[[], str]]:
        yield interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module, "signals", counted)
        yield


def result_of(run: Path) -> dict[str, Any]:
    """All that two runs should have in common, in the end, to the last bit."""
    newest = list_checkpoints(run)[-1]
    training = load_training(newest)
    tensors = {**load_checkpoint(newest).weights(), **training.moments}
    # Of what was done twice, after a kill, the last counts.
    events = {(r["event"], r["step"]): r for r in read_metrics(run / "metrics.jsonl")}
    average = load_checkpoint(run_average([run]).model).weights()
    return {
        "checkpoints": [path.name for path in list_checkpoints(run)],
        "in the folder": sorted(path.name for path in (run / "checkpoints").iterdir()),
        "best": (run / "checkpoints" / "best").readlink(),
        "tensors": {name: tensor.numpy().tobytes() for name, tensor in tensors.items()},
        "state": {name: value for name, value in training.state.items() if name not in ("seconds", "saved_seconds")},
        "validations": {
            key: (record["loss"], record["bleu"], record["best"])
            for key, record in events.items()
            if key[0] == "validation"
        },
        "gradient norms": {key: r["gradient_norm"] for key, r in events.items() if key[0] == "train"},
        "average": {name: tensor.numpy().tobytes() for name, tensor in average.items()},
    }


BY_LOSS = ["training.best_metric=loss", "training.keep_checkpoints=2"]


@pytest.fixture(scope="module")
def run_once(
    small_data: PreparedData, small_recipe: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Any]]:
    """The result of a run that nothing happens to, with some settings; made once for all tests."""

    @cache
    def result(*settings: str) -> dict[str, Any]:
        run = tmp_path_factory.mktemp("unbroken") / "run"
        run_train(str(small_recipe), settings, data=small_data.folder, out=run)
        return result_of(run)

    return result


@pytest.fixture
def unbroken(run_once: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return run_once()


def test_a_run_leaves_a_folder_that_explains_itself(train: Train, small_data: PreparedData, tmp_path: Path) -> None:
    result = train()
    run = tmp_path / "run"
    names = sorted(path.name for path in run.iterdir())
    assert names == ["checkpoints", "manifest.json", "metrics.jsonl", "recipe.yaml", "report.html"]
    assert [path.name for path in list_checkpoints(run)] == ["step-00000004", "step-00000008", "step-00000012"]
    manifest = json.loads((run / "manifest.json").read_bytes())
    assert manifest["data_sha256"] == small_data.sha256
    assert manifest["vocab_sha256"] == small_data.vocab_sha256
    last = load_checkpoint(list_checkpoints(run)[-1])
    assert (last.run_id, last.data_sha256, last.vocab_sha256) == (
        manifest["run_id"], small_data.sha256, small_data.vocab_sha256,
    )  # fmt: skip
    assert (last.src_lang, last.tgt_lang, last.vocab_size) == ("en", "de", 80)
    assert last.vocab_path.read_bytes() == small_data.vocab_path.read_bytes()
    assert (result.run, result.stopped_by, result.updates) == (run, "max_updates", 12)
    assert result.parameters == manifest["parameters"] == sum(w.numel() for w in last.weights().values())
    assert result.best_metric == "BLEU"
    assert result.best_step in (4, 8, 12)
    assert result.tokens_per_second > 0
    assert str(result).startswith(f"{run}: 12 updates, {result.epochs} epochs, ")


def test_training_twice_gives_the_same_to_the_last_bit(train: Train, tmp_path: Path, unbroken: dict[str, Any]) -> None:
    torch.manual_seed(99)
    train("again")
    assert result_of(tmp_path / "again") == unbroken
    train("another", "seed=2")
    assert result_of(tmp_path / "another")["tensors"] != unbroken["tensors"]


@pytest.mark.parametrize("stop", [1, 4, 6, 11])
def test_a_run_stopped_by_a_signal_at_any_update_goes_on_exactly(
    stop: int, train: Train, tmp_path: Path, unbroken: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with ending_after(stop, "SIGTERM"), pytest.raises(Terminated, match=f"at update {stop};") as error:
        train()
    assert error.value.exit_code == 143
    newest = newest_resumable(run)
    assert newest is not None
    assert newest.name == (f"step-{stop:08d}" if stop % 4 == 0 else f"interrupted-{stop:08d}")
    with ending_after(12 - stop, "SIGINT"):  # Ctrl-C during the last update comes too late to matter
        train()
    assert result_of(run) == unbroken
    assert f"going on with {run} from update {stop}" in capsys.readouterr().err


def test_a_run_in_bf16_goes_on_exactly_from_its_float32_weights(train: Train, tmp_path: Path) -> None:
    settings = ("precision=bf16", "max_updates=8")
    train("unbroken", *settings)
    with ending_after(5, "SIGTERM"), pytest.raises(Terminated):
        train("stopped", *settings)
    train("stopped", *settings)
    assert result_of(tmp_path / "stopped") == result_of(tmp_path / "unbroken")


def test_a_run_stopped_again_and_again_is_still_the_same(
    train: Train, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    for how, updates in (("SIGTERM", 2), ("SIGINT", 1), ("SIGINT", 2), ("kill", 2), ("kill", 4), ("SIGTERM", 3)):
        ends = {"SIGTERM": Terminated, "SIGINT": KeyboardInterrupt, "kill": Killed}[how]
        with ending_after(updates, how), pytest.raises(ends):
            train()
    train()
    assert result_of(tmp_path / "run") == unbroken


@pytest.mark.parametrize("stop", [1, 7])
def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(
    stop: int, train: Train, tmp_path: Path, unbroken: dict[str, Any]
) -> None:
    with ending_after(stop, "kill"), pytest.raises(Killed):
        train()
    train()
    assert result_of(tmp_path / "run") == unbroken


@pytest.mark.parametrize("where", ["save_checkpoint", "mark_best", "prune_checkpoints"])
@pytest.mark.parametrize("step", [4, 12])
def test_a_kill_between_the_steps_of_saving_is_mended(
    where: str,
    step: int,
    train: Train,
    tmp_path: Path,
    run_once: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = run_once(*BY_LOSS)
    assert expected["in the folder"] == ["best", "step-00000008", "step-00000012"]  # so that the last save
    assert expected["best"] == Path("step-00000012")  # removes a checkpoint and moves `best`
    if step > 4:
        with ending_after(step - 1, "SIGTERM"), pytest.raises(Terminated):
            train("run", *BY_LOSS)
    save = getattr(session_module, where)

    def killed(*args: Any) -> Any:
        if where == "save_checkpoint" or checkpoint_path(tmp_path / "run", step).exists():
            raise Killed
        return save(*args)  # as on going on, before the first update

    with monkeypatch.context() as patch:
        patch.setattr(session_module, where, killed)
        with pytest.raises(Killed):
            train("run", *BY_LOSS)
    train("run", *BY_LOSS)
    assert result_of(tmp_path / "run") == expected


def test_an_update_left_out_before_the_stop_is_left_out_of_adams_count_too(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def note(*args: Any) -> Any:
        calls.append(1)
        return split_update(*args)

    accumulate = MasterAdam.accumulate

    def spoilt(self: MasterAdam) -> None:
        accumulate(self)
        if len(calls) in (2, 3):  # the second and third update of a run
            self.gradient[0] = float("nan")

    monkeypatch.setattr(gradient_module, "split_update", note)
    monkeypatch.setattr(MasterAdam, "accumulate", spoilt)
    train("unbroken")
    expected = result_of(tmp_path / "unbroken")
    assert expected["state"]["skipped"] == 2
    calls.clear()
    with ending_after(5, "SIGTERM"), pytest.raises(Terminated):
        train("stopped")
    train("stopped")
    assert result_of(tmp_path / "stopped") == expected


def command(run: Path, recipe: Path, data: PreparedData, max_updates: int) -> list[str]:
    settings = ["--set", f"training.max_updates={max_updates}"]
    return ["train", "--recipe", str(recipe), "--data", str(data.folder), "--out", str(run), *settings]


def updates_logged(run: Path) -> int:
    path = run / "metrics.jsonl"
    return sum(record["event"] == "train" for record in read_metrics(path)) if path.exists() else 0


def test_real_signals_and_a_real_kill_lose_nothing(
    train: Train, small_data: PreparedData, small_recipe: Path, tmp_path: Path
) -> None:
    run, rarely = tmp_path / "run", "training.validate_every_saves=1000"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGKILL, -9), (signal.SIGINT, 130)):
        before = updates_logged(run)
        process = subprocess.Popen(
            [sys.executable, "-m", "aiayn_cli", *command(run, small_recipe, small_data, 1_000_000), "--set", rarely],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 300
            while updates_logged(run) < before + 5:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == code, err
        assert out == ""
        assert "Traceback" not in err
        newest = newest_resumable(run)
        if number == signal.SIGTERM:
            assert newest is not None
            assert f"error: stopped by SIGTERM at update {load_checkpoint(newest).step};" in err
            assert "hint: the same command goes on from there" in err
        if number == signal.SIGINT:
            assert newest is not None
            assert f"stopped at update {load_checkpoint(newest).step}; {run} is saved" in err
    assert newest is not None
    end = (load_checkpoint(newest).step // 4 + 2) * 4
    train("run", f"max_updates={end}", rarely)
    train("unbroken", f"max_updates={end}", rarely)
    assert result_of(run) == result_of(tmp_path / "unbroken")


def test_a_finished_run_says_so_and_changes_nothing(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train()
    run = tmp_path / "run"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    again = train("run", "label_smoothing=0.2")
    assert again.stopped_by == "already done"
    assert (again.updates, again.best_step, again.train_seconds) == (12, first.best_step, first.train_seconds)
    assert "already has its 12 updates; --set training.max_updates=... adds some" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_that_patience_ended_is_finished_too(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ValidationBleu, "score", lambda _: 1.0)  # never better than the first
    assert train("run", "patience=2", "max_updates=60").stopped_by == "patience"
    steps = [path.name for path in list_checkpoints(tmp_path / "run")]
    capsys.readouterr()
    assert train("run", "patience=2", "max_updates=60").stopped_by == "already done"
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == steps
    assert "training.patience" in capsys.readouterr().err
    assert train("run", "patience=4", "max_updates=60").updates == 20


def test_more_updates_can_be_added_to_a_finished_run(train: Train, tmp_path: Path) -> None:
    train("run")
    train("run", "max_updates=16")
    train("unbroken", "max_updates=16")
    assert result_of(tmp_path / "run") == result_of(tmp_path / "unbroken")


def test_metrics_of_all_calls_are_in_one_file(train: Train, tmp_path: Path) -> None:
    with ending_after(6, "SIGTERM"), pytest.raises(Terminated):
        train()
    train()
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in records if r["event"] == "train"] == list(range(1, 13))
    assert [r["step"] for r in records if r["event"] == "resume"] == [6]
    assert [r["path"] for r in records if r["event"] == "checkpoint"] == [
        "step-00000004", "interrupted-00000006", "step-00000008", "step-00000012",
    ]  # fmt: skip


def test_updates_before_a_crash_without_a_checkpoint_are_not_counted_twice(train: Train, tmp_path: Path) -> None:
    with ending_after(3, "kill"), pytest.raises(Killed):
        train()
    train()
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["step"] for r in records if r["event"] == "train"] == [1, 2, *range(1, 13)]
    assert [r["step"] for r in standing(records) if r["event"] == "train"] == list(range(1, 13))


def test_a_report_that_cannot_be_made_does_not_stop_training(
    train: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoilt(_: Path) -> None:
        raise ConfigError("recipe.yaml is no recipe")

    monkeypatch.setattr(session_module, "write_report", spoilt)
    assert train().updates == 12
    assert "report.html cannot be written: recipe.yaml is no recipe" in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "manifest.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/manifest.json'") as error:
        write_whole(path, "new")
    assert error.value.errno == errno.ENOSPC
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("manifest.json", "old")]


def test_fresh_sets_the_old_run_aside(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        train("run", resume=False)
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run", "run.1", "run.2"]
    assert f"the run that was in {tmp_path / 'run'} is now {tmp_path / 'run.2'}" in capsys.readouterr().err
    assert len({load_checkpoint(list_checkpoints(run)[-1]).run_id for run in tmp_path.glob("run*")}) == 3


def test_fresh_moves_nothing_that_is_no_run(train: Train, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("mine")
    with pytest.raises(DataError, match="thesis exists and is not a run"):
        train("thesis", resume=False)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "mine"


def test_fresh_moves_nothing_if_training_cannot_start(train: Train, tmp_path: Path) -> None:
    train()
    with pytest.raises(AiaynError, match="unknown device"):
        train("run", resume=False, device_name="abacus")
    assert [path.name for path in tmp_path.glob("run*")] == ["run"]


def test_a_changed_setting_is_applied_by_name_and_remembered(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    capsys.readouterr()
    train("run", "learning_rate_scale=0.5", "model.dropout=0.1", "data.max_length=90")
    err = capsys.readouterr().err
    assert "changed setting applied: training.learning_rate_scale 0.3 -> 0.5" in err
    assert "changed setting applied: model.dropout 0.2 -> 0.1" in err
    assert "max_length" not in err  # what prepare did is in the data
    recipe = (tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8")
    assert "learning_rate_scale: 0.5" in recipe
    assert "max_length: 250" in recipe


def test_a_changed_metric_begins_its_own_count_of_the_best(train: Train, tmp_path: Path) -> None:
    # A loss of 4 is no BLEU to beat.
    with ending_after(8, "SIGTERM"), pytest.raises(Terminated):
        train("run", "best_metric=loss")
    train("run", "best_metric=bleu")
    validations = [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if r["event"] == "validation"]
    assert validations[-1]["bleu"] < min(record["loss"] for record in validations)
    assert validations[-1]["best"]
    assert (tmp_path / "run" / "checkpoints" / "best").readlink() == Path("step-00000012")


def test_checkpoints_before_and_after_a_changed_dropout_can_be_averaged(train: Train, tmp_path: Path) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    train("run", "model.dropout=0.1", "max_updates=8")
    assert run_average([tmp_path / "run"]).checkpoints == ("step-00000004", "step-00000008")


def test_what_would_make_another_experiment_of_a_run_is_refused_by_name(train: Train, tmp_path: Path) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    recipe = (tmp_path / "run" / "recipe.yaml").read_bytes()
    with pytest.raises(CheckpointError) as error:
        train("run", "seed=2", "model.d_ff=25", "warmup_steps=9")
    assert "training.seed 1 -> 2" in error.value.problem
    assert "model.d_ff 24 -> 25" in error.value.problem
    assert "warmup" not in error.value.problem
    assert "--fresh" in error.value.hint
    assert (tmp_path / "run" / "recipe.yaml").read_bytes() == recipe


def test_other_data_under_an_old_run_is_refused(
    train: Train, other_data: PreparedData, small_data: PreparedData, tmp_path: Path
) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    with pytest.raises(DataError, match="trained on other data") as error:
        train(data=other_data.folder)
    assert str(small_data.folder) in error.value.problem
    assert str(other_data.folder) in error.value.problem
    assert "--out" in error.value.hint


@pytest.mark.parametrize("content", [b"{}", b'{"step": 4, "position": 3}', b'{"step": 4, "position": {}, "odd": 1}'])
def test_a_state_that_is_not_one_is_refused(content: bytes, train: Train, tmp_path: Path) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    (tmp_path / "run" / "checkpoints" / "step-00000004" / "training" / "state.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state\.json") as error:
        train()
    assert "another checkpoint" in error.value.hint


def test_weights_of_another_shape_are_refused(train: Train, tmp_path: Path) -> None:
    with ending_after(4, "SIGTERM"), pytest.raises(Terminated):
        train()
    recipe = tmp_path / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text(encoding="utf-8").replace("d_ff: 24", "d_ff: 32"), encoding="utf-8")
    with pytest.raises(CheckpointError, match="has shape"):
        train("run", "model.d_ff=32")


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_folder_or_file_that_is_no_run_is_left_alone(kind: str, train: Train, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    if kind == "folder":
        path.mkdir()
        (path / "notes.txt").write_text("mine")
    else:
        path.write_text("mine")
    with pytest.raises(DataError, match="mine exists and is not a run") as error:
        train("mine")
    assert "--out" in error.value.hint
    assert (path / "notes.txt" if kind == "folder" else path).read_text() == "mine"


def test_prepared_data_is_never_taken_for_a_run(train: Train, tmp_path: Path, small_data: PreparedData) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(small_data.folder, mine)
    before = {path.name: path.read_bytes() for path in mine.iterdir()}
    for resume in (True, False):
        with pytest.raises(DataError, match="mine exists and is not a run"):
            train("mine", resume=resume)
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_two_processes_do_not_train_the_same_run(train: Train, tmp_path: Path) -> None:
    train("run", "max_updates=1")
    for name in ("run", "new"):
        with held(tmp_path / name):
            for resume in (True, False):
                with pytest.raises(DataError, match=f"{name} is being trained by another process"):
                    train(name, "max_updates=2", resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert train("run", "max_updates=2").updates == 2


def test_a_place_where_no_run_can_be_made_is_named(train: Train, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="run cannot be made: Not a directory"):
        train("file/run")


def test_an_empty_folder_and_one_where_a_first_start_was_cut_short_are_taken(train: Train, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert train("empty", "max_updates=1").updates == 1
    for name in (".unfinished-manifest.json", "manifest.json"):
        run = tmp_path / f"with-{name}"
        run.mkdir()
        (run / name).write_text('{"format": 1')
        assert train(run.name, "max_updates=1").updates == 1
        assert not list(run.glob(".unfinished-*"))


def test_without_validation_data_training_says_so(
    train: Train, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    load = PreparedData.load
    without = PreparedData(**{**load(small_data.folder).__dict__, "valid": None})
    monkeypatch.setattr(PreparedData, "load", lambda _: without)
    result = train("run", "max_updates=2")
    assert (result.best_value, result.best_step) == (None, None)
    assert "no validation data" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints" / "best").exists()


def test_empty_validation_data_is_none(
    train: Train, tmp_path: Path, small_data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TokenStoreWriter(tmp_path, "valid", np.dtype("<u2"))
    writer.close()
    store = TokenStore(tmp_path, "valid")
    load = PreparedData.load
    empty = PreparedData(**{**load(small_data.folder).__dict__, "valid": store})
    monkeypatch.setattr(PreparedData, "load", lambda _: empty)
    assert train("run", "max_updates=2").best_value is None


def test_the_recipes_corpus_is_looked_for_in_the_working_folder(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no prepared data nowhere") as error:
        run_train(str(small_recipe))
    assert "--data" in error.value.hint  # no corpus has that name, so that `aiayn prepare nowhere` would be no help
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "nowhere").symlink_to(small_data.folder)
    result = run_train(str(small_recipe), ["training.max_updates=1"])
    assert result.run == Path("runs/small-recipe")


def test_the_command_prints_its_result_on_stdout_alone(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command(tmp_path / "run", small_recipe, small_data, 2), "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads(out)
    assert (result["run"], result["updates"], result["stopped_by"]) == (str(tmp_path / "run"), 2, "max_updates")
    assert main([*command(tmp_path / "run", small_recipe, small_data, 4)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path / 'run'}: 4 updates")
    for text in ("device: CPU", "changed setting applied: training.max_updates 2 -> 4", "going on with", "parameters"):
        assert text in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--set", "training.max_update=3"], 1, "did you mean max_updates?"),
        (["--set", "training.max_updates=many"], 1, "must be a whole number"),
        (["--set", "max_updates"], 1, "no value"),
        (["--seed", "-1"], 2, "--seed"),
        (["--precision", "fp16"], 2, "fp16"),
        (["--device", "cuda:77"], 1, "GPUs are visible"),
        (["--recipe", "bse"], 1, "did you mean base?"),
        (["--data", "nowhere"], 1, "no prepared data nowhere"),
    ],
)
def test_what_the_user_can_mend_is_one_message(
    arguments: list[str], code: int, message: str, small_recipe: Path, small_data: PreparedData, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "run"
    assert main([*command(out, small_recipe, small_data, 3), *arguments]) == code
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not out.exists()


def test_options_are_settings(small_recipe: Path, small_data: PreparedData, tmp_path: Path) -> None:
    options = ["--seed", "7", "--precision", "bf16", "--compile", "off", "--quiet"]
    assert main([*command(tmp_path / "run", small_recipe, small_data, 1), *options]) == 0
    recipe = (tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8")
    for line in ("seed: 7", "precision: bf16", "compile: off", "max_updates: 1\n"):
        assert line in recipe.replace('"', "")


def test_a_second_signal_does_not_wait() -> None:
    child = os.fork()
    if child == 0:
        with signals() as interrupted:
            os.kill(os.getpid(), signal.SIGTERM)
            if interrupted() != "SIGTERM":
                os._exit(1)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_signals_mean_afterwards_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with signals() as interrupted:
        assert interrupted() == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted() == "SIGINT"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_setting_out_of_range_names_itself(train: Train) -> None:
    with pytest.raises(ConfigError, match=r"training\.label_smoothing is 1"):
        train("run", "label_smoothing=1.5")
