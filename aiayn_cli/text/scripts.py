"""Which script each letter belongs to (Unicode's Script property), and in which scripts each language is written."""

import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from aiayn_cli.text.languages import primary_language

_TABLES = yaml.safe_load(Path(__file__).with_name("scripts.yaml").read_text(encoding="utf-8"))
SCRIPTS: dict[str, dict[str, str]] = _TABLES["scripts"]  # by name: ranges of its letters, and languages
CODES: dict[str, str] = _TABLES["codes"]  # by the English names of common languages

# Of these, one letter says as much as several of an alphabet; names and brands in such text are often in Latin.
DENSE_SCRIPTS = frozenset(("Han", "Kana", "Hangul"))


def scripts_of(lang: str) -> frozenset[str]:
    """The scripts of a language such as "de", "deu", "zh_Hans" or "sr_Latn"; none for a language that is not listed."""
    code = primary_language(lang)
    for tag in lang.lower().replace("-", "_").split("_")[1:]:
        if tag in _TABLES["tags"]:
            return frozenset(_TABLES["tags"][tag].split())
    return frozenset(name for name, script in SCRIPTS.items() if code in script["languages"].split())


def find_letters() -> npt.NDArray[np.bool_]:
    """Mark each code point that is a letter of any script (Unicode's categories L): [code points]."""
    letters = np.zeros(sys.maxunicode + 1, np.bool_)
    letters[:0x32400] = list(map(str.isalpha, map(chr, range(0x32400))))  # beyond, there are none
    return letters


def find_members(scripts: Collection[str]) -> npt.NDArray[np.bool_]:
    """Mark each code point in the ranges of some scripts, whether it is a letter or not: [code points]."""
    members = np.zeros(sys.maxunicode + 1, np.bool_)
    for script in scripts:
        for stretch in SCRIPTS[script]["letters"].split():
            first, _, last = stretch.partition("-")
            members[int(first, 16) : int(last or first, 16) + 1] = True
    return members


def is_written_without_blanks(character: str) -> bool:
    """Whether a character is of a script without blanks between words: Thai to Myanmar, Khmer, Kana, Han."""
    return "\u0e00" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff" or character >= "\u2e80"
