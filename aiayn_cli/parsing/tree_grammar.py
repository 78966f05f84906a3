"""Which sub-words can come next in an output that must be a tree: an automaton over what sub-words write.

A tree is a sequence of symbols separated by blanks (parsing/tree_text.py): an opening bracket with a label, a closing
one with a category, a tag, a word. A sub-word begins a symbol or continues one, so a symbol is known to be complete
only when the next one begins. What can come follows from the open brackets, the remaining words and what is written
of the current symbol. In addition, what is still needed must fit into the longest output: the closing brackets, the
remaining tags and words, and EOS, each in as few sub-words as the vocabulary allows; an unfinished label counts as it
stands.

Where words are not written, only their number ties the tags to them. A treebank that tags a comma as `,` then helps:
signs take such tags, and other words do not (TagKind).

Text is UTF-8 bytes here, since a vocabulary with byte fallback writes a character in several sub-words.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aiayn_cli.parsing.piece_strings import BRACKETS, NEVER, Pieces, Spelling, split_piece
from aiayn_cli.parsing.tree_text import NO_TAG, TagKind, category, kind_of_tag, tags_for
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.special_tokens import EOS_ID
from aiayn_cli.text.vocab import readable

FREE = 0  # the row of the table that forbids nothing
_CACHED = 1 << 12  # texts whose spellings are kept
_CACHED_LABELS = 1 << 8  # labels kept with a cost for each sub-word


class Kind(Enum):
    """What an output ends with."""

    START = auto()  # nothing yet
    BEGUN = auto()  # only the blank before the next symbol
    LABEL = auto()  # an opening bracket, and what is written of its label
    TEXT = auto()  # a tag, or a word that may be any
    SPELLED = auto()  # a closing bracket, or a known word


class Word(NamedTuple):
    spelling: Spelling | None  # None = any text
    tag: TagKind  # that it can have


@dataclass(slots=True)
class Place:
    """What the automaton knows between two symbols."""

    words: Sequence[Word]  # of the sentence
    brackets: tuple[bytes, ...]  # open categories, the innermost last
    is_empty: bool  # whether the innermost holds nothing yet
    n_words: int  # words written
    has_tag: bool  # whether the next word's tag is written, so that the word must follow
    need: int  # least number of tokens from here to the end, EOS included


@dataclass(slots=True)
class State:
    """What the automaton knows after some tokens."""

    kind: Kind
    place: Place  # where the last symbol began
    after: Place | None  # the place after that symbol; None where it cannot end here
    need: int  # least number of tokens from here to the end, EOS included
    label: bytes = b""  # of a LABEL: what is written of it
    spelling: Spelling | None = None  # of a SPELLED
    written: int = 0  # of a SPELLED: bytes written of it


_Costs = npt.NDArray[np.int64]
# What can begin, whether a bracket can open, which tag can come, the room for a bracket, what can continue.
_RowKey = tuple[Kind, bool, TagKind | None, int, Kind | TagKind | None]


class TreeGrammar:
    """The automaton for one vocabulary and form of trees. Threads may share it.

    `sub_words` are what each sub-word of the target side writes, as in Vocab.written(), without a blank inside;
    `sign_tags` says that a sub-word for `,` can only stem from a tag.
    """

    def __init__(self, sub_words: Sequence[bytes], text: TextConfig, *, sign_tags: bool = False) -> None:
        self.size = len(sub_words)
        self._tags, self._words = text.tree_tags, text.tree_words
        self._pieces = [split_piece(sub_word) for sub_word in sub_words]
        self._starting = Pieces((i, p[1]) for i, p in enumerate(self._pieces) if p and p[0])
        self._inner = Pieces((i, p[1]) for i, p in enumerate(self._pieces) if p and not p[0])
        self._spelling = lru_cache(_CACHED)(lambda text: Spelling(text, self._starting, self._inner))
        self._closing = lru_cache(_CACHED)(lambda label: self._spelling(b")" + _category(label)))
        # By label: the cost of each sub-word that can continue it, which is itself and the closing bracket.
        self._longer_labels = lru_cache(_CACHED_LABELS)(
            lambda label: self._vector((token, 1 + self._closing(label + text).start) for token, text in self._labels)
        )
        self._blanks = self._starting.tokens.get(b"", [])
        starting_texts, inner_texts = _by_tag(self._starting.texts()), _by_tag(self._inner.texts())
        self._inner_tags = {kind for kind, tokens in inner_texts.items() if tokens}
        in_two = 2 if self._blanks and TagKind.ANY in self._inner_tags else NEVER
        self._text_cost = 1 if starting_texts[TagKind.ANY] else in_two
        self._sign_tags = (
            sign_tags
            and self._tags
            and not self._words
            and {b",", b"."} <= self._starting.tokens.keys()
            and bool(starting_texts[TagKind.WORD])
        )
        # A label continues only with what its closing bracket can continue with, so that each bracket can be closed.
        costs = {token: self._spelling(_category(b"?" + text)[1:]).left[0] for token, text in self._inner.texts()}
        self._labels = [(token, text) for token, text in self._inner.texts() if costs[token] < NEVER]
        self._most_longer = max((costs[token] for token, _ in self._labels), default=0)
        first = list(self._closable(self._inner.texts()))
        self._label_cost = min((cost for _, cost in first), default=NEVER)  # of a label and its closing bracket
        self._first_labels = self._vector(first)
        self._openings = {
            Kind.START: self._vector(self._closable(self._starting.opening())),
            Kind.BEGUN: self._vector(self._closable(self._inner.opening())),
        }
        self._least_opening = int(self._openings[Kind.BEGUN].min())  # after a blank
        self._texts = {
            (part, kind): self._vector((token, 0) for token in tokens)
            for part, texts in ((Kind.START, starting_texts), (Kind.BEGUN, inner_texts))
            for kind, tokens in texts.items()
        }
        self._any_label = self._vector((token, 0) for token, _ in self._labels)
        vectors = (self._first_labels, *self._openings.values())
        self._most_cost = max(int(vector[vector < NEVER].max(initial=1)) for vector in vectors)
        self._ample_room = self._most_cost + self._most_longer + 1  # in addition to the next closing bracket
        self._usual_choices: dict[tuple[Kind, bytes, TagKind | None, TagKind], tuple[int, list[int]]] = {}
        self._lock = threading.Lock()
        self._numbers: dict[_RowKey, int] = {}
        self.table: list[Tensor] = [torch.zeros(self.size, dtype=torch.bool)]

    def start(self, words: Sequence[str]) -> State:
        """The state before the first token of a tree over `words`, which are escaped as in a tree."""
        known = [Word(self._word(word), tags_for(word) if self._sign_tags else TagKind.ANY) for word in words]
        need = self._text_cost * len(words) * self._tags + 1
        if self._words or not self._tags:
            need += sum(each.spelling.start if each.spelling else self._text_cost for each in known)
        place = Place(known, (), False, 0, False, need)
        return State(Kind.START, place, place, place.need)

    def follow(self, state: State, token: int) -> State | None:
        """The state after one more token; None if the rules forbid it."""
        piece = self._pieces[token] if token < len(self._pieces) else None
        if piece is None:
            return None
        begins, text = piece
        if begins:
            if state.after is None or text:
                return self._begin(state.after, text) if state.after else None
            return State(Kind.BEGUN, state.after, None, state.after.need + self._begun_cost(state.after))
        if state.kind is Kind.BEGUN:
            return self._begin(state.place, text)
        if text[0] in BRACKETS or state.kind is Kind.START:
            return None
        if state.kind is Kind.LABEL:
            return self._in_label(state.place, state.label + text)
        if state.kind is Kind.TEXT:
            return state if self._longer(state) in (TagKind.ANY, kind_of_tag(text)) else None
        assert state.spelling is not None
        return self._spelled(state.place, state.spelling, state.written, text)

    def choices(self, state: State, left: int) -> tuple[int, list[int]]:
        """What can come next in an output that has room for `left` more tokens, EOS included.

        It is the row of `table` with the forbidden tokens, and exceptions to it; FREE if no tree fits into `left`.
        """
        if state.need > left:
            return FREE, []
        place = state.after
        if self._words or not self._tags or place is None:
            return self._choices(state, left)
        # With ample room and no words to write, few states differ.
        closing = place.brackets[-1] if place.brackets and not place.is_empty else b""
        if left - state.need <= self._ample_room + len(closing):
            return self._choices(state, left)
        key = state.kind, closing, self._tag(place), self._longer(state)
        found = self._usual_choices.get(key)
        if found is None:
            if len(self._usual_choices) >= _CACHED:
                self._usual_choices.clear()
            found = self._usual_choices[key] = self._choices(state, left)
        return found

    def _choices(self, state: State, left: int) -> tuple[int, list[int]]:
        tokens: list[int] = []
        begun = state.kind is Kind.BEGUN
        place = state.place if begun else state.after
        part, opens, room = Kind.BEGUN if begun else Kind.START, False, 0
        text: TagKind | None = None
        if place is not None:
            opens = not self._is_due(place)
            text = self._tag(place) if left - place.need >= 1 - self._text_cost else None
            room = left - place.need if opens else 0
            tokens = self._tokens_to_begin(place, left, begun)
        goes_on: Kind | TagKind | None = None
        match state.kind:
            case Kind.SPELLED if state.spelling is not None:
                most = left - state.need + state.spelling.left[state.written]
                tokens += [token for cost, token in state.spelling.steps[state.written] if cost <= most]
            case Kind.TEXT if left > state.need:
                goes_on = self._longer(state)
            case Kind.LABEL if not state.label:
                part, room = Kind.LABEL, left - state.place.need
            case Kind.LABEL if left - state.need > self._most_longer:  # no piece needs more
                goes_on = Kind.LABEL
            case Kind.LABEL:
                tokens += np.flatnonzero(self._longer_labels(state.label) <= left - state.place.need).tolist()
        return self._row((part, opens, text, min(room, self._most_cost), goes_on)), tokens

    def _tokens_to_begin(self, place: Place, left: int, begun: bool) -> list[int]:
        """Tokens that can begin a symbol in addition to those in the table; begun = its blank is written."""
        tokens: list[int] = []
        for spelling in self._expected(place):
            most = left - place.need + spelling.start
            tokens += [token for cost, token in (spelling.steps[0] if begun else spelling.first) if cost <= most]
        if not begun:
            if self._blanks and left > place.need + self._begun_cost(place):
                tokens += self._blanks
            if place.need == 1:
                tokens.append(EOS_ID)
        return tokens

    def _begin(self, place: Place, text: bytes) -> State | None:
        if text[:1] == b"(":
            return self._in_label(place, text[1:]) if not self._is_due(place) else None
        if text[:1] != b")" and (tag := self._tag(place)) is not None:
            if tag is not TagKind.ANY and kind_of_tag(text) is not tag:
                return None
            word_follows = self._tags and self._words and not place.has_tag
            n_words, need = place.n_words + (not word_follows), place.need - self._text_cost
            after = Place(place.words, place.brackets, False, n_words, word_follows, need)
            return State(Kind.TEXT, place, after, need)
        for spelling in self._expected(place):
            if found := self._spelled(place, spelling, 0, text):
                return found
        return None

    def _in_label(self, place: Place, label: bytes) -> State:
        if not label:
            return State(Kind.LABEL, place, None, place.need + self._label_cost)
        closing = self._closing(label)
        need = place.need + closing.start
        after = Place(place.words, (*place.brackets, closing.text[1:]), True, place.n_words, False, need)
        return State(Kind.LABEL, place, after, need, label)

    def _spelled(self, place: Place, spelling: Spelling, written: int, text: bytes) -> State | None:
        if not spelling.text.startswith(text, written):
            return None
        written += len(text)
        after = None
        need = place.need - spelling.start + spelling.left[written]
        if written == len(spelling.text):
            is_bracket = spelling.text[:1] == b")"
            brackets = place.brackets[:-1] if is_bracket else place.brackets
            n_words = place.n_words + (not is_bracket)
            after = Place(place.words, brackets, False, n_words, False, need)
        return State(Kind.SPELLED, place, after, need, spelling=spelling, written=written)

    def _is_due(self, place: Place) -> bool:
        """Whether no bracket can open: a word must follow its tag, or no word is left to put into it."""
        return place.has_tag or place.n_words == len(place.words)

    def _tag(self, place: Place) -> TagKind | None:
        """Which tag can come, or ANY for a word that can be any; None if neither can."""
        if place.n_words == len(place.words):
            return None
        word = place.words[place.n_words]
        return word.tag if (self._tags and not place.has_tag) or word.spelling is None else None

    def _longer(self, state: State) -> TagKind:
        """What can continue the current tag; only signs continue that of a sign."""
        is_sign = state.kind is Kind.TEXT and self._tag(state.place) is TagKind.SIGN
        return TagKind.SIGN if is_sign else TagKind.ANY

    def _expected(self, place: Place) -> list[Spelling]:
        """The known symbols that can come: the closing bracket, the next word."""
        expected = []
        if place.brackets and not place.is_empty and not place.has_tag:
            expected.append(self._spelling(b")" + place.brackets[-1]))
        if place.n_words < len(place.words) and (place.has_tag or not self._tags):
            spelling = place.words[place.n_words].spelling
            expected += [spelling] if spelling else []
        return expected

    def _begun_cost(self, place: Place) -> int:
        """The least number of tokens that writing the next symbol's blank by itself adds to what is needed."""
        costs = [each.left[0] - each.start for each in self._expected(place)]
        if self._tag(place) in self._inner_tags:
            costs.append(1 - self._text_cost)
        if not self._is_due(place):
            costs.append(self._least_opening)
        return min(costs, default=NEVER)

    def _word(self, word: str) -> Spelling | None:
        """How a word is written; None = any text: words are not written, or the vocabulary lacks a character."""
        if self._tags and not self._words:
            return None
        spelling = self._spelling((readable(word) if self._words else NO_TAG).encode())
        return spelling if spelling.start < NEVER else None

    def _closable(self, labels: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, int]]:
        """The cost of each sub-word that begins a label that can be closed: itself and the closing bracket."""
        for token, label in labels:
            if (cost := self._closing(label).start if label else self._label_cost) < NEVER:
                yield token, 1 + cost

    def _vector(self, costs: Iterable[tuple[int, int]]) -> _Costs:
        vector = np.full(self.size, NEVER, np.int64)
        for token, cost in costs:
            vector[token] = cost
        return vector

    def _row(self, key: _RowKey) -> int:
        """The number of the table's row for a key, which is made when it is first needed."""
        with self._lock:
            if key in self._numbers:
                return self._numbers[key]
            part, opens, text, room, goes_on = key
            allowed = np.zeros(self.size, np.bool_)
            if part is Kind.LABEL:
                allowed |= self._first_labels <= room
            if opens:
                allowed |= self._openings[part] <= room
            if text is not None:
                allowed |= self._texts[part, text] < NEVER
            if goes_on is not None:
                more = self._texts[Kind.BEGUN, goes_on] if isinstance(goes_on, TagKind) else self._any_label
                allowed |= more < NEVER
            self.table.append(torch.from_numpy(~allowed))
            self._numbers[key] = len(self.table) - 1
            return self._numbers[key]


def _category(label: bytes) -> bytes:
    return category(label.decode("latin-1")).encode("latin-1")  # it cuts at ASCII characters only


def _by_tag(texts: Sequence[tuple[int, bytes]]) -> dict[TagKind, list[int]]:
    found = {kind: [token for token, text in texts if kind_of_tag(text) is kind] for kind in TagKind}
    return {**found, TagKind.ANY: [token for token, _ in texts]}
