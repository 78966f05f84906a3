"""The training text on its way: written down once as clean plain text, then read by each later step without the
pairs that a rule claimed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path

import numpy as np

from aiayn_cli.data.clean import Hashes, Mask, ScoredText, find_repeats, hash_pairs, is_usable, rank_pairs
from aiayn_cli.data.pairs import Chunk, TextSpool

# What a rank is drawn for; different purposes draw independently.
_HOLD_OUT, _SAMPLE = 0, 1


class TrainingText:
    """Training pairs as text, and which of them are still in.

    Args:
        folder: where the text is kept meanwhile.

    Attributes:
        dropped: pairs dropped so far, by the name of the rule (clean.REASONS).
    """

    def __init__(self, folder: Path) -> None:
        self.dropped: Counter[str] = Counter()
        self._spool = TextSpool(folder, "text", "src", "tgt")
        self._hashes: Hashes = np.empty(0, np.uint64)  # one for each pair in the spool
        self._out: Mask = np.empty(0, np.bool_)  # repeated or held out
        self._scored = ScoredText(())

    def collect(self, chunks: Iterable[Chunk]) -> None:
        """Write down all pairs but those with a blank side."""
        hashes: list[Hashes] = []

        def usable_chunks() -> Iterator[Chunk]:
            for src, tgt in chunks:
                usable = [is_usable(s, t) for s, t in zip(src, tgt, strict=True)]
                if not all(usable):
                    self.dropped["blank"] += len(usable) - sum(usable)
                    src, tgt = list(compress(src, usable)), list(compress(tgt, usable))
                hashes.append(hash_pairs(src, tgt))
                yield src, tgt

        self._spool.write(usable_chunks())
        self._hashes = np.concatenate([self._hashes, *hashes])
        self._out = np.zeros(len(self._hashes), np.bool_)

    def drop_repeats(self) -> None:
        """Drop each pair that came before."""
        repeats = find_repeats(self._hashes) & ~self._out
        self.dropped["repeated"] += int(repeats.sum())
        self._out |= repeats

    def hold_out(self, most: int, share: float, seed: int) -> Chunk:
        """Take pairs out for validation.

        Args:
            most: pairs at most.
            share: of all different pairs at most; but one at least where there are two.
            seed: which ones.
        Returns:
            The pairs in the order of the text.
        """
        first = np.flatnonzero(~(find_repeats(self._hashes) | self._out))
        n = min(most, max(int(share * len(first)), 1), len(first) - 1)
        if n < 1:
            return [], []
        ranks = rank_pairs(self._hashes[first], seed, _HOLD_OUT)
        chosen = np.zeros(len(self._hashes), np.bool_)
        chosen[first[np.argpartition(ranks, n - 1)[:n]]] = True
        src_taken: list[str] = []
        tgt_taken: list[str] = []
        for src, tgt, start in self._all():
            here = chosen[start : start + len(src)]
            if here.any():
                src_taken += compress(src, here)
                tgt_taken += compress(tgt, here)
        self._out |= chosen
        return src_taken, tgt_taken

    def protect(self, scored: ScoredText) -> None:
        """Drop, from now on, what overlaps with text that will be scored."""
        self._scored = scored

    def sample(self, most: int, seed: int) -> Iterator[Chunk]:
        """Give a random part of the pairs, about `most` of them, in order; all where there are no more."""
        n = int(len(self._out) - self._out.sum())
        if n <= most:
            yield from self._selected(self._out, Counter())
        else:
            limit = np.uint64(most / n * 2**64)
            yield from self._selected(self._out | (rank_pairs(self._hashes, seed, _SAMPLE) >= limit), Counter())

    def chunks(self) -> Iterator[Chunk]:
        """Give the pairs that are still in; counts overlap, so that it is called once."""
        return self._selected(self._out, self.dropped)

    def remove(self) -> None:
        """Delete the text."""
        self._spool.remove()

    def _selected(self, out: Mask, dropped: Counter[str]) -> Iterator[Chunk]:
        for src, tgt, start in self._all():
            still_in = ~out[start : start + len(src)]
            overlap = still_in & self._scored.find_overlap(src, tgt)
            dropped["overlap"] += int(overlap.sum())
            still_in &= ~overlap
            yield list(compress(src, still_in)), list(compress(tgt, still_in))

    def _all(self) -> Iterator[tuple[list[str], list[str], int]]:
        start = 0
        for src, tgt in self._spool.chunks():
            yield src, tgt, start
            start += len(src)
