"""Which training pairs are dropped, and why. Each rule has its own count; the remaining pairs keep their order.

A pair is counted under the first rule that claims it. Each rule but the first two can be turned off:

* bad bytes: a side is not UTF-8 or holds NUL (only with on_bad_bytes=drop; otherwise prepare stops there);
* blank: a side holds nothing but white space;
* too long (words): a side has more than `max_words` words between blanks;
* identical: both sides are the same text; such pairs teach a model to leave text untranslated;
* no letters: a side has no letter of any script, only digits, marks or signs;
* wrong script: most letters of a side belong to a script that its language is not written in (text/scripts.py);
* overlap: the source side is the source side of a validation or test pair, or the target side its target side, so
  that no scored sentence is trained on (compared before any processing; copies in upper or title case are not
  compared again);
* repeated: the same pair came before;
* too long (tokens): a side has more than `max_length` sub-word tokens;
* length ratio: the longer side has more than `max_ratio` * (shorter side + RATIO_SLACK) sub-word tokens. The slack
  lets short pairs differ, as they do in good translations ("Danke schön!" - "Thanks!").

Blanks at either end of a side make no difference. Overlap and repetition compare 64-bit hashes: two different pairs
among 40 million share one with probability 4e-5. The rules never touch validation and test pairs.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aiayn_cli.data.batches import GOLDEN_GAMMA, splitmix64
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.formats import Chunk, ReadCounts
from aiayn_cli.recipe_keys import DataConfig
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.normalise import normalise
from aiayn_cli.text.scripts import DENSE_SCRIPTS, SCRIPTS, find_letters, find_members, scripts_of

LETTERS_OF_A_DENSE_ONE = 3  # letters of an alphabet that say as much as one letter of Han, Kana or Hangul
RATIO_SLACK = 5  # tokens
REASONS = {  # name in the manifest: label in the table
    "bad_bytes": "not UTF-8",
    "blank": "blank side",
    "too_many_words": "too long (words)",
    "identical": "identical sides",
    "no_letters": "side without letters",
    "wrong_script": "wrong script",
    "overlap": "overlap with validation or test text",
    "repeated": "repeated pair",
    "too_many_tokens": "too long (tokens)",
    "length_ratio": "length ratio",
}

_PAIRS_SORTED = 4_000_000  # in one sort, about; bounds the memory
_WHITE, _LETTER, _OWN, _FOREIGN = 1, 2, 4, 8

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Lengths = npt.NDArray[np.int32]


class Profile(NamedTuple):
    """Counts for each record: [records]."""

    words: Counts  # stretches without white space
    letters: Counts  # of any script
    own: Counts  # letters of the language's scripts
    foreign: Counts  # letters of other scripts; 0 for a language whose scripts are unknown


class Profiler:
    """Counts words and letters in records of one language, given its code."""

    def __init__(self, lang: str) -> None:
        scripts = scripts_of(lang)
        self._own_weight = LETTERS_OF_A_DENSE_ONE if scripts & DENSE_SCRIPTS else 1
        letters = find_letters()
        self._kinds = np.zeros(sys.maxunicode + 1, np.uint8)  # by code point
        self._kinds[[code for code in range(0x3001) if chr(code).isspace()]] = _WHITE
        self._kinds[letters] = _LETTER
        if scripts:
            own = find_members(scripts)
            self._kinds[letters & own] |= _OWN
            self._kinds[letters & find_members(SCRIPTS) & ~own] |= _FOREIGN

    def profile(self, records: Sequence[str]) -> Profile:
        """Profile records, none of which holds LF."""
        if not records:
            return Profile(*np.zeros((4, 0), np.int64))
        text = "\n".join(records) + "\n"  # so that each record has at least one character, and LF is white
        # ASCII text takes a quarter of the memory, and most English text is ASCII.
        encoding, dtype = ("ascii", "u1") if text.isascii() else ("utf-32-le", "<u4")
        codes = np.frombuffer(text.encode(encoding), dtype)
        kinds = self._kinds[codes]
        ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)) + 1)
        white = kinds & _WHITE
        ends_word = np.zeros(len(white), np.bool_)
        ends_word[1:] = white[1:] > white[:-1]
        return Profile(_count(ends_word, ends), *(_count(kinds & kind > 0, ends) for kind in (_LETTER, _OWN, _FOREIGN)))

    def find_wrong_script(self, profile: Profile) -> Mask:
        """Mark each record with mostly letters of scripts that the language does not use: [records]."""
        return profile.foreign > self._own_weight * profile.own


def _count(marks: Mask, ends: Counts) -> Counts:
    """Count the marks in each record: [characters], where each record ends [records] -> [records]."""
    return np.diff(np.cumsum(marks, dtype=np.int64)[ends - 1], prepend=0)


def hash_records(records: Sequence[str]) -> Hashes:
    """Hash each record without the blanks at its ends: [records]. The same on every machine."""
    digests = b"".join([hashlib.blake2b(record.strip().encode(), digest_size=8).digest() for record in records])
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def hash_pairs(src: Hashes, tgt: Hashes) -> Hashes:
    """Hash each pair, given the hashes of its sides: [pairs]."""
    return splitmix64(splitmix64(src - GOLDEN_GAMMA) + tgt - GOLDEN_GAMMA)


def find_repeats(hashes: Hashes) -> Mask:
    """Mark each pair whose hash came before: [pairs]. Needs little memory in addition to the hashes."""
    repeated = np.zeros(len(hashes), np.bool_)
    tops = (hashes >> np.uint64(56)).astype(np.uint8)
    step = max(256 // (len(hashes) // _PAIRS_SORTED + 1), 1)  # each sort takes the hashes of some top bytes
    for top in range(0, 256, step):
        places = np.flatnonzero((tops >= top) & (tops < top + step))
        order = places[np.argsort(hashes[places], kind="stable")]
        repeated[order[1:][hashes[order[1:]] == hashes[order[:-1]]]] = True
    return repeated


def rank_pairs(hashes: Hashes, seed: int, purpose: int) -> Hashes:
    """Give each pair a pseudo-random rank that depends on its text, the seed and the purpose alone: [pairs]."""
    with np.errstate(over="ignore"):  # started at a different point for each use
        return splitmix64(hashes + GOLDEN_GAMMA * np.uint64((2 * seed + 1) * 8 + purpose - 1))


class ScoredText(NamedTuple):
    """The text that will be scored, which training must not see: hashes of its source and of its target sides."""

    src: Hashes
    tgt: Hashes

    @classmethod
    def of(cls, splits: Collection[Chunk]) -> "ScoredText":
        sides = map(chain.from_iterable, zip(*splits, strict=True)) if splits else ((), ())
        return cls(*(hash_records([normalise(record) for record in side if not is_blank(record)]) for side in sides))

    def find_overlap(self, src: Hashes, tgt: Hashes) -> Mask:
        """Mark each pair with a side in the scored text, given the hashes of both sides: [pairs]."""
        return np.isin(src, self.src) | np.isin(tgt, self.tgt)


class TextRules:
    """The rules that depend on a pair's text alone."""

    def __init__(self, config: DataConfig, src_lang: str, tgt_lang: str, scored: ScoredText) -> None:
        self._config = config
        self._scored = scored
        self._profilers = Profiler(src_lang), Profiler(tgt_lang)

    def claim(self, src: Sequence[str], tgt: Sequence[str]) -> tuple[dict[str, Mask], Hashes, Hashes]:
        """The pairs to drop by rule, each under one rule: [pairs]; the hashes of both sides: [pairs]."""
        config = self._config
        src_profiler, tgt_profiler = self._profilers
        src_profile, tgt_profile = src_profiler.profile(src), tgt_profiler.profile(tgt)
        src_hashes, tgt_hashes = hash_records(src), hash_records(tgt)
        claims = {"blank": (src_profile.words == 0) | (tgt_profile.words == 0)}
        if config.max_words:
            claims["too_many_words"] = np.maximum(src_profile.words, tgt_profile.words) > config.max_words
        if config.drop_identical:
            claims["identical"] = src_hashes == tgt_hashes
        if config.drop_no_letters:
            claims["no_letters"] = (src_profile.letters == 0) | (tgt_profile.letters == 0)
        if config.drop_wrong_script:
            wrong = src_profiler.find_wrong_script(src_profile) | tgt_profiler.find_wrong_script(tgt_profile)
            claims["wrong_script"] = wrong
        if config.drop_overlap:
            claims["overlap"] = self._scored.find_overlap(src_hashes, tgt_hashes)
        claimed = np.zeros(len(src), np.bool_)
        for reason, claim in claims.items():
            claims[reason] = claim & ~claimed
            claimed |= claim
        return claims, src_hashes, tgt_hashes


@dataclass(frozen=True)
class LengthRules:
    """The two rules about sub-word tokens."""

    max_length: float
    max_ratio: float

    def claim(self, src_lengths: Lengths, tgt_lengths: Lengths) -> tuple[Mask, Mask]:
        """Mark the pairs with a side that is too long, and other pairs whose sides differ too much: [pairs] each."""
        shorter, longer = np.minimum(src_lengths, tgt_lengths), np.maximum(src_lengths, tgt_lengths)
        too_long = longer > self.max_length
        return too_long, (longer > self.max_ratio * (shorter + RATIO_SLACK)) & ~too_long


def refuse_empty(
    n_pairs: int, files: str, counts: ReadCounts, dropped: Sequence[Mapping[str, int]], held_out: int, *, trees: bool
) -> None:
    """Raise DataError, with all reasons, if no training pair is left; `dropped` is by origin and reason."""
    if n_pairs:
        return
    what, lines = ("tree", "bracketed trees") if trees else ("line", "a sentence per line")
    if not counts.pairs:
        without = f": no {what} of {counts.skipped:,} has a word" if counts.skipped else ""
        raise DataError(f"no text in {files}{without}", f"give files with {lines}")
    totals = all_reasons(sum(map(Counter, dropped), Counter[str]()))
    reasons = [f"{count:,} {REASONS[reason]}" for reason, count in totals.items() if count]
    hint = "check the files; prepare's manual says how to turn rules off, such as --set data.drop_identical=false"
    if totals["blank"] == counts.pairs:
        hint = f"give files with {lines}"
    if held_out:
        reasons.append(f"{held_out:,} held out for validation")
        hint = f"give more training text, or validation {'trees with --valid-trees' if trees else 'text with --valid'}"
    raise DataError(f"{files}: no training pair is left of {counts.pairs:,} ({', '.join(reasons)})", hint)


def all_reasons(dropped: Mapping[str, int]) -> dict[str, int]:
    """The number of pairs for each reason to drop one, in the order of the rules."""
    return {reason: dropped.get(reason, 0) for reason in REASONS}
