"""Which recipe fits how much text: what `train --recipe auto` takes, and what `prepare` recommends."""

from dataclasses import dataclass

AUTO = "auto"  # what stands for the recipe that is chosen here
_DEMO = "demo"
# Recipe and most training pairs that it suits, from small to large.
_BY_PAIRS = [
    ("mini", 15_000),
    ("multi30k", 100_000),
    ("small", 500_000),
    ("medium", 2_000_000),
    ("base", 20_000_000),
]
_LARGEST = "big"
_LARGEST_WITHOUT_GPU = "small"
_BY_TREES = [("parsing-small", 30_000), ("parsing", 200_000)]
_LARGEST_FOR_TREES = "parsing-semi"


@dataclass(frozen=True)
class RecipeChoice:
    """The name of a recipe, and a sentence about why."""

    name: str
    reason: str


def choose_recipe(pairs: int, *, corpus: str = "", trees: bool = False, has_gpu: bool = False) -> RecipeChoice:
    """Choose the recipe for a prepared corpus.

    Args:
        pairs: training pairs kept.
        corpus: its name, such as wmt14-en-fr; empty for text of one's own.
        trees: whether the target side is trees.
        has_gpu: whether a GPU will train it.
    """
    if corpus == _DEMO:
        return RecipeChoice("tiny", "the built-in corpus has a recipe of its own")
    table, largest = (_BY_TREES, _LARGEST_FOR_TREES) if trees else (_BY_PAIRS, _LARGEST)
    what = "trees" if trees else "pairs"
    number = next((at for at, (_, most) in enumerate(table) if pairs <= most), len(table))
    name = table[number][0] if number < len(table) else largest
    low = f"more than {table[number - 1][1]:,}" if number else ""
    high = f"up to {table[number][1]:,}" if number < len(table) else ""
    suits = f"{pairs:,} {what}: {name} is for {' and '.join(filter(None, (low, high)))}"
    names = [recipe for recipe, _ in table] + [largest]
    if not trees and not has_gpu and number > names.index(_LARGEST_WITHOUT_GPU):
        return RecipeChoice(
            _LARGEST_WITHOUT_GPU,
            f"{pairs:,} {what}: {name} would suit, but needs a GPU; on a CPU, small",
        )
    if {"wmt14", "en", "fr"} <= set(corpus.split("-")) and name in ("base", "big"):
        name += "-en-fr"
    return RecipeChoice(name, suits)
