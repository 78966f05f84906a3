"""Which recipe fits how much text: what `train --recipe auto` takes, and what `prepare` recommends."""

from typing import NamedTuple

from aiayn_cli import logs

AUTO = "auto"  # stands for the recipe that is chosen here
_MOST = 1 << 62
# Recipes, with the most training pairs (or trees) that each suits.
_BY_PAIRS = {
    "mini": 15_000, "multi30k": 100_000, "small": 500_000, "medium": 2_000_000, "base": 20_000_000, "big": _MOST,
}  # fmt: skip
_BY_TREES = {"parsing-small": 30_000, "parsing": 200_000, "parsing-semi": _MOST}
_FOR_CPUS = ("mini", "multi30k", "small")


class RecipeChoice(NamedTuple):
    """The name of a recipe, and why it was chosen."""

    name: str
    reason: str


def choose_recipe(pairs: int, *, corpus: str = "", trees: bool = False, has_gpu: bool = False) -> RecipeChoice:
    """Choose the recipe for so many training pairs of a named corpus or, with "", of other text."""
    if corpus == "demo":
        return RecipeChoice("tiny", "the built-in corpus has a recipe of its own")
    table, what = (_BY_TREES, "tree") if trees else (_BY_PAIRS, "pair")
    name = next(name for name, most in table.items() if pairs <= most)
    count = logs.counted(pairs, what)
    if not trees and not has_gpu and name not in _FOR_CPUS:
        return RecipeChoice("small", f"{count}: {name} would suit, but needs a GPU; on a CPU, small")
    up_to = f"up to {table[name]:,}" if table[name] < _MOST else "the largest corpora"
    if {"wmt14", "en", "fr"} <= set(corpus.split("-")) and name in ("base", "big"):
        name += "-en-fr"
    return RecipeChoice(name, f"{count}: {name} is for {up_to}")
