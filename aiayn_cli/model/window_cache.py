"""Slots of a cache whose tokens a window has left behind, for devices that the host must not wait for."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


class LeftBehind:
    """Knows from positions alone which slots can be taken again, so that a pool does not grow with the length.

    A slot whose hypothesis was dropped stays taken as long as the others: only the device knows of that.

    Args:
        sentences: how many there are.
        window: how far back a position sees, in tokens, at least 1.
        growth: slots by which a pool grows.
    """

    def __init__(self, sentences: int, window: int, growth: int) -> None:
        self._window, self._growth = window, growth
        # int64 [sentences, slots], on the host: the first position whose token may take the slot.
        self._free_from = torch.zeros(sentences, 0, dtype=torch.int64)

    def take_up(self, lengths: Sequence[int], beams: int, new_len: int) -> tuple[Tensor, int]:
        """Find slots for new tokens.

        Args:
            lengths: positions that each sentence's hypotheses have read.
            beams: hypotheses of each sentence.
            new_len: tokens that each of them reads.
        Returns:
            The slots, int64 [sentences, beams * new_len] on the host, and how many a pool must have.
        """
        new, read = beams * new_len, torch.tensor(lengths)[:, None]
        missing = new - int((self._free_from <= read).sum(dim=1).min())
        if missing > 0:
            size = -(-(self._free_from.shape[1] + missing) // self._growth) * self._growth
            self._free_from = _widened(self._free_from, size)
        size = self._free_from.shape[1]
        order = (self._free_from > read).int() * size + torch.arange(size)
        slots = order.topk(new, dim=1, largest=False).indices
        positions = read + torch.arange(new_len).repeat(beams)
        self._free_from.scatter_(1, slots, positions + self._window + 1)
        return slots, size

    def keep(self, sentences: Sequence[int]) -> None:
        """Drop all but some sentences."""
        self._free_from = self._free_from[list(sentences)]

    def take(self, places: Sequence[int], other: "LeftBehind", chosen: slice) -> None:
        """Put some sentences of another cache in some places."""
        size = max(self._free_from.shape[1], other._free_from.shape[1])
        self._free_from = _widened(self._free_from, size)
        self._free_from[list(places)] = _widened(other._free_from[chosen], size)


def _widened(free_from: Tensor, size: int) -> Tensor:
    """With free slots at the end."""
    return functional.pad(free_from, (0, size - free_from.shape[1]))
