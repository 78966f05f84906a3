"""Random choices of the built-in corpus, alike on every platform and Python version.

Only `random.Random.random()` is used: its sequence for a seed is guaranteed, that of choice() or shuffle() is not.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


class Chance:
    """A seeded source of choices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def of(self, probability: float) -> bool:
        """Say yes with this probability."""
        return self._random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """Choose one of the items, each as likely; at least one must be there."""
        return items[int(self._random() * len(items))]

    def between(self, low: int, high: int) -> int:
        """Choose an integer from low to high, both included."""
        return low + int(self._random() * (high - low + 1))

    def weighted(self, items: Sequence[tuple[Item, float]]) -> Item:
        """Choose one of (item, weight) pairs; the weights sum to 1."""
        left = self._random()
        for item, weight in items:
            left -= weight
            if left < 0:
                return item
        return items[-1][0]
