"""Text cut into sentences by sentencex (Wikimedia's splitter, about 300 languages), with a few rules of ours."""

import re
from itertools import accumulate

import sentencex

from aiayn_cli.text.languages import primary_language

# What follows these is the name or the number that they belong to.
_TITLES = {"fr": ("M.", "MM.", "Mme.", "Mlle."), "ru": ("им.", "ул.", "гг."), "uk": ("ім.", "вул.")}
_INITIAL = re.compile(r"(?:^|[\s.])[^\W\d_]\.$")  # "т. е.", "z. B."
_ORDINAL = re.compile(r"(?:^|[\s.(])\d{1,3}\.$")  # "am 3. Mai", "im 19. Jahrhundert"
_CAPITALISED_NOUNS = ("de", "lb")
# Words that begin a sentence there, so that the number before them was no ordinal.
_BEGINNINGS = (
    " aber als also am an auch auf aus bei bis da damit dann das dem den denn der des deshalb die dies "
    " diese dieser dieses dort du ein eine einer eines er es für hier ich ihr im in ist ja jetzt kein "
    " keine man mit nach nein nicht niemand nun nur ob oder sie sind so und unter vom von vor wann warum "
    " was wenn wer wie wir wo zu zum zur "
)
# Ends of sentences that sentencex passes over: Khmer, Tibetan, and a bracket after the full stop.
_MORE_ENDS = re.compile(r"(?<=[។៕])(?=.)|(?<=[།༎])(?=\s)|(?<=[.!?…][)\]])(?=\s)")
_HARDLY_ANY = 0.05  # of the lines


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of a line, without blanks at their ends; none for a blank line.

    What has no letters, such as "(3)" or "1.", is no sentence and stays with its neighbour.
    """
    code = primary_language(lang)
    ends = {*accumulate(map(len, sentencex.segment(code, text))), *(m.start() for m in _MORE_ENDS.finditer(text))}
    sentences, start = [], 0
    places = sorted({end for end in ends if end < len(text)} | {len(text)})
    for end, next_end in zip(places, [*places[1:], len(text)], strict=True):
        if end == len(text) or _is_end(text[start:end].rstrip(), text[end:next_end].lstrip(), code):
            sentences.append(text[start:end].strip())
            start = end
    return [sentence for sentence in sentences if sentence]


def knows_single_sentences(several: float | None) -> bool:
    """Whether a model drops sentences of a line: given the share of its training text with several on a line."""
    return several is not None and several < _HARDLY_ANY


def has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _is_end(before: str, after: str, code: str) -> bool:
    """Whether a sentence ends between two stretches of text."""
    if not (has_letters(before) and has_letters(after)):
        return False
    first_word = re.findall(r"\w+", after)[0]
    goes_on = first_word[0].islower()
    if before.endswith(_TITLES.get(code, ())) or (goes_on and _INITIAL.search(before)):
        return False
    named = code in _CAPITALISED_NOUNS and f" {first_word.lower()} " not in _BEGINNINGS
    return not (_ORDINAL.search(before) and (goes_on or named))
