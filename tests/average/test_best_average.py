"""The search tries what it says, keeps the best, and judges the gain; the moving average has a checkpoint's form."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_run import Train, prepare_texts
from translation_models import translate_options

from aiayn_cli.app import main
from aiayn_cli.average import best_average as search_module
from aiayn_cli.average.best_average import run_search, verdict, window_sizes
from aiayn_cli.average.session import AverageOptions, AverageResult, Trial, run_average
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.checkpoint.run_checkpoints import list_checkpoints
from aiayn_cli.checkpoint.tensor_files import read_tensors
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import CheckpointError, DataError, UsageError
from aiayn_cli.score.metrics import bleu
from aiayn_cli.translate.session import run_translate

WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "dog": "Hund", "cat": "Katze"}
SETTINGS = [
    *("model.d_model=32", "model.d_ff=48", "model.dropout=0.1", "batch_tokens=400", "max_tokens=400", "max_updates=80"),
    *("save_every_steps=16", "keep_checkpoints=4", "learning_rate_scale=0.7", "warmup_steps=30", "ema_decay=0.95"),
    *("validation_bleu_pairs=40", "average_last=2", "log_every_steps=50"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, train_into: Train) -> tuple[Path, PreparedData]:
    """A run that has learnt some of a language of seven words, and its data."""
    folder, chance, texts = tmp_path_factory.mktemp("search"), random.Random(3), {}
    for split, count in (("train", 200), ("valid", 40)):
        sources = [chance.choices(list(WORDS), k=chance.randint(4, 7)) for _ in range(count)]
        texts[split] = {"en": sources, "de": [[WORDS[word] for word in words] for words in sources]}
    data = prepare_texts(folder, texts, vocab_size=60, drop_overlap=False, case_copies=0.0)
    torch.manual_seed(0)
    train_into(folder / "run", *SETTINGS, data=data, device="cpu")
    return folder / "run", data


def search(*paths: Path, **options: Any) -> AverageResult:
    return run_search(paths, AverageOptions(search=True, device="cpu", **options))


@pytest.fixture(scope="module")
def searched(trained: tuple[Path, PreparedData], tmp_path_factory: pytest.TempPathFactory) -> AverageResult:
    return search(trained[0], out=tmp_path_factory.mktemp("out") / "found")


def bleu_of(model: Path, data: PreparedData, folder: Path, **options: Any) -> float:
    """Translate the validation set with a model's folder, as a user would."""
    output = folder / "hyp"
    source = str(data.folder / "valid.en")
    run_translate(translate_options([model], source=source, path=output, device="cpu", **options))
    return bleu(output.read_text(encoding="utf-8").split("\n")[:-1], [data.read_text("valid", "tgt")]).score


def test_each_trial_is_what_its_average_scores_on_the_validation_set(
    trained: tuple[Path, PreparedData], searched: AverageResult, tmp_path: Path
) -> None:
    run, data = trained
    trials = {trial.name: trial for trial in searched.trials}
    assert list(trials)[:4] == ["last 1", "last 2", "last 3", "last 4"]
    assert list(trials)[-1] == "moving average"
    assert len({round(trial.bleu, 3) for trial in trials.values()}) > 2  # else the search would be no test
    for name, options in (("last 1", {"last": 1}), ("last 3", {"last": 3}), ("moving average", {"ema": True})):
        result = run_average([run], AverageOptions(out=tmp_path / name, **options))
        assert result.checkpoints == trials[name].checkpoints
        # Sums in another order may differ in their last bit.
        assert bleu_of(result.model, data, tmp_path) == pytest.approx(trials[name].bleu, abs=0.5)


def test_the_winner_is_kept_with_its_parents(
    trained: tuple[Path, PreparedData], searched: AverageResult, tmp_path: Path
) -> None:
    winner = max(searched.trials, key=lambda trial: trial.bleu)
    assert searched.checkpoints == winner.checkpoints == load_checkpoint(searched.model).parents
    assert bleu_of(searched.model, trained[1], tmp_path) == pytest.approx(winner.bleu, abs=1e-9)


def test_the_threshold_of_confidence_is_measured_on_the_validation_set(
    trained: tuple[Path, PreparedData], searched: AverageResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, data = trained
    assert all((load_checkpoint(path).low_confidence or 0.0) < 0 for path in list_checkpoints(run))
    source = str(data.folder / "valid.en")
    options = translate_options([searched.model], source=source, path=tmp_path / "hyp", device="cpu")
    assert "low_confidence" not in run_translate(options).flags
    monkeypatch.setattr(search_module, "confidence_threshold", lambda outputs: -float(len(list(outputs))))
    found = search(run, last=1, out=tmp_path / "out")
    assert load_checkpoint(found.model).low_confidence == -40.0


def test_the_table_has_a_p_value_for_each_but_the_last_checkpoint(searched: AverageResult) -> None:
    rows = str(searched).split("\n")[: len(searched.trials) + 1]
    assert rows[0].split() == ["average", "checkpoints", "BLEU", "difference", "p"]
    assert rows[1].split()[-2:] == ["-", "-"]
    for row, trial in zip(rows[2:], searched.trials[1:], strict=True):
        assert trial.p is not None
        assert 0 < trial.p <= 1
        assert row.split()[-2:] == [f"{trial.difference:+.2f}", f"{trial.p:.4f}"]
    assert trial.difference == pytest.approx(trial.bleu - searched.trials[0].bleu)


def test_the_command_prints_it_all_and_translate_takes_the_result(
    trained: tuple[Path, PreparedData], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run, symlinks=True)
    data = str(trained[1].folder)
    assert main(["average", str(run), "--search", "--last", "1", "--device", "cpu", "--data", data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == str(run / "averaged")
    assert found["trials"][0]["name"] == "last 1"
    assert "40 validation pairs" in found["verdict"]
    assert bleu_of(run, trained[1], tmp_path) == pytest.approx(max(trial["bleu"] for trial in found["trials"]))


def test_a_search_may_be_limited_to_some_checkpoints(trained: tuple[Path, PreparedData], tmp_path: Path) -> None:
    found = search(trained[0], last=2, out=tmp_path / "two")
    assert [trial.name for trial in found.trials if trial.name.startswith("last")] == ["last 1", "last 2"]
    found = search(trained[0], steps="64-64", out=tmp_path / "range")
    assert found.trials[0].checkpoints == ("step-00000064",)


def test_validation_while_training_is_what_score_says_of_raw_references(
    trained: tuple[Path, PreparedData], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = trained
    records = [record for record in read_metrics(run / "metrics.jsonl") if record["event"] == "validation"]
    bleu_of(run / "checkpoints" / "step-00000080", data, tmp_path, precision="fp32")
    assert main(["score", str(data.folder / "valid.de"), "--hyp", str(tmp_path / "hyp"), "--json"]) == 0
    [score] = json.loads(capsys.readouterr().out)["systems"][0]["scores"]
    assert records[-1]["step"] == 80
    assert records[-1]["bleu"] == pytest.approx(score["score"], abs=1e-9)
    assert score["score"] > 1


def test_the_moving_average_is_the_one_that_training_kept(trained: tuple[Path, PreparedData], tmp_path: Path) -> None:
    run, _ = trained
    newest = run / "checkpoints" / "step-00000080"
    moments = read_tensors(newest / "training" / "moments.safetensors")
    result = run_average([run], AverageOptions(ema=True, out=tmp_path / "ema"))
    found = load_checkpoint(result.model)
    assert found.parents == ("step-00000080/ema",)
    for name, weight in found.weights().items():
        assert torch.equal(weight, moments[f"ema.{name}"])
        assert not torch.equal(weight, load_checkpoint(newest).weights()[name])
    named = run_average([run / "checkpoints" / "step-00000064"], AverageOptions(ema=True, out=tmp_path / "named"))
    assert named.checkpoints == ("step-00000064/ema",)


def test_a_run_without_a_moving_average_says_how_to_have_one(
    trained: tuple[Path, PreparedData], tmp_path: Path
) -> None:
    result = run_average([trained[0]], AverageOptions(last=1, out=tmp_path / "plain"))
    copied = tmp_path / "run" / "checkpoints" / "step-00000001"
    shutil.copytree(result.model, copied)
    (copied / "training").mkdir()
    save_file({"exp_avg": torch.zeros(3)}, copied / "training" / "moments.safetensors")
    with pytest.raises(CheckpointError, match="holds no moving average") as error:
        run_average([copied], AverageOptions(ema=True))
    assert "training.ema_decay" in error.value.hint


def test_other_data_or_none_is_refused(
    trained: tuple[Path, PreparedData], small_data: PreparedData, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="is not the data that"):
        search(trained[0], data=small_data.folder, out=tmp_path / "out")
    with pytest.raises(DataError, match="nowhere has not been prepared yet"):
        search(trained[0], data=Path("nowhere"), out=tmp_path / "out")
    shutil.copytree(trained[0] / "checkpoints" / "step-00000080", tmp_path / "alone")
    with pytest.raises(UsageError, match="--search needs a run"):
        search(tmp_path / "alone", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("winner", "words"),
    [
        (Trial("last 1", ("step-3",), 30.0), "no average is better than"),
        (
            Trial("last 3", ("step-1", "step-2", "step-3"), 31.0, 1.0, 0.01),
            "which is unlikely to be chance (p = 0.0100)",
        ),
        (Trial("best 2", ("step-1", "step-3"), 30.1, 0.1, 0.4), "which may be noise (p = 0.4000): the average is kept"),
    ],
)
def test_the_verdict_says_when_the_gain_is_noise(winner: Trial, words: str) -> None:
    assert words in verdict(winner, "step-3", 40)


def test_windows_grow_from_one_to_all() -> None:
    assert window_sizes(1) == [1]
    assert window_sizes(5) == [1, 2, 3, 4, 5]
    assert window_sizes(20) == [1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 20]


def test_named_checkpoints_without_their_moments_can_be_searched(
    trained: tuple[Path, PreparedData], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run, symlinks=True)
    *_, second, last = list_checkpoints(run)
    renamed = second.rename(second.with_name("mine"))  # a name without an update in it
    shutil.rmtree(last / "training")
    found = search(renamed, last, out=tmp_path / "out")
    assert [trial.name for trial in found.trials][:2] == ["last 1", "last 2"]
    assert "moving average" not in [trial.name for trial in found.trials]
