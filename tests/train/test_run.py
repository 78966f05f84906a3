"""`aiayn train`: a folder that explains itself, one result on stdout, and one message for what the user can mend."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_run import Train, result_of

from aiayn_cli.app import main
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import ConfigError, DataError
from aiayn_cli.train import session as session_module
from aiayn_cli.train.options import TrainOptions
from aiayn_cli.train.session import run_train
from aiayn_cli.train.validation import ValidationBleu

pytestmark = pytest.mark.usefixtures("one_process", "no_flush")

Command = Callable[..., list[str]]


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
    train(name="again")
    assert result_of(tmp_path / "again") == unbroken
    train("seed=2", name="another")
    assert result_of(tmp_path / "another")["tensors"] != unbroken["tensors"]


def test_a_finished_run_says_so_and_changes_nothing(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train()
    run = tmp_path / "run"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    again = train("label_smoothing=0.2")
    assert again.stopped_by == "already done"
    assert (again.updates, again.best_step, again.train_seconds) == (12, first.best_step, first.train_seconds)
    assert "is finished after 12 updates; to train longer, add --set training.max_updates=24" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_that_patience_ended_is_finished_too(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter(range(90, 0, -1))  # never better than the first
    monkeypatch.setattr(ValidationBleu, "score", lambda *_: float(next(scores)))
    assert train("patience=2", "max_updates=60").stopped_by == "patience"
    steps = [path.name for path in list_checkpoints(tmp_path / "run")]
    capsys.readouterr()
    assert train("patience=2", "max_updates=60").stopped_by == "already done"
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == steps
    assert "training.patience" in capsys.readouterr().err
    assert train("patience=4", "max_updates=60").updates == 20


def test_more_updates_can_be_added_to_a_finished_run(train: Train, tmp_path: Path, unbroken: dict[str, Any]) -> None:
    train("max_updates=8")
    train()
    assert result_of(tmp_path / "run") == unbroken


def test_a_report_that_cannot_be_made_does_not_stop_training(
    train: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def spoilt(_: Path) -> None:
        raise ConfigError("recipe.yaml is no recipe")

    monkeypatch.setattr(session_module, "write_report", spoilt)
    assert train("max_updates=4").updates == 4
    assert "report.html cannot be written: recipe.yaml is no recipe" in capsys.readouterr().err


def test_without_validation_data_training_says_so(
    train: Train, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    load = PreparedData.load
    without = PreparedData(**{**load(small_data.folder).__dict__, "valid": None})
    monkeypatch.setattr(PreparedData, "load", lambda _: without)
    result = train("max_updates=2")
    assert (result.best_value, result.best_step) == (None, None)
    assert "no validation data" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints" / "best").exists()


def test_the_recipes_corpus_is_looked_for_in_the_working_folder(
    small_recipe: Path, small_data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="nowhere has not been prepared yet") as error:
        run_train(TrainOptions(recipe=str(small_recipe)))
    assert "--data" in error.value.hint  # no corpus has that name, so that `aiayn prepare nowhere` would be no help
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "nowhere").symlink_to(small_data.folder)
    result = run_train(TrainOptions(recipe=str(small_recipe), overrides=["training.max_updates=1"]))
    assert result.run == Path("runs/small-recipe")


def test_the_command_prints_its_result_on_stdout_alone(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command("max_updates=2", "warmup_steps=2"), "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    result = json.loads(out)
    assert (result["run"], result["updates"], result["stopped_by"]) == (str(tmp_path / "run"), 2, "max_updates")
    assert main(command("max_updates=4")) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path / 'run'}: 4 updates")
    for text in ("device: CPU", "changed setting applied: training.max_updates 2 -> 4", "resuming", "parameters"):
        assert text in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--set", "training.max_update=3"], 1, "did you mean max_updates?"),
        (["--set", "training.max_updates=many"], 1, "must be a whole number"),
        (["--set", "max_updates"], 1, "no value"),
        (["--seed", "-1"], 2, "--seed"),
        (["--precision", "fp16"], 2, "fp16"),
        (["--device", "cuda:77"], 1, "visible"),
        (["--recipe", "bse"], 1, "did you mean base?"),
        (["tiny"], 2, "did you mean --recipe tiny?"),
        (["--data", "nowhere"], 1, "nowhere has not been prepared yet"),
        (["--recipe", "parsing"], 1, "the recipe is for trees, but"),
    ],
)
def test_what_the_user_can_mend_is_one_message(
    arguments: list[str], code: int, message: str, command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command("max_updates=3"), *arguments]) == code
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_options_are_settings(command: Command, tmp_path: Path) -> None:
    options = ["--seed", "7", "--precision", "bf16", "--compile", "off", "--quiet"]
    assert main([*command("max_updates=1"), *options]) == 0
    recipe = (tmp_path / "run" / "recipe.yaml").read_text(encoding="utf-8")
    for line in ("seed: 7", "precision: bf16", "compile: off", "max_updates: 1\n"):
        assert line in recipe.replace("'", "")
