"""A benchmark's short run keeps its recipe's proportions: no average that reaches back into the warm-up."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from aiayn_cli.recipe import load_recipe

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "short_runs.py"


@pytest.fixture(scope="module")
def short_runs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("short_runs", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("updates", [100, 400, 1500, 9600, 20_000])
def test_the_average_takes_no_checkpoint_of_the_warm_up(short_runs: ModuleType, updates: int) -> None:
    recipe = load_recipe("multi30k", short_runs.short_schedule(load_recipe("multi30k"), updates)).training
    averaged = recipe.average_last * recipe.save_every_steps
    assert recipe.max_updates == updates
    assert averaged <= updates / 8  # as in the recipe: 8 x 150 of 9,600
    assert recipe.warmup_steps <= updates / 5 < updates - averaged


@pytest.mark.parametrize("updates", [100, 1500, 9600])
@pytest.mark.parametrize("overrides", [[], ["model.d_model=132"], ["training.warmup_steps=50"]])
def test_the_rate_rises_to_the_recipe_s_peak_or_the_one_that_is_given(
    short_runs: ModuleType, updates: int, overrides: list[str]
) -> None:
    recipe = load_recipe("multi30k", overrides)
    short = load_recipe("multi30k", [*overrides, *short_runs.short_schedule(recipe, updates)])
    assert short_runs.peak_rate(short) == pytest.approx(short_runs.peak_rate(recipe), rel=1e-5)
    other = load_recipe("multi30k", [*overrides, *short_runs.short_schedule(recipe, updates, 3e-4)])
    assert short_runs.peak_rate(other) == pytest.approx(3e-4, rel=1e-5)


def test_a_run_as_long_as_the_recipe_is_the_recipe(short_runs: ModuleType) -> None:
    recipe = load_recipe("multi30k")
    assert load_recipe("multi30k", short_runs.short_schedule(recipe, recipe.training.max_updates)) == recipe
