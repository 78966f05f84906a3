"""Terms that a translation must use: found in the source, turned into constraints, looked for in the output."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.data.codec import Codec
from aiayn_cli.data.text import is_blank, read_file
from aiayn_cli.data.vocab import BLANK_MARK
from aiayn_cli.decoding.phrases import Constraint
from aiayn_cli.decoding.split import WITHOUT_BLANKS, is_dense
from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import UNK_ID

_ANCHORS = ("。", ",", ".", "a")  # what a word that stands behind no blank is split after
_KEY = 2  # characters of a term by which it is looked up
_WARNINGS = 5


@dataclass(frozen=True)
class Term:
    """One entry.

    Attributes:
        source: as it stands in the source language; one without capital letters is found with them too.
        targets: how it may be translated.
        constraint: the same in sub-words; empty where the vocabulary cannot write any of them.
    """

    source: str
    targets: tuple[str, ...]
    constraint: Constraint


class Glossary:
    """Terms and their translations.

    Args:
        terms: the entries.
        word_continuations: ids of sub-words that go on with the word before them.
        word_starts: ids of sub-words that begin a word.
    """

    def __init__(
        self,
        terms: Iterable[Term],
        word_continuations: frozenset[int] = frozenset(),
        word_starts: frozenset[int] = frozenset(),
    ) -> None:
        self.word_continuations, self.word_starts = word_continuations, word_starts
        self._by_key: dict[str, list[Term]] = defaultdict(list)
        for term in terms:
            self._by_key[_folded(term.source)[:_KEY]].append(term)
        for found in self._by_key.values():
            found.sort(key=lambda term: -len(term.source))  # the longest that fits counts

    def find(self, text: str) -> list[Term]:
        """The terms in a source text, in order; of two that overlap the one that begins first, or is longer."""
        folded = _folded(text)
        found: list[Term] = []
        place = 0
        while place < len(text):
            term = self._at(text, folded, place)
            if term is not None:
                found.append(term)
            place += len(term.source) if term is not None else 1
        return found

    def constraints(self, text: str) -> list[Constraint]:
        """What the translation of a text must hold."""
        return [term.constraint for term in self.find(text) if term.constraint]

    def missing(self, source: str, translation: str) -> list[Term]:
        """The terms of a source whose translation is not there, or not often enough."""
        found = self.find(source)
        if not found:
            return []
        missing = []
        used: Counter[tuple[str, ...]] = Counter()
        for term in found:
            used[term.targets] += 1
            if sum(_count(translation, target) for target in term.targets) < used[term.targets]:
                missing.append(term)
        return missing

    def _at(self, text: str, folded: str, place: int) -> Term | None:
        keys = (folded[place : place + length] for length in range(_KEY, 0, -1))
        for term in (term for key in keys for term in self._by_key.get(key, ())):
            end = place + len(term.source)
            exact = any(map(str.isupper, term.source))
            if (text if exact else folded)[place:end] == (term.source if exact else _folded(term.source)) and (
                not _inside_word(text, place) and not _inside_word(text, end)
            ):
                return term
        return None


def load_glossary(path: Path, codec: Codec, tgt_lang: str) -> Glossary:
    """Read a glossary: in each line a source term, a TAB, and its translation, or several with "|" between them.

    Args:
        path: the file, which may be compressed.
        codec: turns translations into sub-words.
        tgt_lang: target language, which says whether words have blanks between them.
    Raises:
        DataError: a line that is not so; the file cannot be read.
    """
    has_blanks = not tgt_lang.lower().startswith(WITHOUT_BLANKS)
    terms, unwritable = [], 0
    for number, line in enumerate(read_file(path), start=1):
        if is_blank(line):
            continue
        source, *rest = (field.strip() for field in line.split("\t"))
        targets = tuple(filter(None, (target.strip() for target in rest[0].split("|")))) if len(rest) == 1 else ()
        if not source or not targets:
            problem = (
                f"{path}:{number} has {len(rest) + 1} fields" if len(rest) != 1 else f"{path}:{number} lacks a term"
            )
            raise DataError(problem, "write the source term, a TAB, and its translation (or several: a|b)")
        constraint = _constraint(targets, codec, has_blanks)
        terms.append(Term(source, targets, constraint))
        if not constraint:
            unwritable += 1
            if unwritable <= _WARNINGS:
                logs.warning(f"{path}:{number}: the vocabulary cannot write {' or '.join(targets)}: not enforced")
    logs.notice(f"glossary: {path}, {len(terms):,} terms")
    pieces = codec.tgt_pieces(range(codec.size))
    words = frozenset(i for i, piece in enumerate(pieces) if piece.lstrip(BLANK_MARK)[:1].isalnum())
    inside = frozenset(i for i in words if not pieces[i].startswith(BLANK_MARK)) if has_blanks else frozenset()
    return Glossary(terms, inside, words - inside)


def _constraint(targets: Sequence[str], codec: Codec, has_blanks: bool) -> Constraint:
    phrases = [tuple(ids) for ids in codec.encode_tgt(targets)]
    if not has_blanks:
        phrases += [tuple(ids) for target in targets if (ids := _without_blank(target, codec))]
    return tuple(dict.fromkeys(phrase for phrase in phrases if phrase and UNK_ID not in phrase))


def _without_blank(target: str, codec: Codec) -> list[int]:
    """The sub-words of a term inside a sentence whose words have no blanks between them."""
    for anchor in _ANCHORS:
        before, both = codec.encode_tgt([anchor, anchor + target])
        if both[: len(before)] == before and UNK_ID not in before:
            return both[len(before) :]
    return []


def _folded(text: str) -> str:
    """In lower case, as many characters as before."""
    lower = text.lower()
    return lower if len(lower) == len(text) else "".join(low if len(low := c.lower()) == 1 else c for c in text)


def _inside_word(text: str, place: int) -> bool:
    """Whether a word goes on over a place; scripts without blanks between words have no such places."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    return before.isalnum() and after.isalnum() and not (is_dense(before) or is_dense(after))


def _count(text: str, phrase: str) -> int:
    count, place = 0, text.find(phrase)
    while place >= 0:
        count += not (_inside_word(text, place) or _inside_word(text, place + len(phrase)))
        place = text.find(phrase, place + len(phrase))
    return count
