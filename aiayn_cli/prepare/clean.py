"""Which training pairs are dropped, and why. Each rule has its own count; what is kept keeps its order.

The rules, in the order in which they claim a pair. Each but the first two can be turned off:

* bad bytes: a side is not UTF-8 or holds NUL (only where the user asked to drop these, else the work stops there);
* blank: a side holds nothing but white space;
* too long (words): a side has more than `max_words` words between blanks;
* identical: both sides are the same text; such pairs teach a model to leave text untranslated;
* no letters: a side has no letter of any script, only digits, marks or signs;
* wrong script: most letters of a side belong to a script that its language is not written in (text/scripts.py);
* overlap: the source side is the source side of a validation or test pair, or the target side its target side, so
  that no sentence that is scored was ever trained on (pairs are compared as they come, before any processing, and
  copies in upper or title case are not compared again);
* repeated: the same pair came before;
* too long (tokens): a side has more than `max_length` sub-word tokens;
* length ratio: the longer side has more than `max_ratio` * (shorter side + RATIO_SLACK) sub-word tokens. The slack
  lets short pairs differ, as they do in good translations ("Danke schön!" - "Thanks!").

Blanks at either end of a side make no difference. Overlap and repetition compare 64-bit hashes: two different pairs
among 40 million share one with probability 4e-5.

Validation and test pairs pass through none of them: what is scored is never chosen by us.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aiayn_cli.config import DataConfig
from aiayn_cli.prepare.profile import Profiler
from aiayn_cli.text.lines import is_blank

RATIO_SLACK = 5  # tokens
_PAIRS_SORTED = 4_000_000  # at once, about
REASONS = {  # name in the manifest: how the table says it
    "bad_bytes": "bad bytes",
    "blank": "a blank side",
    "too_many_words": "too long (words)",
    "identical": "identical sides",
    "no_letters": "a side without letters",
    "wrong_script": "wrong script",
    "overlap": "overlap with validation or test text",
    "repeated": "repeated pair",
    "too_many_tokens": "too long (tokens)",
    "length_ratio": "length ratio",
}

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


def hash_records(records: Sequence[str]) -> Hashes:
    """Hash each record without the blanks at its ends: [records]. The same on every machine."""
    digests = b"".join([hashlib.blake2b(record.strip().encode(), digest_size=8).digest() for record in records])
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def hash_pairs(src: Hashes, tgt: Hashes) -> Hashes:
    """Hash each pair, given the hashes of its sides: [pairs]."""
    return _mix(_mix(src) + tgt)


def find_repeats(hashes: Hashes) -> Mask:
    """Mark each pair whose hash came before: [pairs]. Needs little memory beside the hashes."""
    repeated = np.zeros(len(hashes), np.bool_)
    tops = (hashes >> np.uint64(56)).astype(np.uint8)
    step = max(256 // (len(hashes) // _PAIRS_SORTED + 1), 1)  # so that one sort after the other takes a part of them
    for top in range(0, 256, step):
        places = np.flatnonzero((tops >= top) & (tops < top + step))
        order = places[np.argsort(hashes[places], kind="stable")]
        repeated[order[1:][hashes[order[1:]] == hashes[order[:-1]]]] = True
    return repeated


class ScoredText:
    """The text that will be scored, which training must not see.

    Args:
        pairs: source sides and target sides of each split that is scored.
    """

    def __init__(self, pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
        sides: tuple[list[str], list[str]] = [], []
        for pair in pairs:
            for side, records in zip(sides, pair, strict=True):
                side += [record for record in records if not is_blank(record)]
        self._src, self._tgt = hash_records(sides[0]), hash_records(sides[1])

    @classmethod
    def of_hashes(cls, src: Hashes, tgt: Hashes) -> "ScoredText":
        """Make it of the hashes of all source sides and all target sides."""
        scored = cls(())
        scored._src, scored._tgt = src, tgt
        return scored

    def find_overlap(self, src: Hashes, tgt: Hashes) -> Mask:
        """Mark each pair of which a side is scored, given the hashes of its sides: [pairs]."""
        return np.isin(src, self._src) | np.isin(tgt, self._tgt)


class TextRules:
    """The rules that a pair's text alone decides.

    Args:
        config: which of them hold.
        src_lang: code of the source language.
        tgt_lang: code of the target language.
        scored: what must not be trained on.
    """

    def __init__(self, config: DataConfig, src_lang: str, tgt_lang: str, scored: ScoredText) -> None:
        self._config = config
        self._scored = scored
        self._profilers = Profiler(src_lang), Profiler(tgt_lang)

    def claim(self, src: Sequence[str], tgt: Sequence[str]) -> tuple[dict[str, Mask], Hashes, Hashes]:
        """Find what is to be dropped.

        Returns:
            For each rule the pairs that it claims, none of them twice: [pairs]; the hashes of both sides: [pairs].
        """
        config = self._config
        src_profile, tgt_profile = (p.profile(side) for p, side in zip(self._profilers, (src, tgt), strict=True))
        src_hashes, tgt_hashes = hash_records(src), hash_records(tgt)
        claims = {"blank": (src_profile.words == 0) | (tgt_profile.words == 0)}
        if config.max_words:
            longer = np.maximum(src_profile.words, tgt_profile.words)
            claims["too_many_words"] = longer > config.max_words
        if config.drop_identical:
            claims["identical"] = src_hashes == tgt_hashes
        if config.drop_no_letters:
            claims["no_letters"] = (src_profile.letters == 0) | (tgt_profile.letters == 0)
        if config.drop_wrong_script:
            wrong = [p.find_wrong_script(x) for p, x in zip(self._profilers, (src_profile, tgt_profile), strict=True)]
            claims["wrong_script"] = wrong[0] | wrong[1]
        if config.drop_overlap:
            claims["overlap"] = self._scored.find_overlap(src_hashes, tgt_hashes)
        claimed = np.zeros(len(src), np.bool_)
        for reason, claim in claims.items():
            claims[reason] = claim & ~claimed
            claimed |= claim
        return claims, src_hashes, tgt_hashes


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
    with np.errstate(over="ignore"):  # started at a different point for each use
        return _mix(hashes + np.uint64(0x9E3779B97F4A7C15) * np.uint64((2 * seed + 1) * 8 + purpose))


def _mix(x: Hashes) -> Hashes:
    """The finaliser of splitmix64 (Steele et al. 2014): each bit of the result depends on all of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)  # arrays wrap around without a warning
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
