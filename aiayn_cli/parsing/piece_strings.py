"""How the sub-words of a vocabulary spell the symbols of a tree, in UTF-8; see tree_grammar.py."""

from collections import defaultdict
from collections.abc import Iterable

NEVER = 1 << 30  # the cost in tokens of what the vocabulary cannot write
BRACKETS = frozenset(b"()")
_SEPARATORS = frozenset(b"\t\n\v\f\r\x1f ")  # of symbols, as tree_text.py reads them


def split_piece(text: bytes) -> tuple[bool, bytes] | None:
    """Whether a sub-word begins a symbol, and what it writes of it; None if it can be part of none."""
    begins = text[:1] == b" "
    body = text[begins:]
    return None if not text or _SEPARATORS & set(body) or BRACKETS & set(body[1:]) else (begins, body)


class Pieces:
    """Ids of sub-words by the text they write, without a blank before it."""

    def __init__(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        self.tokens: defaultdict[bytes, list[int]] = defaultdict(list)
        for token, text in pieces:
            self.tokens[text].append(token)
        self.longest = max(map(len, self.tokens), default=0)  # bytes

    def texts(self) -> list[tuple[int, bytes]]:
        """Those that can begin or continue a tag or a word: neither brackets nor empty."""
        found = self.tokens.items()
        return [(token, text) for text, tokens in found if text and text[0] not in BRACKETS for token in tokens]

    def opening(self) -> list[tuple[int, bytes]]:
        """Those that open a bracket, with the part of its label that they hold."""
        return [(token, text[1:]) for text, tokens in self.tokens.items() if text[:1] == b"(" for token in tokens]


class Spelling:
    """The ways to write a known text, without the blank before it, by sub-words that begin or continue a symbol.

    By place in the text, `left` is the fewest tokens for the rest, and `steps` the tokens that can continue there, each
    after the fewest tokens for the rest if it does. `first` are likewise the tokens that can begin the text with the
    blank before it, and `start` is the fewest tokens for both.
    """

    def __init__(self, text: bytes, starting: Pieces, inner: Pieces) -> None:
        self.text = text
        self.left = [*[NEVER] * len(text), 0]
        self.steps: list[list[tuple[int, int]]] = [[] for _ in range(len(text) + 1)]
        for place in reversed(range(len(text))):
            self.steps[place] = list(self._steps(place, inner))
            self.left[place] = min((cost for cost, _ in self.steps[place]), default=NEVER)
        self.first = list(self._steps(0, starting))
        bare = 1 + self.left[0] if b"" in starting.tokens else NEVER  # the blank, and then the text
        self.start = min([bare, *(cost for cost, _ in self.first)])

    def _steps(self, place: int, index: Pieces) -> Iterable[tuple[int, int]]:
        for end in range(place + 1, min(place + index.longest, len(self.text)) + 1):
            if self.left[end] < NEVER:
                for token in index.tokens.get(self.text[place:end], ()):
                    yield 1 + self.left[end], token
