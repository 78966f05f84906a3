"""Which script each letter belongs to (Unicode's Script property), and in which scripts each language is written."""

import sys
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

# By script: first and last code point of each stretch that holds letters of it and of no other (Unicode's Scripts.txt);
# and the languages that are written in it.
SCRIPTS: dict[str, tuple[str, str]] = {
    "Latin": (
        "41-AA BA-2B8 2E0-2E4 1D00-1D25 1D2C-1D5C 1D62-1D65 1D6B-1D77 1D79-1DBE 1E00-1EFF 2071-209C 212A-212B 2132 "
        "214E-2184 2C60-2C7F A722-A787 A78B-A7FF AB30-AB64 AB66-AB69 FB00-FB06 FF21-FF5A 10780-107BA 1DF00-1DF1E",
        "af az br bs ca co cs cy da de en eo es et eu fi fil fo fr fy ga gd gl gn gsw ha haw hr ht hu id ig is it jv "
        "kk ku la lb lg li ln lt lv mg mi ms mt nb nds nl nn no ny oc om pl pt qu rm rn ro rw sc sk sl sm sn so sq "
        "sr st su sv sw tet tk tl tn to tr ts uz vi vo wa wo xh yo zu",
    ),
    "Greek": ("370-373 376-3E1 3F0-3FF 1D26-1D2A 1D5D-1D61 1D66-1D6A 1DBF 1F00-1FFC 2126 AB65", "el grc"),
    "Cyrillic": (
        "400-52F 1C80-1C8A 1D2B 1D78 A640-A69D",
        "ab az ba be bg bs ce cv kk kv ky mk mn os ru sah sr tg tk tt udm uk uz",
    ),
    "Armenian": ("531-588 FB13-FB17", "hy"),
    "Hebrew": ("5D0-5F2 FB1D-FB4F", "he iw yi"),
    "Arabic": (
        "620-63F 641-6FF 750-77F 870-8C9 FB50-FEFC 1EE00-1EEBB",
        "ar arz az ckb fa kk ks ku ky ms pa prs ps sd tg tk ug ur uz",
    ),
    "Devanagari": ("904-97F A8F2-A8FE", "bho gom hi ks mai mr ne sa sd"),
    "Bengali": ("980-9FC", "as bn"),
    "Gurmukhi": ("A05-A74", "pa"),
    "Gujarati": ("A85-AF9", "gu"),
    "Oriya": ("B05-B71", "or"),
    "Tamil": ("B83-BD0", "ta"),
    "Telugu": ("C05-C61", "te"),
    "Kannada": ("C80-CF2", "kn"),
    "Malayalam": ("D04-D7F", "ml"),
    "Sinhala": ("D85-DC6", "si"),
    "Thai": ("E01-E46", "th"),
    "Lao": ("E81-EDF", "lo"),
    "Tibetan": ("F00-F8C", "bo dz"),
    "Myanmar": ("1000-108E A9E0-A9FE AA60-AA7F", "my shn"),
    "Georgian": ("10A0-10FA 10FC-10FF 1C90-1CBF 2D00-2D2D", "ka"),
    "Hangul": ("1100-11FF 3131-318E A960-A97C AC00-D7FB FFA0-FFDC", "ko"),
    "Ethiopic": ("1200-138F 2D80-2DDE AB01-AB2E 1E7E0-1E7FE", "am ti"),
    "Khmer": ("1780-17DC", "km"),
    "Mongolian": ("1820-18AA", "mn"),
    "Kana": ("3041-3096 309D-309F 30A1-30FA 30FD-30FF 31F0-31FF FF66-FF6F FF71-FF9D", "ja"),
    "Han": ("3005 303B 3400-9FFF F900-FAD9 20000-323AF", "ja ko lzh wuu yue zh"),
    "Bopomofo": ("3105-312F 31A0-31BF", "zh"),
}

_TAGS: dict[str, str] = {  # ISO 15924, as in zh_Hans or sr_Latn
    "latn": "Latin", "grek": "Greek", "cyrl": "Cyrillic", "armn": "Armenian", "hebr": "Hebrew", "arab": "Arabic",
    "deva": "Devanagari", "beng": "Bengali", "guru": "Gurmukhi", "gujr": "Gujarati", "orya": "Oriya", "taml": "Tamil",
    "telu": "Telugu", "knda": "Kannada", "mlym": "Malayalam", "sinh": "Sinhala", "thai": "Thai", "laoo": "Lao",
    "tibt": "Tibetan", "mymr": "Myanmar", "geor": "Georgian", "hang": "Hangul", "kore": "Hangul Han",
    "ethi": "Ethiopic", "khmr": "Khmer", "mong": "Mongolian", "jpan": "Kana Han", "hira": "Kana", "kana": "Kana",
    "hani": "Han", "hans": "Han", "hant": "Han", "bopo": "Bopomofo",
}  # fmt: skip

# Of these, one letter says as much as several of an alphabet; names and brands in such text are often in Latin.
DENSE_SCRIPTS = frozenset(("Han", "Kana", "Hangul"))

WITHOUT_BLANKS = ("zh", "ja", "th", "lo", "km", "my")  # languages without blanks between words or sentences


def scripts_of(lang: str) -> frozenset[str]:
    """The scripts of a language such as "de", "zh_Hans" or "sr_Latn"; none for a language that is not listed."""
    code, *tags = lang.lower().replace("-", "_").split("_")
    for tag in tags:
        if tag in _TAGS:
            return frozenset(_TAGS[tag].split())
    return frozenset(script for script, (_, codes) in SCRIPTS.items() if code in codes.split())


def find_letters() -> npt.NDArray[np.bool_]:
    """Mark each code point that is a letter of any script (Unicode's categories L): [code points]."""
    letters = np.zeros(sys.maxunicode + 1, np.bool_)
    letters[:0x32400] = list(map(str.isalpha, map(chr, range(0x32400))))  # beyond, there are none
    return letters


def find_members(scripts: Collection[str]) -> npt.NDArray[np.bool_]:
    """Mark each code point in the ranges of some scripts, whether it is a letter or not: [code points]."""
    members = np.zeros(sys.maxunicode + 1, np.bool_)
    for script in scripts:
        for stretch in SCRIPTS[script][0].split():
            first, _, last = stretch.partition("-")
            members[int(first, 16) : int(last or first, 16) + 1] = True
    return members


def is_written_without_blanks(character: str) -> bool:
    """Whether a character is of a script without blanks between words: Thai to Myanmar, Khmer, Kana, Han."""
    return "\u0e00" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff" or character >= "\u2e80"
