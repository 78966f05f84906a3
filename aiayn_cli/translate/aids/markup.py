"""Tags, placeholders and addresses in text that is translated: taken out, and put back where their words went.

`<b>word</b>`, `<br/>`, `{name}`, `{{name}}`, `${name}`, `%s`, `%(name)d`, `%1$s`, and web and e-mail addresses.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from aiayn_cli.translate.aids.alignment import Links

# Each takes time in proportion to the text: nothing is looked at again from every one of its characters on.
ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]}'”’»]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(/?)>")
_PLACEHOLDER = re.compile(r"\$?\{\{?[^{}\s]*\}\}?|%(?:\(\w+\)|\d+\$)?[-+0#]*(?:[1-9]\d*)?(?:\.\d+)?[sdifgxXcu@](?!\w)")
_ANY = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in (_TAG, _PLACEHOLDER, ADDRESS)))
_WORD = re.compile(r"[^ \t\x1f]+")  # as SentencePiece splits text
_PUNCTUATION = re.compile(r"[^\w]*")
_DEEPEST = 50  # pairs of tags inside each other; any further ones are taken for tags that stand alone


@dataclass(frozen=True)
class Item:
    """A tag or placeholder, and where it stood.

    Attributes:
        text: as it is written.
        offset: where it was taken out of the plain text.
        end: for a pair of tags, where the closing one was; else the offset.
        closing: the closing tag of a pair; "" = none.
        blanks: whether a blank stood before and behind it, for what is no pair.
        children: what stood inside a pair.
    """

    text: str
    offset: int
    end: int
    closing: str = ""
    blanks: tuple[bool, bool] = (False, False)
    children: tuple["Item", ...] = ()


@dataclass
class _Open:
    name: str
    item: Item
    children: list[Item] = field(default_factory=list)


def find_markup(text: str) -> Counter[str]:
    """All tags, placeholders and addresses of a text, and how often each stands in it."""
    return Counter(match.group() for match in _ANY.finditer(text))


def find_placeholders(text: str) -> Counter[str]:
    """The same without tags."""
    return Counter(match.group() for match in _ANY.finditer(text) if not _TAG.fullmatch(match.group()))


def take_out(text: str, *, placeholders: bool) -> tuple[str, tuple[Item, ...]]:
    """Take tags, and if asked placeholders and addresses too, out of a text.

    Returns:
        The plain text, without the blanks that would be left over; what was taken out, in order.
    """
    plain = ""
    place = 0
    stack = [_Open("", Item("", 0, 0))]
    for match in _ANY.finditer(text):
        tag = _TAG.fullmatch(match.group())
        if tag is None and not placeholders:
            continue
        plain += text[place : match.start()]
        place = match.end()
        before, after = plain[-1:] in ("", " "), text[place : place + 1] in ("", " ")
        if tag is not None and tag[1] and any(each.name == tag[2] for each in stack[1:]):
            while stack[-1].name != tag[2]:  # never closed themselves
                _give_up(stack)
            opened = stack.pop()
            whole = Item(
                opened.item.text, opened.item.offset, len(plain), match.group(), children=tuple(opened.children)
            )
            stack[-1].children.append(whole)
            continue
        if tag is None and plain.endswith(" ") and not text[place : place + 1].isalnum():  # it stood for a word
            plain = plain[:-1]
        item = Item(match.group(), len(plain), len(plain), blanks=(before, after))
        if tag is not None and not tag[1] and not tag[3] and len(stack) <= _DEEPEST:
            stack.append(_Open(tag[2], item))
        else:
            stack[-1].children.append(item)
    while len(stack) > 1:
        _give_up(stack)
    return plain + text[place:], tuple(stack[0].children)


def put_back(plain: str, items: Sequence[Item], output: str, links: Links) -> str:
    """Put what was taken out of a source into its translation, each exactly once and pairs well nested.

    A pair encloses the words that are linked with those it enclosed; anything else stands before the word that is
    linked with the one behind it, or behind the one that is linked with the one before it where it stood close to that.

    Args:
        plain: the source without them.
        items: what was taken out.
        output: the translation.
        links: (source word, target word), where words are what blanks separate.
    """
    return _Placement(plain, output, links).render(items, 0, len(output))


class _Placement:
    """Finds the places; each takes the logarithm of the number of words, since a line can have 100,000 of both."""

    def __init__(self, plain: str, output: str, links: Links) -> None:
        self._plain, self._output = plain, output
        self._src, self._tgt = ([match.span() for match in _WORD.finditer(text)] for text in (plain, output))
        self._linked: dict[int, tuple[int, int]] = {}  # the first and last word that each is linked with
        for src, tgt in links:
            if src < len(self._src) and tgt < len(self._tgt):
                first, last = self._linked.get(src, (tgt, tgt))
                self._linked[src] = min(first, tgt), max(last, tgt)
        self._starts, self._ends = [start for start, _ in self._src], [end for _, end in self._src]
        self._linked_until = list(accumulate(range(len(self._src)), self._last_linked, initial=-1))[1:]

    def render(self, items: Sequence[Item], start: int, end: int) -> str:
        """The output from start to end with some items in it, where two would cross, the second begins later."""
        text, place = "", start
        for (first, last), item in sorted(((self._span(item), item) for item in items), key=lambda each: each[0][0]):
            first = min(max(first, place), end)
            last = min(max(last, first), end)
            text += self._output[place:first]
            if item.closing:
                text += f"{item.text}{self.render(item.children, first, last)}{item.closing}"
                place = last
            else:
                gap_before = item.blanks[0] and text[-1:] not in ("", " ")
                gap_behind = item.blanks[1] and first < len(self._output) and self._output[first] != " "
                text += f"{' ' if gap_before else ''}{item.text}{' ' if gap_behind else ''}"
                place = first
        return text + self._output[place:end]

    def _span(self, item: Item) -> tuple[int, int]:
        """Where an item begins and ends in the output."""
        if not item.closing:
            place = self._place(item.offset)
            return place, place
        words = range(bisect_right(self._ends, item.offset), bisect_left(self._starts, item.end))
        targets = [tgt for word in words for tgt in self._linked.get(word, ())]
        if not targets:
            place = self._place(item.offset)
            return place, place
        first, last = self._tgt[min(targets)][0], self._tgt[max(targets)][1]
        if _is_punctuation(self._plain, self._src[words[0]][0], item.offset):
            first += self._leading(min(targets))
        if _is_punctuation(self._plain, item.end, self._src[words[-1]][1]):
            last -= self._trailing(max(targets))
        return first, max(first, last)

    def _place(self, offset: int) -> int:
        """Where something that stood at an offset of the source belongs in the output."""
        word = bisect_left(self._ends, offset)  # the first one that ends there or later
        if word == len(self._src):
            return len(self._output)
        if offset > self._starts[word]:
            return self._behind(word, cut=_is_punctuation(self._plain, offset, self._ends[word]))
        targets = self._linked.get(word)
        return self._tgt[targets[0]][0] if targets else self._behind(word - 1, cut=False)

    def _behind(self, word: int, *, cut: bool) -> int:
        """The end of the translation of a word, or of the last one before it that has any."""
        linked = self._linked_until[word] if word >= 0 else -1
        if linked < 0:
            return 0
        target = self._linked[linked][1]
        return self._tgt[target][1] - (self._trailing(target) if cut and linked == word else 0)

    def _last_linked(self, before: int, word: int) -> int:
        return word if word in self._linked else before

    def _leading(self, target: int) -> int:
        start, end = self._tgt[target]
        place = start
        while place < end and not _is_of_word(self._output[place]):
            place += 1
        return place - start if place < end else 0

    def _trailing(self, target: int) -> int:
        start, end = self._tgt[target]
        place = end
        while place > start and not _is_of_word(self._output[place - 1]):
            place -= 1
        return end - place if place > start else 0


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_punctuation(text: str, start: int, end: int) -> bool:
    """Whether a part of a text is; no copy of it is made, since a word can have a million characters."""
    return start < end and _PUNCTUATION.fullmatch(text, start, end) is not None


def _give_up(stack: list[_Open]) -> None:
    """Take an opening tag that is never closed for one that stands alone."""
    opened = stack.pop()
    stack[-1].children += [opened.item, *opened.children]
