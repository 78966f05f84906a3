"""English noun phrases and German prepositional phrases."""

import pytest

from aiayn_cli.corpora.demo_grammar.adverbials import Prepositional, after
from aiayn_cli.corpora.demo_grammar.determiners import BARE, POSSESSIVES, THE, THIS, A, Case
from aiayn_cli.corpora.demo_grammar.lexicon import ADJECTIVES, FOR, NOUNS, WITH, WITHOUT
from aiayn_cli.corpora.demo_grammar.phrases import PRONOUNS, Both, NounPhrase, name, plural
from aiayn_cli.corpora.demo_grammar.times import number

NOUN = {noun.en: noun for noun in NOUNS}
ADJECTIVE = {adjective.en: adjective for adjective in ADJECTIVES}


@pytest.mark.parametrize(
    ("noun", "expected"),
    [("dog", "dogs"), ("bus", "buses"), ("church", "churches"), ("library", "libraries"), ("boy", "boys")],
)
def test_english_plurals_follow_the_spelling_rules(noun: str, expected: str) -> None:
    assert plural(noun) == expected


def test_english_phrases_choose_a_or_an_by_the_next_word() -> None:
    egg, old, red = NOUN["egg"], ADJECTIVE["old"], ADJECTIVE["red"]
    assert NounPhrase(egg, determiner=A).english(Case.NOM) == "an egg"
    assert NounPhrase(NOUN["car"], determiner=A, adjectives=(red, old)).english(Case.NOM) == "a red old car"
    assert NounPhrase(NOUN["car"], determiner=A, adjectives=(old,)).english(Case.NOM) == "an old car"


def test_a_number_stands_between_determiner_and_adjective() -> None:
    phrase = NounPhrase(NOUN["mouse"], True, THIS, (ADJECTIVE["small"],), number(12))
    assert phrase.english(Case.NOM) == "these twelve small mice"
    assert phrase.german(Case.DAT) == "diesen zwölf kleinen Mäusen"


# Article of the nouns' gender after a preposition, independently of the grammar's tables.
DATIVE = {"m": "dem", "f": "der", "n": "dem"}
ACCUSATIVE = {"m": "den", "f": "die", "n": "das"}


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.en)
def test_mit_takes_the_dative_and_fuer_and_ohne_the_accusative_of_every_noun(noun: object) -> None:
    entry = next(other for other in NOUNS if other is noun)
    phrase = NounPhrase(entry)
    assert Prepositional(WITH, Case.DAT, phrase).german().split()[:2] == ["mit", DATIVE[entry.gender]]
    assert Prepositional(FOR, Case.ACC, phrase).german().split()[:2] == ["für", ACCUSATIVE[entry.gender]]
    assert Prepositional(WITHOUT, Case.ACC, phrase).german().split()[:2] == ["ohne", ACCUSATIVE[entry.gender]]


@pytest.mark.parametrize(
    ("preposition", "case", "noun", "expected"),
    [
        ("in", Case.DAT, "park", "im Park"),
        ("in", Case.DAT, "kitchen", "in der Küche"),
        ("in", Case.ACC, "cinema", "ins Kino"),
        ("in", Case.ACC, "garden", "in den Garten"),
        ("an", Case.DAT, "station", "am Bahnhof"),
        ("an", Case.ACC, "child", "an das Kind"),
        ("zu", Case.DAT, "doctor", "zum Arzt"),
        ("zu", Case.DAT, "bridge", "zur Brücke"),
        ("von", Case.DAT, "horse", "vom Pferd"),
        ("auf", Case.DAT, "market", "auf dem Markt"),
    ],
)
def test_a_preposition_contracts_with_the_article_where_that_is_usual(
    preposition: str, case: Case, noun: str, expected: str
) -> None:
    assert after(preposition, NounPhrase(NOUN[noun]), case) == expected


def test_nothing_but_the_article_contracts() -> None:
    park = NOUN["park"]
    assert after("in", NounPhrase(park, determiner=A), Case.DAT) == "in einem Park"
    assert after("in", NounPhrase(park, determiner=THIS), Case.DAT) == "in diesem Park"
    assert after("in", NounPhrase(park, plural=True), Case.DAT) == "in den Parks"
    assert (
        after("zu", Both(name("Anna"), NounPhrase(NOUN["doctor"], determiner=THE)), Case.DAT) == "zu Anna und dem Arzt"
    )


def test_pronouns_have_three_cases() -> None:
    printed = "ich mich mir, du dich dir, er ihn ihm, sie sie ihr, wir uns uns, sie sie ihnen"
    assert ", ".join(" ".join(pronoun.german(case) for case in Case) for pronoun in PRONOUNS) == printed
    assert [pronoun.english(Case.NOM) for pronoun in PRONOUNS] == ["I", "you", "he", "she", "we", "they"]
    assert [pronoun.english(Case.DAT) for pronoun in PRONOUNS] == ["me", "you", "him", "her", "us", "them"]


def test_kein_stands_for_ein_and_for_no_article_but_not_for_a_number() -> None:
    apple = NOUN["apple"]
    assert NounPhrase(apple, determiner=A).german(Case.ACC, negated=True) == "keinen Apfel"
    assert NounPhrase(apple, True, BARE).german(Case.ACC, negated=True) == "keine Äpfel"
    assert NounPhrase(apple, True, BARE, count=number(2)).german(Case.ACC, negated=True) == "zwei Äpfel"
    assert NounPhrase(apple, determiner=POSSESSIVES[1]).german(Case.ACC, negated=True) == "deinen Apfel"
