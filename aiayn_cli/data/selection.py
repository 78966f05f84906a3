"""The training text on its way: written down once as clean plain text, then read by each later step without the
pairs that a rule claimed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aiayn_cli.data.clean import Hashes, Mask, ScoredText, find_blank, find_repeats, hash_pairs, rank_pairs
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
        self._out: Mask = np.empty(0, np.bool_)  # dropped or held out since
        self._weights: npt.NDArray[np.uint16] = np.empty(0, np.uint16)  # how often each is to be taken

    def __len__(self) -> int:
        return int(len(self._out) - self._out.sum())

    def collect(self, chunks: Iterable[tuple[int, Chunk]], scored: ScoredText) -> None:
        """Write down all pairs but those with a blank side, and those that overlap with scored text.

        Args:
            chunks: each with its weight: how often its pairs are to be taken.
            scored: what must not be trained on.
        """
        hashes: list[Hashes] = []
        weights: list[npt.NDArray[np.uint16]] = []

        def still_in() -> Iterator[Chunk]:
            for weight, chunk in chunks:
                chunk = self._claim("blank", chunk, find_blank(*chunk))
                chunk = self._claim("overlap", chunk, scored.find_overlap(*chunk))
                hashes.append(hash_pairs(*chunk))
                weights.append(np.full(len(chunk[0]), weight, np.uint16))
                yield chunk

        self._spool.write(still_in())
        self._hashes = np.concatenate([self._hashes, *hashes])
        self._weights = np.concatenate([self._weights, *weights])
        self._out = np.zeros(len(self._hashes), np.bool_)

    def hold_out(self, most: int, share: float, seed: int) -> Chunk:
        """Take pairs out for validation, and drop what overlaps with them.

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
        others = np.ones(len(self._hashes), np.bool_)
        others[first[np.argpartition(ranks, n - 1)[:n]]] = False
        src: list[str] = []
        tgt: list[str] = []
        for (src_chunk, tgt_chunk), _ in self._without(others):
            src += src_chunk
            tgt += tgt_chunk
        self._out |= ~others
        scored = ScoredText([(src, tgt)])
        for chunk, positions in self._without(self._out):
            overlap = positions[scored.find_overlap(*chunk)]
            self.dropped["overlap"] += len(overlap)
            self._out[overlap] = True
        return src, tgt

    def drop_repeats(self) -> None:
        """Drop each pair that came before."""
        repeats = find_repeats(self._hashes) & ~self._out
        self.dropped["repeated"] += int(repeats.sum())
        self._out |= repeats

    def sample(self, most: int, seed: int) -> Iterator[Chunk]:
        """Give a random part of the pairs, about `most` of them, in order; all where there are no more."""
        out = self._out
        if len(self) > most:
            out = out | (rank_pairs(self._hashes, seed, _SAMPLE) >= np.uint64(most / len(self) * 2**64))
        for chunk, _ in self._without(out):
            yield chunk

    def chunks(self) -> Iterator[Chunk]:
        """Give the pairs that are still in."""
        for chunk, _ in self._without(self._out):
            yield chunk

    def copies(self) -> Iterator[Chunk]:
        """Give once more, or several times, the pairs that are in and are to be taken more than once.

        A whole round after the other, so that copies of a pair are far from each other.
        """
        for taken in range(1, int(self._weights.max(initial=1))):
            for chunk, _ in self._without(self._out | (self._weights <= taken)):
                yield chunk

    def remove(self) -> None:
        """Delete the text."""
        self._spool.remove()

    def _claim(self, reason: str, chunk: Chunk, claimed: Mask) -> Chunk:
        if not claimed.any():
            return chunk
        self.dropped[reason] += int(claimed.sum())
        return _pick(chunk, ~claimed)

    def _without(self, out: Mask) -> Iterator[tuple[Chunk, npt.NDArray[np.intp]]]:
        """Read the text, and give the pairs that are not out, with their positions in it."""
        start = 0
        for chunk in self._spool.chunks():
            n = len(chunk[0])
            still_in = ~out[start : start + n]
            yield _pick(chunk, still_in), start + np.flatnonzero(still_in)
            start += n


def _pick(chunk: Chunk, picked: Mask) -> Chunk:
    if picked.all():
        return chunk
    selectors = picked.tolist()
    return list(compress(chunk[0], selectors)), list(compress(chunk[1], selectors))
