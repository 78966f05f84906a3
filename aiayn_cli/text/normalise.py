"""Text in one form: what looks the same is the same to the vocabulary, the rules of `prepare` and the model.

Three steps: characters that are not seen go (Unicode's Default_Ignorable_Code_Point: soft hyphen, zero-width space,
byte order mark, marks of direction), save where a script or an emoji needs them; letters and their accents are
composed (NFC, Unicode Standard Annex 15); stretches of white space become one blank, and none is left at the ends.
"""

import re
import unicodedata

VERSION = 1  # goes up when the same text would come out otherwise; models name the version that they were trained with

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_MAY_CHANGE = re.compile("[\u0300-\U0010ffff]")  # below, what is printable is composed and seen
_ZWNJ, _ZWJ, _EMOJI_STYLE, _BLACK_FLAG = "\u200c", "\u200d", "\ufe0f", "\U0001f3f4"
_JOINING = re.compile("[\u0600-\u0dff\u0f00-\u109f\u1780-\u18af\ua840-\uabff\ufb50-\ufdff\U00010a00-\U00011fff]")
_LOST_ZWNJ = re.compile(f"{_ZWNJ}+(?=\\s|$)")  # between letters it keeps them apart; before a blank it does nothing


def normalise(text: str) -> str:
    """One line in the form above; doing it twice changes nothing."""
    is_plain = text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " "
    if is_plain and (text.isascii() or not _MAY_CHANGE.search(text)):
        return text  # most lines of Latin text, in half the time
    if _IGNORABLE.search(text):
        text = _LOST_ZWNJ.sub("", _without_ignorable(text))
    return " ".join(unicodedata.normalize("NFC", text).split())


def _without_ignorable(text: str) -> str:
    kept = [""]
    for position, character in enumerate(text):
        if not _IGNORABLE.match(character) or _is_needed(character, kept[-1], text[position + 1 : position + 2]):
            kept.append(character)
    return "".join(kept)


def _is_needed(character: str, before: str, after: str) -> bool:
    """Whether a script or an emoji needs this ignorable character between its neighbours ("" at the ends)."""
    if character in (_ZWNJ, _ZWJ) and _JOINING.match(before):
        return True  # joins Indic conjuncts, parts Persian suffixes
    if character == _ZWJ:
        return _is_emoji(before) and _is_emoji(after)  # a family, a profession
    if character == _EMOJI_STYLE:
        return _is_emoji(before) or (after == "\u20e3" and before in "0123456789#*")  # keycaps
    if "\U000e0020" <= character <= "\U000e007f":
        return before == _BLACK_FLAG or "\U000e0020" <= before < "\U000e007f"  # Scotland's flag
    return "\u180b" <= character <= "\u180f" and "\u1820" <= before <= "\u18aa"  # forms of Mongolian letters


def _is_emoji(character: str) -> bool:
    return character != "" and (unicodedata.category(character) in ("So", "Sk") or character == _EMOJI_STYLE)
