"""Trees as sequences that a model writes, and back: `(S (NP PRP )NP (VP VBZ )VP . )S` (Vinyals et al. 2015).

A token opens a constituent, closes one, or stands for a word. The words themselves are the source side and need not be
written: the n-th word token is the n-th word. Missing brackets or words are repaired, and each repair is reported.
"""

import re
from collections import Counter, deque
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from aiayn_cli.config import TextConfig
from aiayn_cli.parsing.trees import TOP, Close, Event, Leaf, Open, Tree, category, escape, from_text, to_text
from aiayn_cli.text.vocab import UNKNOWN, readable

NO_TAG = "XX"  # stands for a word if neither its tag nor the word is written
_PUNCTUATION = {  # words with an obvious tag, on which scoring depends
    ",": ",", "،": ",",
    ".": ".", "!": ".", "?": ".", "。": ".",
    ":": ":", ";": ":", "--": ":", "–": ":", "—": ":", "...": ":", "…": ":",
    "``": "``", "“": "``", "''": "''", "”": "''",
    "-LRB-": "-LRB-", "-RRB-": "-RRB-",
}  # fmt: skip

_SIGNS = frozenset({",", ".", "!", "?", "。", ":", ";", "--", "—", "...", "…", "“", "”", '"'})  # these are never words

_WORD = re.compile(r"[^\s\x1f]+", re.ASCII)  # of a tree, see trees.py
_TOKEN = re.compile(r"[()][^\s\x1f()]*|[^\s\x1f()]+", re.ASCII)  # also without the blank before a bracket


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
        builder = _Builder(words_of(line))
        tokens = deque(_TOKEN.findall(sequence))
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
