"""Where to cut a line that is too long for one pass through the model."""

from collections.abc import Sequence

WITHOUT_BLANKS = ("zh", "ja", "th", "lo", "km", "my")  # languages that put no blank between words or sentences
_BLANK_MARK = "\u2581"  # what SentencePiece writes at the start of a word
_SENTENCE_MARKS = (".", "!", "?", "…", "。", "！", "？", "．")
_MARKS_WITHOUT_BLANK = ("。", "！", "？")  # scripts that put no blank after a sentence
_CLAUSE_MARKS = (",", ";", ":", "–", "—", "、", "，", "；", "：")
_CLOSING = "\"'”’»«)]}」』）"
_SHORTEST_SENTENCE = 10  # tokens: an abbreviation's full stop soon after the last cut is not taken for an end


def split_points(pieces: Sequence[str], limit: int) -> list[int]:
    """Cut a sequence of sub-words into parts of at most `limit`.

    Cuts come at the ends of sentences; where a sentence is too long itself, after the last clause that fits, else
    before the last word that fits, else wherever the limit is reached.

    Args:
        pieces: sub-words as SentencePiece writes them.
        limit: longest part, at least 1.

    Returns:
        The end of each part, rising; the last one is len(pieces).
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
