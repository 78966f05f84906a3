"""Declension, against the table that a grammar book prints: article, adjective and noun, written out."""

import pytest

from aiayn_cli.corpora.demo_grammar.determiners import (
    BARE,
    KEIN,
    MANY,
    POSSESSIVES,
    THE,
    THIS,
    A,
    Case,
    Determiner,
    of_name,
)
from aiayn_cli.corpora.demo_grammar.lexicon import ADJECTIVES, NOUNS
from aiayn_cli.corpora.demo_grammar.phrases import NounPhrase

# Nominative, accusative, dative of "old table", "old lamp", "old book", "old tables" after each determiner.
PRINTED = {
    "the": (
        ("der alte Tisch", "den alten Tisch", "dem alten Tisch"),
        ("die alte Lampe", "die alte Lampe", "der alten Lampe"),
        ("das alte Buch", "das alte Buch", "dem alten Buch"),
        ("die alten Tische", "die alten Tische", "den alten Tischen"),
    ),
    "this": (
        ("dieser alte Tisch", "diesen alten Tisch", "diesem alten Tisch"),
        ("diese alte Lampe", "diese alte Lampe", "dieser alten Lampe"),
        ("dieses alte Buch", "dieses alte Buch", "diesem alten Buch"),
        ("diese alten Tische", "diese alten Tische", "diesen alten Tischen"),
    ),
    "not a": (
        ("kein alter Tisch", "keinen alten Tisch", "keinem alten Tisch"),
        ("keine alte Lampe", "keine alte Lampe", "keiner alten Lampe"),
        ("kein altes Buch", "kein altes Buch", "keinem alten Buch"),
        ("keine alten Tische", "keine alten Tische", "keinen alten Tischen"),
    ),
    "our": (
        ("unser alter Tisch", "unseren alten Tisch", "unserem alten Tisch"),
        ("unsere alte Lampe", "unsere alte Lampe", "unserer alten Lampe"),
        ("unser altes Buch", "unser altes Buch", "unserem alten Buch"),
        ("unsere alten Tische", "unsere alten Tische", "unseren alten Tischen"),
    ),
    "": (
        ("alter Tisch", "alten Tisch", "altem Tisch"),
        ("alte Lampe", "alte Lampe", "alter Lampe"),
        ("altes Buch", "altes Buch", "altem Buch"),
        ("alte Tische", "alte Tische", "alten Tischen"),
    ),
    "Anna's": (
        ("Annas alter Tisch", "Annas alten Tisch", "Annas altem Tisch"),
        ("Annas alte Lampe", "Annas alte Lampe", "Annas alter Lampe"),
        ("Annas altes Buch", "Annas altes Buch", "Annas altem Buch"),
        ("Annas alte Tische", "Annas alte Tische", "Annas alten Tischen"),
    ),
}
DETERMINERS = {"the": THE, "this": THIS, "not a": KEIN, "our": POSSESSIVES[4], "": BARE, "Anna's": of_name("Anna")}
NOUN = {noun.en: noun for noun in NOUNS}
OLD = next(adjective for adjective in ADJECTIVES if adjective.en == "old")


def say(noun: str, determiner: Determiner, case: Case, *, plural: bool = False) -> str:
    return NounPhrase(NOUN[noun], plural, determiner, (OLD,)).german(case)


@pytest.mark.parametrize("determiner", PRINTED)
def test_articles_adjectives_and_nouns_agree_in_gender_number_and_case(determiner: str) -> None:
    columns = [("table", False), ("lamp", False), ("book", False), ("table", True)]
    for (noun, plural), printed in zip(columns, PRINTED[determiner], strict=True):
        for case, expected in zip(Case, printed, strict=True):
            assert say(noun, DETERMINERS[determiner], case, plural=plural) == expected


def test_ein_is_declined_like_kein_in_the_singular() -> None:
    for noun in ("table", "lamp", "book"):
        for case in Case:
            assert "k" + say(noun, A, case) == say(noun, KEIN, case)


def test_viele_and_its_adjective_take_the_same_endings() -> None:
    assert [say("lamp", MANY, case, plural=True) for case in Case] == [
        "viele alte Lampen",
        "viele alte Lampen",
        "vielen alten Lampen",
    ]


@pytest.mark.parametrize(
    ("noun", "accusative", "dative", "dative_plural"),
    [
        ("boy", "den Jungen", "dem Jungen", "den Jungen"),
        ("student", "den Studenten", "dem Studenten", "den Studenten"),
        ("guest", "den Gast", "dem Gast", "den Gästen"),
        ("apple", "den Apfel", "dem Apfel", "den Äpfeln"),
        ("girl", "das Mädchen", "dem Mädchen", "den Mädchen"),
        ("car", "das Auto", "dem Auto", "den Autos"),
        ("museum", "das Museum", "dem Museum", "den Museen"),
        ("daughter", "die Tochter", "der Tochter", "den Töchtern"),
    ],
)
def test_nouns_are_declined(noun: str, accusative: str, dative: str, dative_plural: str) -> None:
    assert NounPhrase(NOUN[noun]).german(Case.ACC) == accusative
    assert NounPhrase(NOUN[noun]).german(Case.DAT) == dative
    assert NounPhrase(NOUN[noun], plural=True).german(Case.DAT) == dative_plural


def test_a_name_in_s_x_or_z_takes_only_an_apostrophe() -> None:
    for name, genitive in (("Thomas", "Thomas'"), ("Felix", "Felix'"), ("Moritz", "Moritz'"), ("Hannah", "Hannahs")):
        assert NounPhrase(NOUN["car"], determiner=of_name(name)).german(Case.NOM) == f"{genitive} Auto"
        assert NounPhrase(NOUN["car"], determiner=of_name(name)).english(Case.NOM) == f"{name}'s car"
