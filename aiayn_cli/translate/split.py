"""Where to cut a line that is too long for one pass through the model."""

import re
from collections.abc import Callable, Iterator, Sequence

WITHOUT_BLANKS = ("zh", "ja", "th", "lo", "km", "my")  # languages that put no blank between words or sentences
_BLANK_MARK = "\u2581"  # what SentencePiece writes at the start of a word
_SENTENCE_MARKS = (".", "!", "?", "…", "。", "！", "？", "．")
_MARKS_WITHOUT_BLANK = ("。", "！", "？")  # scripts that put no blank after a sentence
_CLAUSE_MARKS = (",", ";", ":", "–", "—", "、", "，", "；", "：")
_CLOSING = "\"'”’»«)]}」』）"
_SHORTEST_SENTENCE = 10  # tokens: an abbreviation's full stop soon after the last cut is not taken for an end


def segments(text: str, longest_word: int, count: Callable[[str], int]) -> Iterator[tuple[str, bool]]:
    """Separate words that are too long for one pass from the rest of a text.

    Such a word (a key, a blob of base64, a cat on a keyboard) has no place where it could be cut, and pieces of it mean
    nothing. Scripts without blanks between words have no such words.

    Yields what the text is made of, in order, and whether that is a word of more than `longest_word` sub-words.
    """
    start = 0
    # Every sub-word holds a character at least, unless a character is written as bytes, of which it has at most four.
    for match in re.finditer(rf"\S{{{longest_word // 4 + 1},}}", text):
        word = match.group()
        if 4 * sum(c.isalpha() and is_dense(c) for c in word) > len(word) or count(word) <= longest_word:
            continue
        if before := text[start : match.start()].strip():
            yield before, False
        yield word, True
        start = match.end()
    if start == 0:
        yield text, False
    elif after := text[start:].strip():
        yield after, False


def is_dense(character: str) -> bool:
    """Whether a character is of a script that puts no blanks between words: Thai to Myanmar, Khmer, Kana, Han."""
    return "\u0e00" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff" or character >= "\u2e80"


def split_points(pieces: Sequence[str], limit: int) -> list[int]:
    """Cut a sequence of sub-words into parts of at most `limit`.

    Cuts come at the ends of sentences; where a sentence is too long itself, after the last clause that fits, else
    before the last word that fits, else wherever the limit is reached.

    Returns the end of each part, rising; the last one is len(pieces).
    """
    ends = []
    start = 0
    while start < len(pieces):
        start = _next_end(pieces, start, limit)
        ends.append(start)
    return ends


def _next_end(pieces: Sequence[str], start: int, limit: int) -> int:
    last = min(start + limit, len(pieces))
    for end in range(start + _SHORTEST_SENTENCE, min(last + 1, len(pieces))):
        if _ends_sentence(pieces, end):
            return end
    if last == len(pieces):
        return last
    for end in range(last, start + limit // 2, -1):
        if _starts_word(pieces, end) and pieces[end - 1].endswith(_CLAUSE_MARKS):
            return end
    for end in range(last, start, -1):
        if _starts_word(pieces, end):
            return end
    return last


def _ends_sentence(pieces: Sequence[str], end: int) -> bool:
    before = "".join(pieces[max(end - 3, 0) : end]).rstrip(_CLOSING)
    if before.endswith(_MARKS_WITHOUT_BLANK):
        return not pieces[end].startswith((*_SENTENCE_MARKS, *_CLOSING))
    return before.endswith(_SENTENCE_MARKS) and _starts_word(pieces, end)


def _starts_word(pieces: Sequence[str], position: int) -> bool:
    return pieces[position].startswith(_BLANK_MARK)
