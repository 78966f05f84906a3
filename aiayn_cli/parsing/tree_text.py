"""Constituency trees, as treebanks write them and as sequences that a model writes, and back.

In a treebank: `(TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))`. Here a tree is a flat tuple of events in the order of
the text, so that no tree is too deep to read. The outermost bracket of a treebank has no meaning of its own and many
names (`ROOT`, `S1`, none at all); here it is always `TOP`.

As a sequence (Vinyals et al. 2015): `(S (NP PRP )NP (VP VBZ )VP . )S`. A token opens a constituent, closes one, or
stands for a word. The words themselves are the source side and need not be written: the n-th word token is the n-th
word. Missing brackets or words are repaired, and each repair is reported.
"""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.vocab import UNKNOWN, readable

TOP = "TOP"
_TOPS = ("", TOP, "ROOT", "S1", "VROOT")  # the outermost bracket in treebanks and parsers
_TRACE = "-NONE-"  # the Penn Treebank's tag of a placeholder for a word that is elsewhere, or nowhere
_SHOWN = 60  # characters of a faulty tree in a message
_MOST_TOKENS = 1_000_000  # of one tree: a file that lacks a bracket near its start is not read to its end

NO_TAG = "XX"  # stands for a word if neither its tag nor the word is written
_PUNCTUATION = {  # words with an obvious tag, on which scoring depends
    ",": ",", "،": ",",
    ".": ".", "!": ".", "?": ".", "。": ".",
    ":": ":", ";": ":", "--": ":", "–": ":", "—": ":", "...": ":", "…": ":",
    "``": "``", "“": "``", "''": "''", "”": "''",
    "-LRB-": "-LRB-", "-RRB-": "-RRB-",
}  # fmt: skip
_SIGNS = frozenset({",", ".", "!", "?", "。", ":", ";", "--", "—", "...", "…", "“", "”", '"'})  # these are never words

# Brackets, and the text between brackets and blanks. Blanks are ASCII's and U+001F, as in vocab.py: a no-break space
# is part of a word.
_BRACKETED = re.compile(r"[()]|[^\s\x1f()]+", re.ASCII)
_WORD = re.compile(r"[^\s\x1f]+", re.ASCII)
_TOKEN = re.compile(r"[()][^\s\x1f()]*|[^\s\x1f()]+", re.ASCII)  # of a sequence; no blank is needed before a bracket


@dataclass(frozen=True, slots=True)
class Open:
    """A constituent begins."""

    label: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word with its part of speech."""

    tag: str
    word: str


@dataclass(frozen=True, slots=True)
class Close:
    """The innermost open constituent ends."""


Event = Open | Leaf | Close
Tree = tuple[Event, ...]  # balanced; begins and ends with TOP's bracket, unless read from a file


def read_trees(records: Iterable[str], name: str, first_line: int = 1) -> Iterator[Tree]:
    """Read the trees of a treebank's file, each on one line or over several; a DataError names file and line."""
    tokens: list[str] = []
    depth = first = 0
    for number, record in enumerate(records, start=first_line):
        for token in _BRACKETED.findall(record):
            if not tokens:
                first = number
            tokens.append(token)
            depth += (token == "(") - (token == ")")
            if depth <= 0:
                yield _parse(tokens, f"{name}:{first}")
                tokens, depth = [], 0
        if len(tokens) > _MOST_TOKENS:
            break
    if tokens:
        until = f"after {len(tokens):,} tokens" if len(tokens) > _MOST_TOKENS else "at the end of the file"
        still = f"still has {logs.counted(depth, 'open bracket')} {until}"
        raise DataError(f"{name}:{first}: the tree {_show(tokens)} {still}", "add the missing ends, or remove the tree")


def to_text(tree: Iterable[Event]) -> str:
    parts = []
    for event in tree:
        match event:
            case Open(label):
                parts.append(f" ({label}")
            case Leaf(tag, word):
                parts.append(f" ({tag} {word})")
            case Close():
                parts.append(")")
    return "".join(parts).strip()


def from_text(record: str, name: str = "tree", number: int = 1) -> Tree:
    """Read the one tree of a line; otherwise a DataError names file and line."""
    trees = list(read_trees([record], name, number))
    if len(trees) != 1:
        problem = f"{name}:{number}: a line has {logs.counted(len(trees), 'tree')}, not one: {record[:_SHOWN]}"
        raise DataError(problem, "write one tree on each line")
    return trees[0]


def reduce_tree(tree: Iterable[Event], *, functions: bool) -> Tree:
    """Reduce a treebank's tree to what a parser learns; empty if it has no word.

    Traces and constituents without words are removed, and the outermost bracket becomes TOP. Labels lose what follows
    the category, such as `-SBJ` in `NP-SBJ` or `=2`, unless `functions` is set.
    """
    kept: list[Event] = []
    for event in tree:
        match event:
            case Open(label) if not functions:
                kept.append(Open(category(label)))
            case Leaf(tag, _) if tag == _TRACE:
                pass
            case Close() if isinstance(kept[-1], Open):
                kept.pop()
            case _:
                kept.append(event)
    if not kept:
        return ()
    if isinstance(kept[0], Open) and kept[0].label in _TOPS:
        return (Open(TOP), *kept[1:])
    return (Open(TOP), *kept, Close())


def category(label: str) -> str:
    """The label without function labels and indices: NP for NP-SBJ-1, SBAR for SBAR=2; -LRB- stays."""
    return label[:1] + re.split("[-=]", label[1:], maxsplit=1)[0]


def words(tree: Iterable[Event]) -> list[str]:
    return [event.word for event in tree if isinstance(event, Leaf)]


def escape(word: str) -> str:
    """Write a word as a tree does, with -LRB- and -RRB- for `(` and `)`."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def unescape(word: str) -> str:
    return word.replace("-LRB-", "(").replace("-RRB-", ")")


def _parse(tokens: Sequence[str], place: str) -> Tree:
    """Make a tree of balanced tokens; `place` is for messages."""
    events: list[Event] = []
    i = 0
    while i < len(tokens):
        if tokens[i] == ")":
            if not events or isinstance(events[-1], Open):
                raise _no_tree(tokens, place, "has an empty bracket" if events else "ends before it begins")
            events.append(Close())
            i += 1
            continue
        if tokens[i] != "(":
            raise _no_tree(tokens, place, f"has {tokens[i]!r} where a bracket should open")
        label = tokens[i + 1] if tokens[i + 1] not in "()" else ""
        i += 2 if label else 1
        if tokens[i] in "()":
            events.append(Open(label))
            continue
        if tokens[i + 1] != ")":
            raise _no_tree(tokens, place, f"has more than a word after {label!r}")
        events.append(Leaf(label, tokens[i]))
        i += 2
    return tuple(events)


def _no_tree(tokens: Sequence[str], place: str, problem: str) -> DataError:
    hint = "a tree looks like (S (NP (PRP She)) (VP (VBZ sleeps)))"
    return DataError(f"{place}: {_show(tokens)} {problem}", hint)


def _show(tokens: Sequence[str]) -> str:
    text = " ".join(tokens[:_SHOWN]).replace("( ", "(").replace(" )", ")")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# ---- as a sequence


class TagKind(Enum):
    """Which tags a word can have in a treebank that tags a comma as `,`, as the Penn Treebank does."""

    ANY = auto()
    SIGN = auto()  # those written as a sign: , . : `` ''
    WORD = auto()  # all others: with letters, or for money or numbers ($ and #)


def tags_for(word: str) -> TagKind:
    """Which tags a word can have; known for signs, and for words with a letter or digit."""
    if word in _SIGNS:
        return TagKind.SIGN
    return TagKind.WORD if any(map(str.isalnum, word)) else TagKind.ANY


def kind_of_tag(tag: bytes) -> TagKind:
    """The kind of a tag, of which only the beginning in UTF-8 need be known."""
    first = tag[:1]
    return TagKind.WORD if first.isalnum() or first in (b"-", b"$", b"#") or first >= b"\x80" else TagKind.SIGN


class Restored(NamedTuple):
    """A tree that a model wrote."""

    tree: Tree  # begins with TOP and has exactly the words of the source
    repairs: Counter[str]  # by kind, such as "bracket left open"


class TreeText:
    """Turns bracketed trees into the sequences of a recipe, and sequences with their words into bracketed trees."""

    def __init__(self, config: TextConfig) -> None:
        self._tags, self._words = config.tree_tags, config.tree_words

    def apply(self, records: Sequence[str]) -> list[str]:
        """Linearise trees, one per line; raises DataError for a line that is not a tree."""
        return [self.linearise(from_text(record)) for record in records]

    def linearise(self, tree: Tree) -> str:
        """Write a tree that begins with TOP as a sequence, without TOP."""
        tokens: list[str] = []
        open_labels: list[str] = []
        for event in tree[1:-1]:
            match event:
                case Open(label):
                    tokens.append(f"({label}")
                    open_labels.append(label)
                case Leaf(tag, word):
                    tokens += [tag] * self._tags + [word] * self._words or [NO_TAG]
                case Close():
                    tokens.append(f"){category(open_labels.pop())}")
        return " ".join(tokens)

    def restore(self, line: str, sequence: str) -> Restored:
        """Make a tree of a model's sequence over the words of a source line."""
        builder, tokens = _Builder(words_of(line)), deque(_TOKEN.findall(sequence))
        while tokens:
            token = tokens.popleft()
            if token.startswith("("):
                builder.open(token[1:])
            elif token.startswith(")"):
                builder.close(token[1:])
            elif not self._words:
                builder.leaf(token if self._tags else "", None)
            elif not self._tags:
                builder.leaf("", token)
            elif tokens and not tokens[0].startswith(("(", ")")):
                builder.leaf(token, tokens.popleft())
            else:
                builder.leaf(token, "")
        return builder.finish()

    def restore_text(self, line: str, sequence: str) -> tuple[str, Counter[str]]:
        """As restore(), with the tree written on one line; "" for a line without words."""
        tree, repairs = self.restore(line, sequence)
        return to_text(tree) if len(tree) > 2 else "", repairs


def words_of(line: str) -> list[str]:
    """The words of a source line, escaped as in a tree."""
    return [escape(word) for word in _WORD.findall(line)]


def _can_be(written: str, word: str) -> bool:
    """Whether `written` can stand for a word with characters that the model cannot read or write."""
    if UNKNOWN not in written:
        return written in (word, readable(word))
    return re.fullmatch(".+".join(map(re.escape, written.split(UNKNOWN))), word) is not None


class _Builder:
    """Builds one tree from what a model wrote, repairing it on the way."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = deque(words)  # still to be placed
        self._events: list[Event] = [Open(TOP)]
        self._open: list[str] = []  # categories of the open constituents
        self._repairs: Counter[str] = Counter()

    def open(self, label: str) -> None:
        self._events.append(Open(label))
        self._open.append(category(label))

    def close(self, label: str) -> None:
        """End the innermost constituent of a category, and those left open inside it."""
        label = category(label)
        if label not in self._open:
            self._repairs["closing bracket without an opening one"] += 1
            return
        while self._open[-1] != label:
            self._close_innermost("bracket left open")
        self._close_innermost()

    def leaf(self, tag: str, word: str | None) -> None:
        """Place the next word; its tag is "" if none is written, and it is None if words are not written."""
        if not self._words:
            self._repairs["word too many"] += 1
            return
        if word is not None and not _can_be(word, self._words[0]):
            self._repairs["wrong word"] += 1
        self._place(tag)

    def finish(self) -> Restored:
        while self._words:
            self._repairs["word left out"] += 1
            self._place("")
        while self._open:
            self._close_innermost("bracket left open")
        return Restored((*self._events, Close()), self._repairs)

    def _place(self, tag: str) -> None:
        word = self._words.popleft()
        self._events.append(Leaf(tag or _PUNCTUATION.get(word, NO_TAG), word))

    def _close_innermost(self, repair: str = "") -> None:
        if repair:
            self._repairs[repair] += 1
        self._open.pop()
        if isinstance(self._events[-1], Open):
            self._repairs["empty bracket"] += 1
            self._events.pop()
        else:
            self._events.append(Close())
