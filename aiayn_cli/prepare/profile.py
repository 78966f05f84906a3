"""What the characters of many records are: letters, in which script, and how many words they make."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
