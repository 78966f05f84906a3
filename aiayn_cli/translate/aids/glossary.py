"""Terms that a translation must use: found in the source, turned into constraints, checked in the output."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.languages import joins_without_blanks
from aiayn_cli.text.lines import is_blank, read_file
from aiayn_cli.text.scripts import is_written_without_blanks
from aiayn_cli.text.vocab import BLANK_MARK
from aiayn_cli.translate.search.constrained import Constraint, WordPieces

_ANCHORS = ("。", ",", ".", "a")  # texts after which a word without a blank before it is split into sub-words
_KEY = 2  # first characters of a term, by which it is looked up
_WARNINGS = 5
_NO_WORDS = WordPieces()


@dataclass(frozen=True)
class Term:
    """One entry."""

    source: str  # without capital letters it is also found with them
    targets: tuple[str, ...]  # its translations
    constraint: Constraint  # the same in sub-words; empty if the vocabulary cannot spell any


class Glossary:
    """Terms and their translations."""

    def __init__(self, terms: Iterable[Term], words: WordPieces = _NO_WORDS) -> None:
        self.words = words
        self._by_source: dict[str, list[Term]] = defaultdict(list)  # in lower case
        for term in terms:
            self._by_source[_folded(term.source)].append(term)
        for found in self._by_source.values():
            found.sort(key=lambda term: not _is_exact(term.source))
        self._lengths = _Lengths(self._by_source)

    def find(self, text: str) -> list[Term]:
        """The terms in a source text, in order.

        Of overlapping terms the first counts, then the longest; of terms that differ in case, the one with the text's.
        """
        text = unicodedata.normalize("NFC", text)
        folded, end = _folded(text), 0
        found: list[Term] = []
        for place in range(len(text)):
            if place >= end and (term := self._at(text, folded, place)) is not None:
                found.append(term)
                end = place + len(term.source)
        return found

    def constraints(self, text: str) -> list[Constraint]:
        return [term.constraint for term in self.find(text) if term.constraint]

    def missing(self, source: str, translation: str) -> list[Term]:
        """The terms of a source that its translation lacks, or has too seldom."""
        found = self.find(source)
        counts = _counts(translation, {target for term in found for target in term.targets}) if found else Counter()
        missing, used = [], Counter[tuple[str, ...]]()
        for term in found:
            used[term.targets] += 1
            if sum(counts[target] for target in term.targets) < used[term.targets]:
                missing.append(term)
        return missing

    def _at(self, text: str, folded: str, place: int) -> Term | None:
        if _inside_word(text, place):
            return None
        for length in self._lengths.at(folded, place):
            end = place + length
            for term in self._by_source.get(folded[place:end], ()):
                if (not _is_exact(term.source) or text[place:end] == term.source) and not _inside_word(text, end):
                    return term
        return None


class _Lengths:
    """The lengths of the phrases that may begin at a place of a text; trying 100,000 terms would take too long."""

    def __init__(self, phrases: Iterable[str]) -> None:
        found: dict[str, set[int]] = defaultdict(set)
        for phrase in phrases:
            found[phrase[:_KEY]].add(len(phrase))
        self._by_key = {key: sorted(lengths, reverse=True) for key, lengths in found.items()}

    def at(self, text: str, place: int) -> Iterator[int]:
        """The lengths of phrases whose first characters stand there, longest first."""
        for size in range(_KEY, 0, -1):
            yield from self._by_key.get(text[place : place + size], ())


def load_glossary(path: Path, codec: Codec, tgt_lang: str) -> Glossary:
    """Read a glossary: each line has a source term, a TAB, and its translation, or several separated by "|".

    All translations of a term that occurs several times count. DataError names a line of another form.
    """
    entries: dict[str, tuple[int, list[str]]] = {}  # the first line of each source term, and its translations
    repeated = 0
    for number, line in enumerate(read_file(path), start=1):
        if is_blank(line):
            continue
        source, targets = _entry(line, f"{path}:{number}")
        first, known = entries.setdefault(source, (number, []))
        if first != number and (new := [target for target in targets if target not in known]):
            repeated += 1
            if repeated <= _WARNINGS:
                logs.warning(f"{path}:{number}: {source} is also in line {first:,}; allowed: {', '.join(known + new)}")
        known += [target for target in targets if target not in known]
    has_blanks = not joins_without_blanks(tgt_lang)
    constraints = _constraints([targets for _, targets in entries.values()], codec, has_blanks)
    terms, unwritable = [], 0
    for (source, (number, targets)), constraint in zip(entries.items(), constraints, strict=True):
        terms.append(Term(source, tuple(targets), constraint))
        if not constraint:
            unwritable += 1
            if unwritable <= _WARNINGS:
                logs.warning(f"{path}:{number}: the vocabulary cannot spell {' or '.join(targets)}: not enforced")
    remarks = f", {logs.counted(repeated, 'line')} with another translation of a term" if repeated else ""
    remarks += f", {unwritable:,} not enforced" if unwritable else ""
    logs.notice(f"glossary: {path}, {logs.counted(len(terms), 'term')}{remarks}")
    pieces = codec.tgt_pieces(range(codec.size))
    words = frozenset(i for i, piece in enumerate(pieces) if piece.lstrip(BLANK_MARK)[:1].isalnum())
    inside = frozenset(i for i in words if not pieces[i].startswith(BLANK_MARK)) if has_blanks else frozenset()
    return Glossary(terms, WordPieces(continuations=inside, starts=words - inside))


def _entry(line: str, place: str) -> tuple[str, list[str]]:
    fields = [unicodedata.normalize("NFC", " ".join(field.split())) for field in line.split("\t")]
    while len(fields) > 2 and not fields[-1]:  # empty columns of a table
        fields.pop()
    hint = "write the source term, a TAB, and its translation (or several: a|b)"
    if len(fields) != 2:
        raise DataError(f"{place} has {logs.counted(len(fields), 'field')}", hint)
    source, targets = fields[0], list(filter(None, map(str.strip, fields[1].split("|"))))
    if not source or not targets:
        raise DataError(f"{place} has an empty field", hint)
    return source, targets


def _constraints(targets: Sequence[Sequence[str]], codec: Codec, has_blanks: bool) -> list[Constraint]:
    encoded = iter(codec.encode_tgt([target for each in targets for target in each]))
    found = []
    for each in targets:
        phrases = [tuple(next(encoded)) for _ in each]
        if not has_blanks:
            phrases += [tuple(_without_blank(target, codec)) for target in each]
        found.append(tuple(dict.fromkeys(phrase for phrase in phrases if phrase and UNK_ID not in phrase)))
    return found


def _without_blank(target: str, codec: Codec) -> list[int]:
    """The sub-words of a term within a sentence that has no blanks between words."""
    for anchor in _ANCHORS:
        before, both = codec.encode_tgt([anchor, anchor + target])
        if both[: len(before)] == before and UNK_ID not in before:
            return both[len(before) :]
    return []


def _is_exact(source: str) -> bool:
    """Whether a term is found only in its own case: one with a capital letter."""
    return any(map(str.isupper, source))


def _folded(text: str) -> str:
    """The text in lower case, with as many characters as before."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(low if len(low := c.lower()) == 1 else c for c in text)


def _inside_word(text: str, place: int) -> bool:
    """Whether a place lies within a word; never in scripts without blanks between words."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    return before.isalnum() and after.isalnum() and not any(map(is_written_without_blanks, (before, after)))


def _counts(text: str, phrases: Collection[str]) -> Counter[str]:
    """How often each phrase occurs in a text outside longer words, in one pass over the text."""
    lengths = _Lengths(phrases)
    counts: Counter[str] = Counter()
    ends: dict[str, int] = {}  # of each phrase's last occurrence: none overlaps itself
    for place in range(len(text)):
        for length in lengths.at(text, place):
            phrase, end = text[place : place + length], place + length
            if phrase in phrases and ends.get(phrase, 0) <= place:
                ends[phrase] = end
                counts[phrase] += not (_inside_word(text, place) or _inside_word(text, end))
    return counts
