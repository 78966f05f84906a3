"""Tags, placeholders and addresses in a text: removed before translation, and restored where their words went.

`<b>word</b>`, `<br/>`, `{name}`, `{{name}}`, `${name}`, `%s`, `%(name)d`, `%1$s`, and web and e-mail addresses.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from aiayn_cli.translate.forced_decoding import ForcedDecoder, Links
from aiayn_cli.translate.line_translator import LineTranslator, Translation

# Linear in the length of the text: no pattern rescans it from each of its characters.
ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]}'”’»]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(/?)>")
_PLACEHOLDER = re.compile(r"\$?\{\{?[^{}\s]*\}\}?|%(?:\(\w+\)|\d+\$)?[-+0#]*(?:[1-9]\d*)?(?:\.\d+)?[sdifgxXcu@](?!\w)")
_ANY = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in (_TAG, _PLACEHOLDER, ADDRESS)))
_WORD = re.compile(r"[^ \t\x1f]+")  # as SentencePiece splits text
_PUNCTUATION = re.compile(r"[^\w]*")
_DEEPEST = 50  # nested pairs of tags; deeper ones are treated as single tags


@dataclass(frozen=True)
class Item:
    """A tag, a pair of tags or a placeholder, and its place in the plain text."""

    text: str
    offset: int  # where it was removed
    end: int  # of a pair, where the closing tag was removed; else the offset
    closing: str = ""  # the closing tag of a pair; "" = none
    blanks: tuple[bool, bool] = (False, False)  # whether a blank stood before and after it; unused for a pair
    children: tuple["Item", ...] = ()  # the items within a pair


@dataclass
class _Open:
    name: str
    item: Item
    children: list[Item] = field(default_factory=list)


def find_markup(text: str, *, tags: bool = True) -> Counter[str]:
    """The (tags,) placeholders and addresses of a text, counted."""
    return Counter(match.group() for match in _ANY.finditer(text) if tags or not _TAG.fullmatch(match.group()))


def take_out(text: str, *, placeholders: bool) -> tuple[str, tuple[Item, ...]]:
    """Remove tags from a text, and with `placeholders` also placeholders and addresses.

    Returns the plain text, without superfluous blanks, and the removed items, in order.
    """
    plain, place = "", 0
    stack = [_Open("", Item("", 0, 0))]
    for match in _ANY.finditer(text):
        tag = _TAG.fullmatch(match.group())
        if tag is None and not placeholders:
            continue
        plain += text[place : match.start()]
        place = match.end()
        before, after = plain[-1:] in ("", " "), text[place : place + 1] in ("", " ")
        if tag is not None and tag[1] and any(each.name == tag[2] for each in stack[1:]):
            while stack[-1].name != tag[2]:  # never closed
                _give_up(stack)
            opened = stack.pop()
            pair = replace(opened.item, end=len(plain), closing=match.group(), children=tuple(opened.children))
            stack[-1].children.append(pair)
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
    """Restore the items removed from a source in its translation, each exactly once and pairs properly nested.

    A pair encloses the words linked to those it enclosed. Any other item goes before the word linked to the one that
    followed it; if it was attached to the word before it, after the word linked to that.
    """
    return _Placement(plain, output, links).render(items, 0, len(output))


class _Placement:
    """Finds the places, each in logarithmic time, since a line can have 100,000 words and 100,000 items."""

    def __init__(self, plain: str, output: str, links: Links) -> None:
        self._plain, self._output = plain, output
        self._src, self._tgt = ([match.span() for match in _WORD.finditer(text)] for text in (plain, output))
        self._linked: dict[int, tuple[int, int]] = {}  # the first and last word that each is linked to
        for src, tgt in links:
            if src < len(self._src) and tgt < len(self._tgt):
                first, last = self._linked.get(src, (tgt, tgt))
                self._linked[src] = min(first, tgt), max(last, tgt)
        self._starts, self._ends = [start for start, _ in self._src], [end for _, end in self._src]
        # For each word, the last linked one up to it; -1 = none.
        own = [word if word in self._linked else -1 for word in range(len(self._src))]
        self._linked_until = list(accumulate(own, max))

    def render(self, items: Sequence[Item], start: int, end: int) -> str:
        """The output from start to end with its items; where two pairs would cross, the second begins later."""
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
        words = range(bisect_right(self._ends, item.offset), bisect_left(self._starts, item.end))
        targets = [tgt for word in words for tgt in self._linked.get(word, ())] if item.closing else []
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
        word = bisect_left(self._ends, offset)  # the first that ends there or later
        if word == len(self._src):
            return len(self._output)
        if offset > self._starts[word]:
            return self._behind(word, cut=_is_punctuation(self._plain, offset, self._ends[word]))
        targets = self._linked.get(word)
        return self._tgt[targets[0]][0] if targets else self._behind(word - 1, cut=False)

    def _behind(self, word: int, *, cut: bool) -> int:
        """The end of the translation of a word, or of the last one before it that has one."""
        linked = self._linked_until[word] if word >= 0 else -1
        if linked < 0:
            return 0
        target = self._linked[linked][1]
        return self._tgt[target][1] - (self._trailing(target) if cut and linked == word else 0)

    def _leading(self, target: int) -> int:
        """How many characters of punctuation a word of the output begins with; 0 if it has no others."""
        start, end = self._tgt[target]
        return next((place - start for place in range(start, end) if _is_of_word(self._output[place])), 0)

    def _trailing(self, target: int) -> int:
        start, end = self._tgt[target]
        return next((end - place for place in range(end, start, -1) if _is_of_word(self._output[place - 1])), 0)


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _is_punctuation(text: str, start: int, end: int) -> bool:
    """Whether part of a text is punctuation; not copied, since a word can have a million characters."""
    return start < end and _PUNCTUATION.fullmatch(text, start, end) is not None


def _give_up(stack: list[_Open]) -> None:
    """Treat an opening tag that is never closed as a single tag."""
    opened = stack.pop()
    stack[-1].children += [opened.item, *opened.children]


class MarkupTranslator:
    """Translates text without its markup, and restores the markup by the alignment of words.

    Placeholders and addresses first stay in the text, since a sentence can need the word that they stand for. If the
    model does not copy each of them, the line is translated again without them. It needs Transformers of raw text.
    """

    def __init__(self, translator: LineTranslator) -> None:
        self._translator = translator
        self.decoding, self.options = translator.decoding, translator.options

    def count_sub_words(self, line: str) -> int:
        return self._translator.count_sub_words(take_out(line, placeholders=True)[0])

    def variant(self, **changed: Any) -> "MarkupTranslator":
        return MarkupTranslator(self._translator.variant(**changed))

    def translate_n_best(
        self, lines: Sequence[str], first_line: int | None = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """Translate lines; see LineTranslator. A line of nothing but markup stays as it is."""
        lines = list(map(self._translator.codec.normalise, lines))
        taken = [take_out(line, placeholders=False) for line in lines]
        outputs = self._translator.translate_n_best([plain for plain, _ in taken], first_line, prefixes)
        lost = [
            number
            for number, (plain, _) in enumerate(taken)
            if (wanted := find_markup(plain, tags=False))
            and any(find_markup(each.text) != wanted for each in outputs[number])
        ]
        if lost:
            for number in lost:
                taken[number] = take_out(lines[number], placeholders=True)
            again = self._translator.translate_n_best(
                [taken[number][0] for number in lost], None, [prefixes[n] for n in lost] if prefixes else ()
            )
            for number, each in zip(lost, again, strict=True):
                outputs[number] = each
        marked = [number for number, (_, items) in enumerate(taken) if items]
        flat = [each for number in marked for each in outputs[number]]
        details = iter(ForcedDecoder(self._translator).details(flat, with_alignment=True) if flat else ())
        for number in marked:
            plain, items = taken[number]
            outputs[number] = [
                replace(each, text=put_back(plain, items, each.text, next(details).alignment))
                for each in outputs[number]
            ]
        return outputs
