"""Constituency trees as treebanks write them: `(TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))`.

A tree is a flat tuple of events in the order of the text, so that no tree is too deep to read. The outermost bracket of
a treebank has no meaning of its own and many names (`ROOT`, `S1`, none at all); here it is always `TOP`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aiayn_cli.errors import DataError

TOP = "TOP"
_TOPS = ("", TOP, "ROOT", "S1", "VROOT")  # the outermost bracket in treebanks and parsers
_TRACE = "-NONE-"  # the Penn Treebank's tag of a placeholder for a word that is elsewhere, or nowhere
_SHOWN = 60  # characters of a faulty tree in a message
_MOST_TOKENS = 1_000_000  # of one tree: a file that lacks a bracket near its start is not read to its end

# Brackets, and the text between brackets and blanks. Blanks are ASCII's and U+001F, as in vocab.py: a no-break space
# is part of a word.
_TOKEN = re.compile(r"[()]|[^\s\x1f()]+", re.ASCII)


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
        for token in _TOKEN.findall(record):
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
        brackets = "1 bracket" if depth == 1 else f"{depth:,} brackets"
        until = f"its {len(tokens):,} tokens" if len(tokens) > _MOST_TOKENS else "the file"
        problem = f"{name}:{first}: the tree {_show(tokens)} leaves {brackets} open at the end of {until}"
        raise DataError(problem, "close them where they are missing, or remove the tree")


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
    """Read the one tree of a line; raises DataError, with the file's name and the line's number, unless it has one."""
    trees = list(read_trees([record], name, number))
    if len(trees) != 1:
        problem = f"{name}:{number}: a line holds {len(trees)} trees, but must hold one: {record[:_SHOWN]}"
        raise DataError(problem, "give one on each line")
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
