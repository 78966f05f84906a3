"""Signs that a translation is wrong: what differs from its source, and whether the model found it unlikely.

A flag is a reason to look, not a proof: a number can be spelled out, a name can be copied.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.languages import primary_language
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.scripts import find_letters, find_members, scripts_of
from aiayn_cli.text.sentences import has_letters, split_sentences
from aiayn_cli.text.vocab import UNKNOWN
from aiayn_cli.translate.aids.glossary import Glossary
from aiayn_cli.translate.aids.markup import ADDRESS, find_markup
from aiayn_cli.translate.line_translator import Translation

FLAGS = {
    "empty": "the output is blank, the source is not",
    "low_confidence": "log p per token is lower than for 99 % of the validation set",
    "too_long": "a word is too long for the model and was copied, or a sentence to parse is too long and was skipped",
    "looping": "the same sub-words repeat, and in the source they do not",
    "sentences_lost": "fewer sentences than the source",
    "copied": "the output is the source",
    "truncated": "cut at the length limit, or less than a third of the source's length",
    "wrong_script": "most letters belong to scripts that the target language does not use",
    "number_lost": "a number of the source above 12 is missing",
    "url_lost": "a web or e-mail address of the source is missing",
    "unknown_symbols": "the source has characters that the vocabulary lacks",
    "markup_lost": "a tag or placeholder is missing or repeated",
    "glossary_missed": "a term of the glossary is missing",
    "tree_repaired": "brackets or words had to be repaired to make a tree",
}

_NUMBER = re.compile(
    # 24.12.2020, 3. 5. 26, 5/3/2026, 2026-05-03; but not 192.168.1.1
    r"(?P<date>\d{1,2}([./-])[ \u00a0]?\d{1,2}\2[ \u00a0]?(?:\d{4}|\d{2})|\d{4}([./-])\d{1,2}\3\d{1,2})(?![.\d]?\d)"
    r"|(?P<time>\d{1,2}[:.h]\d{2}(?![.,:]?\d)|\d{1,2}(?=[ \u00a0\u202f]?(?:uhr|h|[ap]\.?m)\b))"
    r"|(?P<groups>\d{1,3}(?:[ \u00a0\u2007-\u2009\u202f]\d{3})+(?!\d)(?:[.,٫]\d+)?)"  # 1 000 000,5
    r"|\d+(?:[.,'’٬٫]\d+)*",
    re.IGNORECASE,
)
_OFTEN_SPELLED_OUT = 12  # numbers up to it
_LONGEST_LOOP = 20  # sub-words of a repeated sequence
_LONG_SOURCE = 12  # sub-words of a source; its output is suspect if very short
_FEW_LETTERS = 4  # too few to tell a script by
_COPIED_WORDS = 5  # words of an output; it is suspect if most are copied
_COPIED_SHARE = 0.75
_FEWEST_OUTPUTS = 20  # for a threshold; one from fewer would flag more than 5 % of similar text


class OutputChecks:
    """Checks translations from one language into another.

    Args:
        src_lang, tgt_lang: codes such as "de" or "zh_Hans".
        trees: reads outputs that are trees, which are only checked for cuts, unknown symbols and repairs.
        markup: whether to look for tags and placeholders.
        thresholds: Checkpoint.low_confidence of each model; the lowest counts, none if a model has none.
    """

    def __init__(
        self,
        src_lang: str,
        tgt_lang: str,
        *,
        trees: TreeText | None = None,
        glossary: Glossary | None = None,
        markup: bool = False,
        thresholds: Sequence[float | None] = (),
    ) -> None:
        self._src_lang, self._tgt_lang = src_lang, tgt_lang
        self._glossary, self._markup, self._trees = glossary, markup, trees
        scripts, self._letters = scripts_of(tgt_lang), find_letters()
        self._expected = find_members(scripts) if scripts else None
        self._languages_differ = primary_language(src_lang) != primary_language(tgt_lang)
        self._least = min((-math.inf if each is None else each for each in thresholds), default=-math.inf)

    def flags(self, source: str, output: Translation) -> tuple[str, ...]:
        """The flags to raise, in the order of FLAGS; none for a blank source."""
        if is_blank(source) or (not output.parts and not output.is_skipped and math.isnan(output.log_prob)):
            return ()
        if output.is_skipped:
            return ("too_long",)
        if is_blank(output.text):
            return ("empty",)
        copied = [part.word for part in output.parts if has_letters(part.word)]  # too long for the model
        found = {
            "too_long": bool(copied),
            "low_confidence": confidence(output) < self._least,
            "truncated": any(
                part.is_cut
                or (self._trees is None and len(part.src) >= _LONG_SOURCE and 3 * len(part.tgt) < len(part.src))
                for part in output.parts
            ),
            "unknown_symbols": UNKNOWN in output.text or any(UNK_ID in part.src for part in output.parts),
        }
        if self._trees is None:
            text = output.text
            for word in copied:  # says nothing about the translation of the others
                source, text = source.replace(word, " "), text.replace(word, " ")
            found |= self._flags_of_text(source, text)
            found["sentences_lost"] = self._loses_sentences(source, output)
            found["looping"] = any(is_looping(part.tgt) and not is_looping(part.src) for part in output.parts)
        else:
            found["tree_repaired"] = bool(self._trees.restore(source, output.text).repairs)
        return tuple(name for name in FLAGS if found.get(name))

    def _flags_of_text(self, source: str, text: str) -> dict[str, bool]:
        return {
            "copied": self._languages_differ and _is_copied(source, text),
            "wrong_script": self._is_foreign(text),
            "number_lost": bool(lost_numbers(source, text)),
            "url_lost": any(True for _ in lost_addresses(source, text)),
            "markup_lost": self._markup and find_markup(source) != find_markup(text),
            "glossary_missed": self._glossary is not None and bool(self._glossary.missing(source, text)),
        }

    def _loses_sentences(self, source: str, output: Translation) -> bool:
        before = len(split_sentences(source, self._src_lang))
        return before > max(1, len(output.parts)) and len(split_sentences(output.text, self._tgt_lang)) < before

    def _is_foreign(self, text: str) -> bool:
        if self._expected is None:
            return False
        codes = np.frombuffer(text.encode("utf-32-le", "replace"), np.uint32)
        letters = codes[self._letters[codes]]
        return len(letters) >= _FEW_LETTERS and 2 * int(self._expected[letters].sum()) < len(letters)


def confidence(output: Translation) -> float:
    """Mean natural log p of an output's tokens, with an end token for each part; NaN if no model wrote it."""
    tokens = sum(len(part.tgt) + 1 for part in output.parts if not part.word)
    return output.log_prob / tokens if tokens else math.nan


def confidence_threshold(outputs: Iterable[float]) -> float | None:
    """The 1st percentile of the confidence of outputs, for Checkpoint.low_confidence; None for fewer than 20.

    The k-th lowest of n estimates the quantile k / (n + 1), so that of fewer than 100 the lowest is taken. It is
    rounded down, so that no order of sums decides.
    """
    known = [each for each in outputs if math.isfinite(each)]
    if len(known) < _FEWEST_OUTPUTS:
        return None
    return math.floor(100 * np.quantile(known, 0.01, method="weibull")) / 100


def is_looping(ids: Sequence[int]) -> bool:
    """Whether up to 20 sub-words repeat four times in a row (three times if they are three or more)."""
    array = np.asarray(ids)
    for period in range(1, min(_LONGEST_LOOP, len(array) // 3) + 1):
        same = array[period:] == array[:-period]
        needed = period * (2 if period >= 3 else 3)  # consecutive places equal to the one a period before
        changes = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
        if int((changes[1::2] - changes[::2]).max(initial=0)) >= needed:
            return True
    return False


def lost_numbers(source: str, text: str) -> list[str]:
    """The numbers of the source that the text lacks, by their digits: 1,000.5 and 1.000,5 are the same.

    Dates and times may be written otherwise, and months in words: 03.05.2026 and 3 May 2026, 17:45 and 5:45 pm.
    """
    kept = Counter(form for number in _numbers(text) for form in {*number.forms, *number.parts})
    lost = []
    for number in _numbers(source):
        if form := next((form for form in number.forms if kept[form]), ""):
            kept[form] -= 1
        elif _can_be_missed(number.forms[0]) and not (number.needed and all(kept[part] for part in number.needed)):
            lost.append(number.forms[0])
    return lost


def lost_addresses(source: str, text: str) -> Iterator[str]:
    """The web and e-mail addresses of the source that the text lacks."""
    wanted = dict.fromkeys(ADDRESS.findall(source))
    kept = set(ADDRESS.findall(text)) if wanted else set()  # searching the text for each of 10,000 takes too long
    return (address for address in wanted if address not in kept and address not in text)


class _Number(NamedTuple):
    """A number, date or time of a text."""

    forms: list[str]  # by which it equals another: its digits first
    parts: list[str]  # of a date, a time or groups of digits
    needed: list[str]  # the parts that stand for it if no form is found


def _numbers(text: str) -> Iterator[_Number]:
    digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    for match in _NUMBER.finditer(digits):
        found = re.findall(r"\d+", match.group())
        forms, parts = ["".join(found)], [] if match.lastgroup is None else found
        if decimals := re.fullmatch(r"(.*\d)[.,٫](\d{1,2})", match.group()):  # 5.50 is 5.5, and 10,00 is 10
            forms.append("".join(re.findall(r"\d+", decimals[1])) + decimals[2].rstrip("0"))
        if match["groups"]:
            yield _Number(forms, parts, parts)
            continue
        parts = [str(int(part)) for part in parts]
        if match["date"]:
            *days, year = parts if len(found[0]) < 4 else parts[::-1]
            forms.append(f"{'/'.join(sorted(days))}/{year[-2:]}")
        elif match["time"]:
            hour, minute = (*map(int, parts), 0)[:2]
            forms.append(f"{hour % 12}:{minute}")
        yield _Number(forms, parts, list(filter(_can_be_missed, parts)) or parts)


def _can_be_missed(digits: str) -> bool:
    """Whether a number is large enough to stand in digits; Python refuses to convert thousands of them."""
    significant = digits.lstrip("0")
    return len(significant) > 2 or int(significant or "0") > _OFTEN_SPELLED_OUT


def _is_copied(source: str, text: str) -> bool:
    before, after = source.casefold().split(), text.casefold().split()
    words = list(filter(has_letters, after))
    if before == after:
        # A title or a name may stay as it is.
        lower = [word for word in text.split() if word[:1].isalpha() and not word[:1].isupper()]
        return (len(words) >= 2 and len(lower) >= 2) or (len(lower) == 1 and len(lower[0]) >= 12)
    kept = sum((Counter(words) & Counter(before)).values())
    return len(words) >= _COPIED_WORDS and kept >= _COPIED_SHARE * len(words)
