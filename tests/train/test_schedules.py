"""A short run keeps its recipe's proportions: no average that reaches back into the warm-up."""

import pytest

from aiayn_cli.recipe import load_recipe
from aiayn_cli.train.options import peak_rate, schedule_of, short_schedule, updates_within


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
