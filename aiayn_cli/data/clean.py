"""Which training pairs are dropped, and why. Each rule has its own count; what is kept keeps its order.

The rules, in the order in which they claim a pair:

* bad bytes: a side is not UTF-8 or holds NUL (only where the user asked to drop these, else the work stops there);
* blank: a side holds nothing but white space;
* overlap: the source side is the source side of a validation or test pair, or the target side its target side
  (outer blanks aside), so that no sentence that is scored was ever trained on;
* repeated: the same pair came before (64-bit hashes of both sides; two different pairs share one with probability
  4e-5 among 40 million pairs);
* too long: a side has more than `max_length` sub-word tokens;
* length ratio: the longer side has more than `max_ratio` * (shorter side + RATIO_SLACK) sub-word tokens. The slack
  lets short pairs differ, as they do in good translations ("Danke schön!" - "Thanks!").

Validation and test pairs pass through none of them: what is scored is never chosen by us.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aiayn_cli.data.text import is_blank

RATIO_SLACK = 5  # tokens
REASONS = {  # name in the manifest: how the table says it
    "bad_bytes": "bad bytes",
    "blank": "a blank side",
    "overlap": "overlap with validation or test text",
    "repeated": "repeated pair",
    "too_long": "too long",
    "length_ratio": "length ratio",
}

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


def find_blank(src: Sequence[str], tgt: Sequence[str]) -> Mask:
    """Mark each pair with a blank side: [pairs]."""
    blank = (is_blank(s) or is_blank(t) for s, t in zip(src, tgt, strict=True))
    return np.fromiter(blank, np.bool_, len(src))


def hash_pairs(src: Sequence[str], tgt: Sequence[str]) -> Hashes:
    """Hash each pair: [pairs]. The same on every machine."""
    digests = b"".join(
        hashlib.blake2b(f"{s}\n{t}".encode(), digest_size=8).digest() for s, t in zip(src, tgt, strict=True)
    )
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def find_repeats(hashes: Hashes) -> Mask:
    """Mark each pair whose hash came before: [pairs]."""
    repeated = np.ones(len(hashes), np.bool_)
    repeated[np.unique(hashes, return_index=True)[1]] = False
    return repeated


class ScoredText:
    """The text that will be scored, which training must not see.

    Args:
        pairs: source sides and target sides of each split that is scored.
    """

    def __init__(self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
        self._src: set[str] = set()
        self._tgt: set[str] = set()
        for src, tgt in pairs:
            self._src.update(record.strip() for record in src if not is_blank(record))
            self._tgt.update(record.strip() for record in tgt if not is_blank(record))

    def find_overlap(self, src: Sequence[str], tgt: Sequence[str]) -> Mask:
        """Mark each pair of which a side is scored: [pairs]."""
        scored = (s.strip() in self._src or t.strip() in self._tgt for s, t in zip(src, tgt, strict=True))
        return np.fromiter(scored, np.bool_, len(src))


@dataclass(frozen=True)
class LengthRules:
    """The two rules about sub-word tokens (see the top of this file)."""

    max_length: int
    max_ratio: float

    def find_too_long(self, src_lengths: npt.NDArray[np.int32], tgt_lengths: npt.NDArray[np.int32]) -> Mask:
        """Mark each pair with a side that is too long: [pairs]."""
        return np.maximum(src_lengths, tgt_lengths) > self.max_length

    def find_unbalanced(self, src_lengths: npt.NDArray[np.int32], tgt_lengths: npt.NDArray[np.int32]) -> Mask:
        """Mark each pair whose sides differ too much: [pairs]."""
        shorter, longer = np.minimum(src_lengths, tgt_lengths), np.maximum(src_lengths, tgt_lengths)
        return longer > self.max_ratio * (shorter + RATIO_SLACK)


def rank_pairs(hashes: Hashes, seed: int, purpose: int) -> Hashes:
    """Give each pair a random-looking rank that depends on its text, the seed and the purpose alone: [pairs].

    What is picked by rank stays picked when the order of the corpus or the number of processes changes.
    """
    with np.errstate(over="ignore"):  # splitmix64 (Steele et al. 2014), started at a different point for each use
        ranks = hashes + np.uint64(0x9E3779B97F4A7C15) * np.uint64((2 * seed + 1) * 8 + purpose)
        ranks = (ranks ^ (ranks >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        ranks = (ranks ^ (ranks >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ranks ^ (ranks >> np.uint64(31))
