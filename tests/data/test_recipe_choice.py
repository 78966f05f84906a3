"""Each size of corpus gets a recipe that exists, and a GPU is never assumed."""

import pytest

from aiayn_cli.data.recipe_choice import choose_recipe
from aiayn_cli.recipe import recipe_names


@pytest.mark.parametrize(
    ("pairs", "on_cpu", "on_gpu"),
    [
        (1, "mini", "mini"),
        (5_000, "mini", "mini"),
        (30_000, "multi30k", "multi30k"),
        (200_000, "small", "small"),
        (1_000_000, "small", "medium"),
        (5_000_000, "small", "base"),
        (50_000_000, "small", "big"),
    ],
)
def test_larger_corpora_get_larger_recipes(pairs: int, on_cpu: str, on_gpu: str) -> None:
    assert choose_recipe(pairs).name == on_cpu
    assert choose_recipe(pairs, has_gpu=True).name == on_gpu
    assert {on_cpu, on_gpu} <= set(recipe_names())
    assert f"{pairs:,} pair" in choose_recipe(pairs).reason


def test_corpora_with_recipes_of_their_own_get_these() -> None:
    assert choose_recipe(24_000, corpus="demo").name == "tiny"
    assert choose_recipe(36_000_000, corpus="wmt14-en-fr", has_gpu=True).name == "big-en-fr"
    assert choose_recipe(36_000_000, corpus="wmt14-fr-en", has_gpu=True).name == "big-en-fr"


@pytest.mark.parametrize(("trees", "name"), [(10_000, "parsing-small"), (40_000, "parsing"), (10**7, "parsing-semi")])
def test_treebanks_get_the_parsers(trees: int, name: str) -> None:
    assert choose_recipe(trees, trees=True).name == name
