"""Labelled bracketing (PARSEVAL; Black et al. 1991) by the rules of EVALB, the program that parsing papers report.

Trees are read as leniently as EVALB reads them. A sentence that it cannot compare, because words differ or brackets do
not match, is an error sentence: counted, and excluded from all other figures. So is a skipped one, whose output has no
words. EVALB's limits (ten error sentences, 200 words in a sentence) do not apply.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from aiayn_cli.errors import DataError, did_you_mean

# A bracket with its label and perhaps a word, closed or not; the end of another; or text outside.
_TOKEN = re.compile(r"\((\s*(?P<label>[^\s()]+)(\s+(?P<word>[^\s()]+)(?P<closed>\s*\))?)?)?|\)|[^\s()]+", re.ASCII)
_OPEN = re.compile(r"\s*\(", re.ASCII)
_VALID, _ERROR, _SKIP = 0, 1, 2  # EVALB's numbers
_QUOTES = ("'", '"', "/")  # words that may be tagged as a quotation mark or as a possessive
_IGNORED = ("DEBUG", "MAX_ERROR")  # parameters of EVALB's own output
_KEYWORDS = (
    "LABELED", "CUTOFF_LEN", "DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL", "EQ_LABEL", "EQ_WORD",
)  # fmt: skip


@dataclass(frozen=True)
class BracketRules:
    """EVALB's parameters. Defaults: its COLLINS.prm, and the names that treebanks give the outermost bracket."""

    labelled: bool = True  # labels must agree
    cutoff: int = 40  # words of the longest sentence in the second table
    # Labels that do not count; a word with such a tag is removed with its bracket.
    deleted: tuple[str, ...] = ("TOP", "ROOT", "S1", "-NONE-", ",", ":", "``", "''", ".")
    deleted_for_length: tuple[str, ...] = ("-NONE-",)  # tags of words that the length does not count
    quote_labels: tuple[str, ...] = ()  # tags that a quotation mark may have instead of each other
    equal_labels: frozenset[frozenset[str]] = field(default_factory=lambda: frozenset({frozenset({"ADVP", "PRT"})}))
    equal_words: frozenset[frozenset[str]] = frozenset()

    def same_label(self, first: str, second: str) -> bool:
        return first == second or frozenset((first, second)) in self.equal_labels


def read_rules(records: Iterable[str], name: str) -> BracketRules:
    """Read the lines of one of EVALB's parameter files; raises DataError, with the file's name, for other lines."""
    values: dict[str, list[list[str]]] = {keyword: [] for keyword in (*_KEYWORDS, *_IGNORED)}
    for number, record in enumerate(records, start=1):
        if record.startswith("#") or not record.strip():
            continue
        keyword, *given = record.split()
        if keyword not in values:
            raise DataError(f"{name}:{number}: unknown parameter {keyword}", did_you_mean(keyword, _KEYWORDS))
        needed, in_words = (2, "two values") if keyword.startswith("EQ_") else (1, "one value")
        if len(given) != needed:
            raise DataError(f"{name}:{number}: {keyword} has {len(given)}", f"give {in_words}")
        if keyword in ("LABELED", "CUTOFF_LEN") and not given[0].isdecimal():
            raise DataError(f"{name}:{number}: {keyword} is {given[0]}", "write a whole number")
        values[keyword].append(given)
    first = {keyword: tuple(given[0] for given in lines) for keyword, lines in values.items()}
    return BracketRules(
        labelled=int(("1", *first["LABELED"])[-1]) != 0,
        cutoff=int(("40", *first["CUTOFF_LEN"])[-1]),
        deleted=first["DELETE_LABEL"],
        deleted_for_length=first["DELETE_LABEL_FOR_LENGTH"],
        quote_labels=first["QUOTE_LABEL"],
        equal_labels=frozenset(map(frozenset, values["EQ_LABEL"])),
        equal_words=frozenset(map(frozenset, values["EQ_WORD"])),
    )


@dataclass
class _Bracket:
    label: str
    start: int  # words before it, deleted ones not counted
    end: int = -1

    def crosses(self, other: "_Bracket") -> bool:
        return self.start < other.start < self.end < other.end or other.start < self.start < other.end < self.end


class _Quote(NamedTuple):
    """A quotation mark, which may be deleted on one side only because its tag differs."""

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
    """EVALB's line about one sentence."""

    status: int  # 0 valid, 1 error, 2 skipped
    length: int  # words of the reference, without deleted ones
    matched: int = 0  # brackets that agree
    gold: int = 0  # brackets of the reference
    test: int = 0  # brackets of the output
    crossing: int = 0  # brackets of the output that cross one of the reference
    words: int = 0  # words compared
    tags: int = 0  # words with the right tag
    lost_gold: int = 0  # of a sentence that is not valid: brackets that would have counted
    lost_test: int = 0


@dataclass(frozen=True)
class BracketScore:
    """EVALB's summary, and one more figure. Shares are in per cent; 0 where there is nothing to divide by."""

    sentences: int
    errors: int  # sentences that could not be compared
    skipped: int  # sentences without a word in the output
    recall: float  # of labelled brackets, as the next two
    precision: float
    f1: float
    complete: float  # valid sentences with all brackets right
    crossing: float  # brackets per valid sentence that cross one of the reference
    no_crossing: float  # valid sentences without such brackets
    two_or_less: float  # valid sentences with at most two
    tagging: float  # words with the right part of speech
    strict_f1: float  # F1 where the brackets of error and skipped sentences, which EVALB ignores, count as wrong

    @property
    def valid(self) -> int:
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
    a, b = _read(gold, rules), _read(test, rules)
    lost = {"lost_gold": len(_counted(a.brackets, rules)), "lost_test": len(_counted(b.brackets, rules))}
    if not b.words:
        return SentenceScore(_SKIP, a.length, **lost)
    if len(a.words) != len(b.words):
        _fix_quotes(a, b, rules)
    different = {frozenset(words) for words in zip(a.words, b.words, strict=False) if words[0] != words[1]}
    if a.faulty or b.faulty or len(a.words) != len(b.words) or not different <= rules.equal_words:
        return SentenceScore(_ERROR, a.length, **lost)
    gold_brackets, test_brackets = _counted(a.brackets, rules), _counted(b.brackets, rules)
    return SentenceScore(
        _VALID,
        a.length,
        matched=_match(gold_brackets, test_brackets, rules),
        gold=len(gold_brackets),
        test=len(test_brackets),
        crossing=sum(any(x.crosses(y) for x in gold_brackets) for y in test_brackets),
        words=len(a.words),
        tags=sum(map(rules.same_label, a.tags, b.tags)),
    )


def score_brackets(gold: Sequence[str], test: Sequence[str], rules: BracketRules) -> list[SentenceScore]:
    """Compare trees line by line; raises DataError if there are none, or not as many as references."""
    if len(gold) != len(test):
        problem = f"there are {len(test):,} trees, but {len(gold):,} references"
        raise DataError(problem, "score the trees of the same sentences")
    if not gold:
        raise DataError("there is no tree to score", "check the files")
    return [score_sentence(a, b, rules) for a, b in zip(gold, test, strict=True)]


def summarise(sentences: Sequence[SentenceScore]) -> BracketScore:
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
    """Read a line; words with a deleted tag count for the length alone."""
    reading = _Reading()
    still_open: list[int] = []
    for token in _TOKEN.finditer(line):
        label, word = token["label"] or "", token["word"]
        if token[0] == ")" and still_open:
            reading.brackets[still_open.pop()].end = len(reading.words)
        elif token[0][0] != "(":
            reading.faulty = True
        elif word and token["closed"]:
            reading.length += label not in rules.deleted_for_length
            if label in rules.quote_labels and word in _QUOTES:
                reading.quotes.append(_Quote(label, word, len(reading.words), len(reading.brackets), tuple(still_open)))
            if label not in rules.deleted:
                reading.tags.append(label)
                reading.words.append(word)
        else:
            reading.faulty |= bool(word) and not _OPEN.match(line, token.end())
            still_open.append(len(reading.brackets))
            reading.brackets.append(_Bracket(label, len(reading.words)))
    reading.faulty |= bool(still_open)
    return reading


def _fix_quotes(a: _Reading, b: _Reading, rules: BracketRules) -> None:
    """Restore a quotation mark that was deleted on one side, since the other side takes it for another word."""
    a_places, b_places = ([quote.position for quote in side.quotes] for side in (a, b))
    for j, y in enumerate(b.quotes):
        for i, x in enumerate(a.quotes):
            if a_places[i] == b_places[j] and (x.tag in rules.deleted) != (y.tag in rules.deleted):
                if x.tag in rules.deleted:
                    _restore(a, x, a_places[i])
                    a_places[i:] = [place + 1 for place in a_places[i:]]
                else:
                    _restore(b, y, b_places[j])
                    b_places[j:] = [place + 1 for place in b_places[j:]]
                break


def _restore(reading: _Reading, quote: _Quote, position: int) -> None:
    reading.tags.insert(position, quote.tag)
    reading.words.insert(position, quote.word)
    for number, bracket in enumerate(reading.brackets):
        if number >= quote.bracket:
            bracket.start += 1
            bracket.end += 1
        elif number in quote.around:
            bracket.end += 1


def _counted(brackets: Sequence[_Bracket], rules: BracketRules) -> list[_Bracket]:
    """The brackets around at least one word, with labels that are not deleted; functions are cut off the labels."""
    counted = []
    for bracket in brackets:
        label = re.split("[-=]", bracket.label, maxsplit=1)[0]
        if bracket.start != bracket.end and not any(rules.same_label(label, deleted) for deleted in rules.deleted):
            counted.append(_Bracket(label, bracket.start, bracket.end))
    return counted


def _match(gold: Sequence[_Bracket], test: Sequence[_Bracket], rules: BracketRules) -> int:
    """Pair each bracket of the reference with the first unpaired one of the output that agrees."""
    free = list(test)
    for x in gold:
        for y in free:
            if (x.start, x.end) == (y.start, y.end) and (not rules.labelled or rules.same_label(x.label, y.label)):
                free.remove(y)
                break
    return len(test) - len(free)
