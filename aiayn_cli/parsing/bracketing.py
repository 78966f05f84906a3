"""Labelled bracketing (PARSEVAL; Black et al. 1991) by the rules of EVALB, the program that parsing papers report.

Trees are read as leniently as EVALB reads them. What it cannot compare, words that differ or brackets that do not
match, is an error sentence: counted, and left out of every other figure. The same holds for a skipped one, which has
no word in the output. (EVALB stops after ten error sentences, and reads no sentence with more than 200 words; here
there are no such limits.)
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from aiayn_cli.errors import DataError
from aiayn_cli.parsing.bracketing_rules import BracketRules

_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_VALID, _ERROR, _SKIP = 0, 1, 2  # EVALB's numbers
_QUOTES = ("'", '"', "/")  # words whose tag may be a quotation mark's or a possessive's


@dataclass
class _Bracket:
    label: str
    start: int  # words before it, deleted ones not counted
    end: int = -1


@dataclass(frozen=True)
class _Quote:
    """A word that may have been deleted on one side only, since its tag differs."""

    tag: str
    word: str
    position: int  # words before it
    bracket: int  # brackets before it
    around: tuple[int, ...]  # brackets that were open there


@dataclass
class _Reading:
    """One line, as EVALB holds it."""

    tags: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    brackets: list[_Bracket] = field(default_factory=list)
    quotes: list[_Quote] = field(default_factory=list)
    length: int = 0  # words that count for the length
    faulty: bool = False


@dataclass(frozen=True)
class SentenceScore:
    """EVALB's line about one sentence.

    Attributes:
        status: 0 valid, 1 error, 2 skipped.
        length: words of the reference, without those that the parameters leave out.
        matched: brackets that agree.
        gold: brackets of the reference.
        test: brackets of the output.
        crossing: brackets of the output that cross one of the reference.
        words: words compared.
        tags: words with the right tag.
        lost_gold, lost_test: of a sentence that is not valid: the brackets that would have counted.
    """

    status: int
    length: int
    matched: int = 0
    gold: int = 0
    test: int = 0
    crossing: int = 0
    words: int = 0
    tags: int = 0
    lost_gold: int = 0
    lost_test: int = 0


@dataclass(frozen=True)
class BracketScore:
    """EVALB's summary over sentences, and one figure more; shares are per cent, and 0 where there is nothing to share.

    Attributes:
        sentences: all of them.
        errors: sentences that could not be compared.
        skipped: sentences without a word in the output.
        recall, precision, f1: of labelled brackets.
        complete: valid sentences with all brackets right.
        crossing: brackets that cross one of the reference, for each valid sentence.
        no_crossing, two_or_less: valid sentences with none, or at most two, such brackets.
        tagging: words with the right part of speech.
        strict_f1: F1 where the brackets of sentences that could not be compared count as wrong, which EVALB leaves out:
            the same as f1 where there are none.
    """

    sentences: int
    errors: int
    skipped: int
    recall: float
    precision: float
    f1: float
    complete: float
    crossing: float
    no_crossing: float
    two_or_less: float
    tagging: float
    strict_f1: float

    @property
    def valid(self) -> int:
        """Sentences that were compared."""
        return self.sentences - self.errors - self.skipped

    def rows(self) -> list[tuple[str, float]]:
        """Each figure with EVALB's name for it; the last one is ours."""
        return [
            ("Number of sentence", self.sentences),
            ("Number of Error sentence", self.errors),
            ("Number of Skip  sentence", self.skipped),
            ("Number of Valid sentence", self.valid),
            ("Bracketing Recall", self.recall),
            ("Bracketing Precision", self.precision),
            ("Bracketing FMeasure", self.f1),
            ("Complete match", self.complete),
            ("Average crossing", self.crossing),
            ("No crossing", self.no_crossing),
            ("2 or less crossing", self.two_or_less),
            ("Tagging accuracy", self.tagging),
            ("FMeasure, errors counted", self.strict_f1),
        ]


def score_sentence(gold: str, test: str, rules: BracketRules) -> SentenceScore:
    """Compare one tree with its reference.

    Args:
        gold: the reference, a bracketed tree; blank where there is none.
        test: the output.
        rules: EVALB's parameters.
    """
    a, b = _read(gold, rules), _read(test, rules)
    lost = len(_counted(a.brackets, rules)), len(_counted(b.brackets, rules))
    if not b.words:
        return SentenceScore(_SKIP, a.length, lost_gold=lost[0], lost_test=lost[1])
    if len(a.words) != len(b.words):
        _fix_quotes(a, b, rules)
    same_words = len(a.words) == len(b.words) and all(map(rules.same_word, a.words, b.words))
    if a.faulty or b.faulty or not same_words:
        return SentenceScore(_ERROR, a.length, lost_gold=lost[0], lost_test=lost[1])
    gold_brackets, test_brackets = _counted(a.brackets, rules), _counted(b.brackets, rules)
    return SentenceScore(
        _VALID,
        a.length,
        matched=_match(gold_brackets, test_brackets, rules),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=sum(any(_cross(x, y) for x in gold_brackets) for y in test_brackets),
        words=len(a.words),
        tags=sum(map(rules.same_label, a.tags, b.tags)),
    )


def score_brackets(gold: Sequence[str], test: Sequence[str], rules: BracketRules) -> list[SentenceScore]:
    """Compare trees line by line.

    Raises:
        DataError: there are not as many trees as references, or there are none.
    """
    if len(gold) != len(test):
        raise DataError(
            f"there are {len(test):,} trees, but {len(gold):,} references", "score the trees of the same sentences"
        )
    if not gold:
        raise DataError("there is no tree to score", "check the files")
    return [score_sentence(a, b, rules) for a, b in zip(gold, test, strict=True)]


def summarise(sentences: Sequence[SentenceScore]) -> BracketScore:
    """Sum up, as EVALB does at its end."""
    valid = [each for each in sentences if each.status == _VALID]
    total = {each.name: sum(getattr(score, each.name) for score in valid) for each in fields(SentenceScore)}
    recall, precision = _percent(total["matched"], total["gold"]), _percent(total["matched"], total["test"])
    brackets = total["gold"] + total["test"] + sum(each.lost_gold + each.lost_test for each in sentences)
    return BracketScore(
        sentences=len(sentences),
        errors=sum(each.status == _ERROR for each in sentences),
        skipped=sum(each.status == _SKIP for each in sentences),
        recall=recall,
        precision=precision,
        f1=2 * recall * precision / (recall + precision) if recall + precision else 0.0,
        complete=_percent(sum(each.gold == each.test == each.matched for each in valid), len(valid)),
        crossing=total["crossing"] / len(valid) if valid else 0.0,
        no_crossing=_percent(sum(each.crossing == 0 for each in valid), len(valid)),
        two_or_less=_percent(sum(each.crossing <= 2 for each in valid), len(valid)),
        tagging=_percent(total["tags"], total["words"]),
        strict_f1=_percent(2 * total["matched"], brackets),
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _read(line: str, rules: BracketRules) -> _Reading:
    """Read a line; words with a deleted tag leave no trace but in the length."""
    reading = _Reading()
    tokens = _TOKEN.findall(line)
    still_open: list[int] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        i += 1
        if token == ")":
            if still_open:
                reading.brackets[still_open.pop()].end = len(reading.words)
            else:
                reading.faulty = True
            continue
        if token != "(":
            reading.faulty = True
            continue
        label = tokens[i] if i < len(tokens) and tokens[i] not in "()" else ""
        i += bool(label)
        if i < len(tokens) and tokens[i] not in "()":
            word = tokens[i]
            i += 1
            if i < len(tokens) and tokens[i] == ")":
                i += 1
                reading.length += label not in rules.deleted_for_length
                if label in rules.quote_labels and word in _QUOTES:
                    place = len(reading.words), len(reading.brackets), tuple(still_open)
                    reading.quotes.append(_Quote(label, word, *place))
                if label not in rules.deleted:
                    reading.tags.append(label)
                    reading.words.append(word)
                continue
            reading.faulty |= i == len(tokens) or tokens[i] != "("
        still_open.append(len(reading.brackets))
        reading.brackets.append(_Bracket(label, len(reading.words)))
    reading.faulty |= bool(still_open)
    return reading


def _fix_quotes(a: _Reading, b: _Reading, rules: BracketRules) -> None:
    """Put back a quotation mark that was deleted on one side, since the other side takes it for another word."""
    a_places, b_places = ([quote.position for quote in side.quotes] for side in (a, b))
    for j, y in enumerate(b.quotes):
        for i, x in enumerate(a.quotes):
            if a_places[i] == b_places[j] and (x.tag in rules.deleted) != (y.tag in rules.deleted):
                if x.tag in rules.deleted:
                    _put_back(a, x, a_places[i])
                    a_places[i:] = [place + 1 for place in a_places[i:]]
                else:
                    _put_back(b, y, b_places[j])
                    b_places[j:] = [place + 1 for place in b_places[j:]]
                break


def _put_back(reading: _Reading, quote: _Quote, position: int) -> None:
    reading.tags.insert(position, quote.tag)
    reading.words.insert(position, quote.word)
    for number, bracket in enumerate(reading.brackets):
        if number >= quote.bracket:
            bracket.start += 1
            bracket.end += 1
        elif number in quote.around:
            bracket.end += 1


def _counted(brackets: Sequence[_Bracket], rules: BracketRules) -> list[_Bracket]:
    """The brackets that count: around some word, with a label that is not deleted once its functions are cut off."""
    counted = []
    for bracket in brackets:
        label = re.split("[-=]", bracket.label, maxsplit=1)[0]
        if bracket.start != bracket.end and not any(rules.same_label(label, deleted) for deleted in rules.deleted):
            counted.append(_Bracket(label, bracket.start, bracket.end))
    return counted


def _match(gold: Sequence[_Bracket], test: Sequence[_Bracket], rules: BracketRules) -> int:
    """Pair each bracket of the reference with the first of the output that agrees and is still free."""
    free = list(test)
    for x in gold:
        for y in free:
            if (x.start, x.end) == (y.start, y.end) and (not rules.labelled or rules.same_label(x.label, y.label)):
                free.remove(y)
                break
    return len(test) - len(free)


def _cross(x: _Bracket, y: _Bracket) -> bool:
    return x.start < y.start < x.end < y.end or y.start < x.start < y.end < x.end
