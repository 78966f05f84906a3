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
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aiayn_cli.config import DataConfig
from aiayn_cli.data.batches import GOLDEN_GAMMA, splitmix64
from aiayn_cli.errors import DataError
from aiayn_cli.prepare.pairs import ReadCounts
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.scripts import DENSE_SCRIPTS, SCRIPTS, find_letters, find_members, scripts_of

LETTERS_OF_A_DENSE_ONE = 3  # letters of an alphabet that say as much as one letter of Han, Kana or Hangul

_WHITE, _LETTER, _OWN, _FOREIGN = 1, 2, 4, 8

Counts = npt.NDArray[np.int64]  # [records]


@dataclass(frozen=True)
class Profile:
    """Counts for each record.

    Attributes:
        words: stretches without white space: [records].
        letters: of any script: [records].
        own: letters of the language's scripts: [records].
        foreign: letters of other scripts; 0 throughout for a language whose scripts are not known: [records].
    """

    words: Counts
    letters: Counts
    own: Counts
    foreign: Counts


class Profiler:
    """Counts what is in the records of one language.

    Args:
        lang: its code, such as "de".
    """

    def __init__(self, lang: str) -> None:
        scripts = scripts_of(lang)
        self._own_weight = LETTERS_OF_A_DENSE_ONE if scripts & DENSE_SCRIPTS else 1
        letters = find_letters()
        kinds = np.zeros(sys.maxunicode + 1, np.uint8)
        kinds[[code for code in range(0x3001) if chr(code).isspace()]] = _WHITE
        kinds[letters] = _LETTER
        if scripts:
            own = find_members(scripts)
            kinds[letters & own] |= _OWN
            kinds[letters & find_members(SCRIPTS) & ~own] |= _FOREIGN
        self._kinds = kinds

    def profile(self, records: Sequence[str]) -> Profile:
        """Count for each of the records, none of which holds LF."""
        if not records:
            return Profile(*np.zeros((4, 0), np.int64))
        text = "\n".join(records) + "\n"  # so that each record has at least one character, and LF is white
        # ASCII text takes a quarter of the memory, and most English text is ASCII.
        codes = (
            np.frombuffer(text.encode(), np.uint8) if text.isascii() else np.frombuffer(text.encode("utf-32-le"), "<u4")
        )
        kinds = self._kinds[codes]
        ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)) + 1)
        white = kinds & _WHITE
        ends_word = np.zeros(len(white), np.bool_)
        ends_word[1:] = white[1:] > white[:-1]
        return Profile(
            words=_count(ends_word, ends),
            letters=_count(kinds & _LETTER > 0, ends),
            own=_count(kinds & _OWN > 0, ends),
            foreign=_count(kinds & _FOREIGN > 0, ends),
        )

    def find_wrong_script(self, profile: Profile) -> npt.NDArray[np.bool_]:
        """Mark each record most of whose letters are of a script that the language is not written in: [records]."""
        return profile.foreign > self._own_weight * profile.own


def _count(marks: npt.NDArray[np.bool_], ends: Counts) -> Counts:
    """Count the marks in each record: [characters], where each record ends [records] -> [records]."""
    return np.diff(np.cumsum(marks, dtype=np.int64)[ends - 1], prepend=0)


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
    return splitmix64(splitmix64(src - GOLDEN_GAMMA) + tgt - GOLDEN_GAMMA)


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
        return splitmix64(hashes + GOLDEN_GAMMA * np.uint64((2 * seed + 1) * 8 + purpose - 1))


def refuse_empty(
    n_pairs: int, counts: ReadCounts, dropped: Sequence[Mapping[str, int]], held_out: int, *, trees: bool
) -> None:
    """Stop where there is nothing to train on.

    Args:
        n_pairs: training pairs that are left.
        counts: what was read.
        dropped: of each origin, by reason.
        held_out: pairs taken for validation.
        trees: whether the pairs are words and trees.
    Raises:
        DataError: no pair is left, with all reasons.
    """
    if n_pairs:
        return
    if not counts.pairs:
        if trees:
            without = f": {counts.skipped:,} have no word" if counts.skipped else ""
            raise DataError(f"the training text holds no tree{without}", "give files with bracketed trees")
        raise DataError("the training text holds no pair", "give files with a sentence a line")
    totals = all_reasons(sum(map(Counter, dropped), Counter[str]()))
    reasons = [f"{count:,} {REASONS[reason]}" for reason, count in totals.items() if count]
    hint = "look into the files; `--set data.RULE=false` turns a rule off, see the README"
    if held_out:
        reasons.append(f"{held_out:,} held out for validation")
        hint = f"give more training text, or validation {'trees with --valid-trees' if trees else 'text with --valid'}"
    raise DataError(f"no training pair is left of {counts.pairs:,} ({', '.join(reasons)})", hint)


def nothing_to_score(split: str, *, trees: bool) -> DataError:
    """What to say of a validation or test file without a pair."""
    if trees:
        return DataError(f"the {split} file holds no tree", f"leave out --{split}-trees, or give another file")
    return DataError(f"the {split} files hold no pair", f"leave out --{split}, or give other files")


def all_reasons(dropped: Mapping[str, int]) -> dict[str, int]:
    """The number of pairs for each reason to drop one, in the order of the rules."""
    return {reason: dropped.get(reason, 0) for reason in REASONS}
