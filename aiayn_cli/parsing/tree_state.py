"""What is known of an output that has to be a tree, after some of its tokens; tree_grammar.py says what follows."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from aiayn_cli.parsing.tree_text import TagKind
from aiayn_cli.text.piece_strings import Spelling


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the sentence.

    Attributes:
        spelling: of it, as it is to be written; None = any text.
        tag: what its tag may be.
    """

    spelling: Spelling | None
    tag: TagKind


@dataclass(slots=True)
class Place:
    """Between two symbols.

    Attributes:
        words: of the sentence.
        brackets: categories that are open, the innermost last.
        is_empty: whether nothing is in the innermost.
        n_words: that are written.
        has_tag: whether the tag of the next one is written, so that only the word may come.
        need: tokens that it takes at least from here to the end, EOS counted.
    """

    words: Sequence[Word]
    brackets: tuple[bytes, ...]
    is_empty: bool
    n_words: int
    has_tag: bool
    need: int


class Kind(Enum):
    """What was written last."""

    START = auto()  # nothing is written
    BEGUN = auto()  # of the next symbol there is the blank alone
    LABEL = auto()  # an opening bracket, and what is written of its label
    TEXT = auto()  # a tag, or a word that may be any
    SPELLED = auto()  # a closing bracket, or a word that is known


@dataclass(slots=True)
class State:
    """What the automaton knows after some tokens.

    Attributes:
        kind: of the symbol that was written last.
        place: where it began.
        after: where its end would lead; None where it cannot end here.
        need: tokens that it takes at least to the end, EOS counted.
        label: what is written of it, of a LABEL.
        spelling, written: of a SPELLED one, and its bytes that are written.
    """

    kind: Kind
    place: Place
    after: Place | None
    need: int
    label: bytes = b""
    spelling: Spelling | None = None
    written: int = 0
