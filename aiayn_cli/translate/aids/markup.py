"""Tags, placeholders, addresses and symbols that a model cannot read: removed before translation, and restored where
their words went."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from aiayn_cli.text.markup import MARKUP, TAG, find_markup
from aiayn_cli.text.sentences import has_letters
from aiayn_cli.translate.forced_decoding import ForcedDecoder, Links
from aiayn_cli.translate.line_translator import LineTranslator, Translation

_TAIL = "[\ufe0e\ufe0f\u20d0-\u20ff\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"  # style, skin, subdivision
# What is carried as a whole: numbers, keycaps, flags, emoji that others are joined to.
_SYMBOL = (
    f"[0-9#*]\ufe0f?\u20e3|\\d+(?:[.,:/]\\d+)*+|[\U0001f1e6-\U0001f1ff]{{2}}|[^\\s]{_TAIL}(?:\u200d[^\\s]{_TAIL})*+"
)
_MARKUP_OR_SYMBOL = re.compile(f"{MARKUP.pattern}|{_SYMBOL}")
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
    parts: bool = False  # whether it stood within a word, of which a blank now parts the halves
    children: tuple["Item", ...] = ()  # the items within a pair


@dataclass
class _Open:
    name: str
    item: Item
    children: list[Item] = field(default_factory=list)


def take_out(
    text: str, *, tags: bool = True, placeholders: bool, unreadable: AbstractSet[str] = frozenset(), start: int = 0
) -> tuple[str, tuple[Item, ...]]:
    """Remove tags from a text, from `start` on, and with `placeholders` also placeholders and addresses.

    Unreadable characters go in any case, together with the markup, number or emoji that they are part of. Returns the
    plain text, without superfluous blanks, and the removed items, in order.
    """
    plain, place, symbol_end = "", 0, -1
    stack = [_Open("", Item("", 0, 0))]
    for match in (_MARKUP_OR_SYMBOL if unreadable else MARKUP).finditer(text, start):
        tag = TAG.fullmatch(match.group())
        is_markup = tag is not None or (placeholders and MARKUP.fullmatch(match.group()) is not None)
        if not (tags if tag else is_markup) and unreadable.isdisjoint(match.group()):
            continue
        plain += text[place : match.start()]
        place = match.end()
        before = plain[-1:] in ("", " ") and match.start() != symbol_end
        after, symbol_end = text[place : place + 1] in ("", " "), -1 if tag else place
        if tag is not None and tag[1] and any(each.name == tag[2] for each in stack[1:]):
            while stack[-1].name != tag[2]:  # never closed
                _give_up(stack)
            opened = stack.pop()
            pair = replace(opened.item, end=len(plain), closing=match.group(), children=tuple(opened.children))
            stack[-1].children.append(pair)
            continue
        parts = tag is None and _is_of_word(plain[-1:]) and _is_of_word(text[place : place + 1])
        if tag is None and plain.endswith(" ") and not text[place : place + 1].isalnum():  # it stood for a word
            plain = plain[:-1]
        item = Item(match.group(), len(plain), len(plain), blanks=(before, after), parts=parts)
        plain += " " if parts else ""
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
        # The last word of each sentence.
        self._src_last, self._tgt_last = self._last_words(plain, self._src), self._last_words(output, self._tgt)
        # For each word, the last linked one up to it; -1 = none.
        own = [word if word in self._linked else -1 for word in range(len(self._src))]
        self._linked_until = list(accumulate(own, max))

    @staticmethod
    def _last_words(text: str, words: Sequence[tuple[int, int]]) -> list[int]:
        ends = (number for number, (_, end) in enumerate(words) if text[end - 1] in ".!?…。！？।؟")
        return sorted({*ends, len(words) - 1})

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
                gap_behind = item.blanks[1] and self._output[first : first + 1] not in ("", *" .,;:!?…)")
                text += f"{' ' if gap_before else ''}{item.text}{' ' if gap_behind else ''}"
                place = first + (item.parts and self._output[first:end].startswith(" "))
        return text + self._output[place:end]

    def _span(self, item: Item) -> tuple[int, int]:
        words = range(bisect_right(self._ends, item.offset), bisect_left(self._starts, item.end))
        targets = [tgt for word in words for tgt in self._linked.get(word, ())] if item.closing else []
        if not targets:
            edge = None if item.closing or any(map(str.isalnum, item.text)) else self._edge(item.offset)
            place = self._place(item.offset) if edge is None else edge
            return place, place
        first, last = self._tgt[min(targets)][0], self._tgt[max(targets)][1]
        if _is_punctuation(self._plain, self._src[words[0]][0], item.offset):
            first += self._leading(min(targets))
        if _is_punctuation(self._plain, item.end, self._src[words[-1]][1]):
            last -= self._trailing(max(targets))
        return first, max(first, last)

    def _edge(self, offset: int) -> int | None:
        """Where the same sentence begins or ends in the output, if one does at this place."""
        word = bisect_left(self._ends, offset)
        if len(self._src_last) != len(self._tgt_last) or not self._tgt or word == len(self._src):
            return None
        sentence = bisect_left(self._src_last, word)
        if offset == self._ends[word] and self._src_last[sentence] == word:
            return self._tgt[self._tgt_last[sentence]][1]
        if offset <= self._starts[word] and word == (self._src_last[sentence - 1] + 1 if sentence else 0):
            return self._tgt[self._tgt_last[sentence - 1] + 1 if sentence else 0][0]
        return None

    def _place(self, offset: int) -> int:
        word = bisect_left(self._ends, offset)  # the first that ends there or later
        if word == len(self._src):
            return len(self._output)
        if offset > self._starts[word]:
            is_before_mark = _is_punctuation(self._plain, offset, self._ends[word])
            return self._behind(word, cut=is_before_mark or _is_of_word(self._plain[offset - 1]))
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
    """Translates text without what the model cannot read, and restores that by the alignment of words.

    With `markup`, tags are removed too. Placeholders and addresses first stay in the text, since a sentence can need
    the word that they stand for; if the model does not copy each, the line is translated again without them. What is
    no Transformer of raw text gives no alignment: places are then as far from the start as in the source.
    """

    def __init__(self, translator: LineTranslator, *, markup: bool = True) -> None:
        self._translator, self._markup = translator, markup
        self.decoding, self.options = translator.decoding, translator.options

    def count_sub_words(self, line: str) -> int:
        return self._translator.count_sub_words(self._take_out(line, placeholders=self._markup)[0])

    def variant(self, **changed: Any) -> "MarkupTranslator":
        return MarkupTranslator(self._translator.variant(**changed), markup=self._markup)

    def _take_out(self, line: str, *, placeholders: bool = False) -> tuple[str, tuple[Item, ...]]:
        codec = self._translator.codec
        start = len(codec.language_tag(line))
        unreadable = codec.symbols(line[start:])
        if not (self._markup or unreadable) or not has_letters(line):  # which stays as it is
            return line, ()
        return take_out(line, tags=self._markup, placeholders=placeholders, unreadable=unreadable, start=start)

    def translate_n_best(
        self, lines: Sequence[str], first_line: int | None = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """Translate lines; see LineTranslator. A line of nothing but markup stays as it is."""
        normal = [self._translator.codec.normalise(line) if has_letters(line) else line for line in lines]
        taken = list(map(self._take_out, normal))
        outputs = self._translator.translate_n_best([plain for plain, _ in taken], first_line, prefixes)
        lost = [
            number
            for number, (plain, _) in enumerate(taken if self._markup else ())
            if (wanted := find_markup(plain, tags=False))
            and any(find_markup(each.text) != wanted for each in outputs[number])
        ]
        if lost:
            for number in lost:
                taken[number] = self._take_out(normal[number], placeholders=True)
            again = self._translator.translate_n_best(
                [taken[number][0] for number in lost], None, [prefixes[n] for n in lost] if prefixes else ()
            )
            for number, each in zip(lost, again, strict=True):
                outputs[number] = each
        marked = [number for number, (_, items) in enumerate(taken) if items]
        flat = [each for number in marked for each in outputs[number]]
        links = iter(self._links(flat, [taken[number][0] for number in marked for _ in outputs[number]]))
        for number in marked:
            plain, items = taken[number]
            outputs[number] = [
                replace(each, text=put_back(plain, items, each.text, next(links))) for each in outputs[number]
            ]
        return outputs

    def _links(self, outputs: Sequence[Translation], sources: Sequence[str]) -> list[Links]:
        if not self._translator.is_aligned:
            pairs = ((len(plain.split()), len(each.text.split())) for plain, each in zip(sources, outputs, strict=True))
            return [tuple((i * n_src // n_tgt, i) for i in range(n_tgt)) for n_src, n_tgt in pairs]
        decoder = ForcedDecoder(self._translator)
        return [each.alignment for each in decoder.details(outputs, with_alignment=True)] if outputs else []
