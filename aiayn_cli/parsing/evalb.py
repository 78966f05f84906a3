"""Labelled bracketing (PARSEVAL; Black et al. 1991) by the rules of EVALB, the program that parsing papers report.

Trees are read as leniently as EVALB reads them. A sentence that it cannot compare, because words differ or brackets do
not match, is an error sentence: counted, and excluded from all other figures. So is a skipped one, whose output has no
words. EVALB's limits (ten error sentences, 200 words in a sentence) do not apply.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from aiayn_cli import logs
from aiayn_cli.errors import DataError, UsageError, did_you_mean
from aiayn_cli.text.lines import check_lines, display_name, read_file

# A bracket with its label and perhaps a word, closed or not; the end of another; or text outside.
_TOKEN = re.compile(r"\((\s*(?P<label>[^\s()]+)(\s+(?P<word>[^\s()]+)(?P<closed>\s*\))?)?)?|\)|[^\s()]+", re.ASCII)
_OPEN = re.compile(r"\s*\(", re.ASCII)
_VALID, _ERROR, _SKIP = 0, 1, 2  # EVALB's numbers
_ERRORS_NAMED = 5  # one by one; the rest are only counted
_QUOTES = ("'", '"', "/")  # words that may be tagged as a quotation mark or as a possessive
_IGNORED = ("DEBUG", "MAX_ERROR")  # parameters of EVALB's own output
_KEYWORDS = ("LABELED", "CUTOFF_LEN", "DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL", "EQ_LABEL", "EQ_WORD")


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
    """Read the lines of one of EVALB's parameter files; a DataError names file and line."""
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


class _Quote(NamedTuple):  # a quotation mark, which may be deleted on one side only because its tag differs
    tag: str
    word: str
    position: int  # words before it
    bracket: int  # brackets before it
    around: tuple[int, ...]  # brackets that were open there


@dataclass
class _Reading:
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


def _named(name: str) -> Any:
    return field(metadata={"name": name})


@dataclass(frozen=True, kw_only=True)
class BracketScore:
    """EVALB's summary, and one more figure. Shares are in per cent; 0 where there is nothing to divide by."""

    sentences: int = _named("Number of sentence")
    errors: int = _named("Number of Error sentence")  # that could not be compared
    skipped: int = _named("Number of Skip  sentence")  # without a word in the output
    valid: int = _named("Number of Valid sentence")
    recall: float = _named("Bracketing Recall")  # of labelled brackets, as the next two
    precision: float = _named("Bracketing Precision")
    f1: float = _named("Bracketing FMeasure")
    complete: float = _named("Complete match")  # valid sentences with all brackets right
    crossing: float = _named("Average crossing")  # brackets per valid sentence that cross one of the reference
    no_crossing: float = _named("No crossing")  # valid sentences without such brackets
    two_or_less: float = _named("2 or less crossing")  # valid sentences with at most two
    tagging: float = _named("Tagging accuracy")  # words with the right part of speech
    strict_f1: float = _named("FMeasure, errors counted")  # where all brackets of other sentences count as wrong

    def rows(self) -> list[tuple[str, float]]:
        """Each figure with EVALB's name for it; the last one is ours."""
        return [(each.metadata["name"], getattr(self, each.name)) for each in fields(self)]


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
    """Compare trees line by line with as many references."""
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
        valid=len(valid),
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
    """Pair each bracket of the reference with the first unpaired one of the output that agrees; returns the pairs."""
    free = list(test)
    for x in gold:
        for y in free:
            if (x.start, x.end) == (y.start, y.end) and (not rules.labelled or rules.same_label(x.label, y.label)):
                free.remove(y)
                break
    return len(test) - len(free)


# ---- `aiayn score --brackets`


@dataclass(frozen=True)
class BracketResult:
    """What `aiayn score --brackets` prints."""

    hypotheses: str  # the file, or "stdin"
    reference: str
    lines: int  # of each of them
    cutoff: int  # words of the longest sentence in `short`
    all: BracketScore
    short: BracketScore
    signature: str  # only scores with the same one can be compared

    def __str__(self) -> str:
        rows = zip(self.all.rows(), self.short.rows(), strict=True)
        head = f"{'':<25}  {'all':>8}  {f'len<={self.cutoff}':>8}\n"
        table = "\n".join(f"{name:<25}  {_write(a):>8}  {_write(b):>8}" for (name, a), (_, b) in rows)
        return f"F1 = {self.all.f1:.2f}\n{head}{table}\n{self.signature}"


def run_score_brackets(
    references: Sequence[Path], hypotheses: str = "-", parameters: Path | None = None
) -> BracketResult:
    """Score trees against one file of reference trees, both one per line.

    The parameters are a file of EVALB's; None = as its COLLINS.prm, with ROOT and S1 ignored like TOP.
    """
    if len(references) != 1:
        raise UsageError(f"--brackets with {logs.counted(len(references), 'reference')}", "name one reference")
    if [str(references[0]), hypotheses, str(parameters)].count("-") > 1:
        raise UsageError("stdin is named more than once", "give the trees with --hyp FILE")
    rules = read_rules(read_file(parameters), display_name(parameters)) if parameters else BracketRules()
    gold, test = read_file(references[0]), read_file(hypotheses)
    check_lines({display_name(references[0]): gold, display_name(hypotheses): test})
    scores = score_brackets(gold, test, rules)
    _warn(scores)
    return BracketResult(
        hypotheses=display_name(hypotheses),
        reference=display_name(references[0]),
        lines=len(test),
        cutoff=rules.cutoff,
        all=summarise(scores),
        short=summarise([score for score in scores if score.length <= rules.cutoff]),
        signature=f"EVALB|labels:{'yes' if rules.labelled else 'no'}|parameters:{parameters or 'COLLINS+ROOT+S1'}",
    )


def _warn(scores: Sequence[SentenceScore]) -> None:
    for status, what in (
        (_ERROR, "its words differ from the reference's, or brackets do not match"),
        (_SKIP, "it has no words"),
    ):
        lines = [number for number, score in enumerate(scores, start=1) if score.status == status]
        for number in lines[:_ERRORS_NAMED]:
            logs.warning(f"line {number:,} is not scored: {what}")
        if len(lines) > _ERRORS_NAMED:
            logs.warning(f"{len(lines):,} lines in all are not scored for this reason")


def _write(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
