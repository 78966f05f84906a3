"""A plain `aiayn train` takes what is obvious, says what it took, asks where nothing is, and fits into given hours."""

from pathlib import Path

import pytest

from aiayn_cli.app import main
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import DataError
from aiayn_cli.recipe import load_recipe
from aiayn_cli.train import session
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.options import TrainOptions, peak_rate, schedule_of, settle, short_schedule, updates_within
from aiayn_cli.train.preflight import DryRunResult, time_text


@pytest.fixture
def folder(tmp_path: Path, small_data: PreparedData, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one prepared corpus, prepared/mine."""
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "mine").symlink_to(small_data.folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_only_corpus_is_taken_with_the_recipe_that_fits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = settle(TrainOptions(recipe="auto"))
    assert (chosen.recipe, chosen.data, chosen.out) == ("mini", Path("prepared/mine"), Path("runs/mine"))
    said = capsys.readouterr().err
    assert "recipe: mini (1" in said
    assert "data: prepared/mine" in said


def test_a_recipe_whose_corpus_is_not_there_takes_the_only_one(folder: Path) -> None:
    chosen = settle(TrainOptions(recipe="base"))
    assert (chosen.recipe, chosen.data, chosen.out) == ("base", Path("prepared/mine"), Path("runs/base"))


def test_what_is_named_is_taken(folder: Path, other_data: PreparedData) -> None:
    chosen = settle(TrainOptions(recipe="tiny", data=other_data.folder, out=Path("here")))
    assert (chosen.recipe, chosen.data, chosen.out) == ("tiny", other_data.folder, Path("here"))


def test_of_several_corpora_none_is_guessed(folder: Path, other_data: PreparedData) -> None:
    (folder / "prepared" / "other").symlink_to(other_data.folder)
    with pytest.raises(DataError, match="several prepared corpora: prepared/mine, prepared/other"):
        settle(TrainOptions(recipe="auto"))


def test_without_data_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="nothing has been prepared yet") as caught:
        settle(TrainOptions(recipe="auto"))
    assert "aiayn prepare demo" in caught.value.hint
    with pytest.raises(DataError, match="wmt14-en-de"):
        settle(TrainOptions(recipe="base"))


def test_a_run_that_exists_keeps_its_recipe_and_data(folder: Path, small_recipe: Path) -> None:
    arguments = ["train", "--recipe", str(small_recipe), "--data", "prepared/mine", "--out", "runs/mine"]
    assert main([*arguments, "--set", "training.max_updates=4"]) == 0
    assert settle(TrainOptions(recipe="auto")).recipe == "runs/mine/recipe.yaml"
    chosen = settle(TrainOptions(recipe="auto", out=Path("runs/mine")))
    assert (chosen.recipe, chosen.data) == ("runs/mine/recipe.yaml", Path("prepared/mine"))
    assert main(["train", "--out", "runs/mine", "--set", "training.max_updates=6"]) == 0


def test_hours_set_the_schedule_of_a_new_run_and_not_of_one_that_resumes(
    folder: Path, small_recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--recipe", str(small_recipe), "--data", "prepared/mine", "--out", "runs/mine"]
    assert main([*arguments, "--hours", "0.001"]) == 0
    said = capsys.readouterr()
    assert "--hours 0.001: " in said.err
    assert "0.00 hours" not in said.err
    updates = int(said.out.partition(": ")[2].partition(" update")[0])
    assert 1 <= updates <= 36  # three times the recipe's 12
    assert main([*arguments, "--hours", "5"]) == 0
    assert "keeps its schedule" in capsys.readouterr().err


@pytest.mark.parametrize("updates", [100, 400, 1500, 9600, 20_000])
def test_the_average_takes_no_checkpoint_of_the_warm_up(updates: int) -> None:
    recipe = load_recipe("multi30k", short_schedule(load_recipe("multi30k"), updates)).training
    averaged = recipe.average_last * recipe.save_every_steps
    assert recipe.max_updates == updates
    assert averaged <= updates / 8  # as in the recipe: 8 x 150 of 9,600
    assert recipe.warmup_steps <= updates / 5 < updates - averaged


@pytest.mark.parametrize("updates", [100, 1500, 9600])
@pytest.mark.parametrize("overrides", [[], ["model.d_model=132"], ["training.warmup_steps=50"]])
def test_the_rate_rises_to_the_recipe_s_peak_or_the_one_that_is_given(updates: int, overrides: list[str]) -> None:
    recipe = load_recipe("multi30k", overrides)
    short = load_recipe("multi30k", [*overrides, *short_schedule(recipe, updates)])
    assert peak_rate(short) == pytest.approx(peak_rate(recipe), rel=1e-5)
    other = load_recipe("multi30k", [*overrides, *short_schedule(recipe, updates, 3e-4)])
    assert peak_rate(other) == pytest.approx(3e-4, rel=1e-5)


def test_a_run_as_long_as_the_recipe_is_the_recipe() -> None:
    recipe = load_recipe("multi30k")
    assert load_recipe("multi30k", short_schedule(recipe, recipe.training.max_updates)) == recipe
    assert load_recipe("multi30k", schedule_of(recipe)) == recipe


def test_a_time_gives_updates_that_fit_into_it() -> None:
    recipe = load_recipe("multi30k")
    assert updates_within(1.0, 3.6, recipe) == 900
    assert updates_within(1e-9, 3.6, recipe) == 1
    assert updates_within(1000.0, 0.01, recipe) == 3 * recipe.training.max_updates


def test_the_trial_counts_among_the_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1_800.0])
    monkeypatch.setattr(session.time, "monotonic", lambda: next(clock))
    options = TrainOptions(recipe="base", out=tmp_path / "run")
    trial = DryRunResult(*[1] * 15)
    recipe = session._fit_to_hours(options, 1.0, Worker(), lambda: trial)
    assert recipe.training.max_updates == 1_620  # of a second each, in nine tenths of half an hour


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0.0, "0 seconds"),
        (1 / 3600, "1 second"),
        (0.017, "1 minute"),
        (0.5, "30 minutes"),
        (1.25, "1.25 hours"),
        (3092.1, "3,100 hours (129 days)"),
    ],
)
def test_a_short_time_is_written_in_minutes_or_seconds(hours: float, text: str) -> None:
    assert time_text(hours) == text
