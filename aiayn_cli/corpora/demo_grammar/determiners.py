"""Declension in the built-in corpus: cases, endings, and the determiners that ask for them."""

from dataclasses import dataclass
from enum import IntEnum

Table = tuple[tuple[str, str, str, str], ...]


class Case(IntEnum):
    """The German cases that occur; rows of the tables below."""

    NOM = 0
    ACC = 1
    DAT = 2


# Columns: masculine, feminine, neuter, plural.
DEFINITE: Table = (("der", "die", "das", "die"), ("den", "die", "das", "die"), ("dem", "der", "dem", "den"))
STRONG: Table = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"))
EIN: Table = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"))
WEAK: Table = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en", "en", "en", "en"))
MIXED: Table = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en", "en", "en", "en"))
NONE: Table = (("", "", "", ""),) * 3


@dataclass(frozen=True, eq=False)
class Determiner:
    """What opens a noun phrase, with its own endings and those it asks of adjectives."""

    en: str
    en_plural: str
    de: str  # stem
    endings: Table
    adjective_endings: Table
    definite: bool = True  # definite objects stand before adverbials


THE = Determiner("the", "the", "", DEFINITE, WEAK)
THIS = Determiner("this", "these", "dies", STRONG, WEAK)
EVERY = Determiner("every", "", "jed", STRONG, WEAK, definite=False)
A = Determiner("a", "", "ein", EIN, MIXED, definite=False)
BARE = Determiner("", "", "", NONE, STRONG, definite=False)
MANY = Determiner("", "many", "viel", STRONG, STRONG, definite=False)
KEIN = Determiner("", "", "kein", EIN, MIXED, definite=False)
POSSESSIVES = tuple(
    Determiner(en, en, de, EIN, MIXED)
    for en, de in (
        ("my", "mein"),
        ("your", "dein"),
        ("his", "sein"),
        ("her", "ihr"),
        ("our", "unser"),
        ("their", "ihr"),
    )
)


def of_name(name: str) -> Determiner:
    """Make the genitive of a name: Anna's book is Annas Buch, Felix's book is Felix' Buch."""
    return Determiner(f"{name}'s", f"{name}'s", name + ("'" if name.endswith(("s", "x", "z")) else "s"), NONE, STRONG)
