"""Signs that training text is not what it should be: shares of a sample of its pairs, with advice.

The language of a side is judged by the words of the validation text that are much more frequent on one of its sides.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from aiayn_cli.prepare.formats import Chunk, Pair
from aiayn_cli.text.sentences import split_sentences


class Sign(NamedTuple):
    label: str  # in the table
    least: float  # share of the pairs that is shown
    advice: str  # in a warning; empty: none


SIGNS = {
    "several_sentences": Sign("source lines of several sentences", 0.0005, ""),
    "swapped": Sign("pairs with swapped sides", 0.05, "exchange the files of --train, or those of --valid"),
    "tgt_in_src_lang": Sign("targets in the source language", 0.05, "remove them: models learn to leave text as it is"),
    "src_in_tgt_lang": Sign("sources in the target language", 0.05, "remove them: models learn to leave text as it is"),
    "html_entities": Sign("pairs with HTML entities", 0.01, "decode &amp; and the like in the files first"),
}

_ENTITY = re.compile(r"&(?:#\d{1,6}|#[xX][\da-fA-F]{1,5}|[A-Za-z]{2,8}\d{0,2});")
_WORD = re.compile(r"[^\W\d_]+")
_LEAST_WORDS = 2  # more of one language than of the other, to call a line one of it
_LEAST_PAIRS = 50  # to judge languages by


def find_signs(pairs: Sequence[Pair], valid: Chunk, src_lang: str) -> dict[str, float]:
    """Shares of the pairs, by sign."""
    signs = {
        "several_sentences": sum(len(split_sentences(src, src_lang)) > 1 for src, _ in pairs),
        "html_entities": sum(bool(_ENTITY.search(src) or _ENTITY.search(tgt)) for src, tgt in pairs),
    }
    if min(len(pairs), len(valid[0])) >= _LEAST_PAIRS:
        is_src, is_tgt = _judges(*(Counter(word for line in side for word in _words(line)) for side in valid))
        kinds = Counter((is_tgt(src), is_src(tgt)) for src, tgt in pairs)
        signs |= {
            "swapped": kinds[True, True],
            "src_in_tgt_lang": kinds[True, False],
            "tgt_in_src_lang": kinds[False, True],
        }
    return {name: round(count / max(len(pairs), 1), 4) for name, count in signs.items()}


def shown(signs: Mapping[str, float]) -> dict[str, float]:
    """The signs that are strong enough, in the order of the table."""
    return {name: signs[name] for name, sign in SIGNS.items() if signs.get(name, 0) >= sign.least}


def _words(line: str) -> set[str]:
    return set(_WORD.findall(line.lower()))


def _judges(src: Counter[str], tgt: Counter[str]) -> tuple[Callable[[str], bool], Callable[[str], bool]]:
    """Whether a line is in the language of the source, and of the target; given the frequencies of words in both."""
    of_src = {word for word, count in src.items() if count > 2 * tgt[word]}
    of_tgt = {word for word, count in tgt.items() if count > 2 * src[word]}

    def more_of(own: set[str], other: set[str], line: str) -> bool:
        words = _words(line)
        return len(words & own) - len(words & other) >= _LEAST_WORDS

    return lambda line: more_of(of_src, of_tgt, line), lambda line: more_of(of_tgt, of_src, line)
