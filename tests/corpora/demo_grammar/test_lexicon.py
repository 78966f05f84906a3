"""The tables of words: what a student who extends them must keep."""

from collections import Counter

from aiayn_cli.corpora.demo_grammar.lexicon import (
    ADJECTIVES,
    AGES_AND_COLOURS,
    CITIES,
    CONTRASTS,
    NAMES,
    NOUNS,
    OPINIONS_AND_SIZES,
    PASSING,
    PLACES,
    PREPOSITIONS,
)
from aiayn_cli.corpora.demo_grammar.phrases import plural
from aiayn_cli.corpora.demo_grammar.verbs import ADDITIONS, ASPECTS, GOALS, VERBS

KINDS = {noun.kind for noun in NOUNS}


def repeated(words: list[str]) -> list[str]:
    return [word for word, count in Counter(words).items() if count > 1]


def test_the_tables_are_as_large_as_promised() -> None:
    assert len(NOUNS) >= 60
    assert len(VERBS) >= 35
    assert len(ADJECTIVES) >= 25
    assert len(NAMES) >= 20
    assert sum(bool(verb.prefix) for verb in VERBS) >= 10
    assert sum(verb.dative and not verb.de_preposition for verb in VERBS) >= 5


def test_no_word_is_there_twice_in_either_language() -> None:
    assert repeated([noun.en for noun in NOUNS]) == []
    assert repeated([noun.de for noun in NOUNS]) == []
    assert repeated([noun.en_plural or plural(noun.en) for noun in NOUNS]) == []
    assert repeated([adjective.en for adjective in ADJECTIVES]) == []
    assert repeated([adjective.de for adjective in ADJECTIVES]) == []
    assert repeated([verb.key for verb in VERBS]) == []
    assert repeated([verb.prefix + verb.infinitive for verb in VERBS]) == []
    assert repeated(list(NAMES) + [en for en, _ in CITIES]) == []


def test_every_kind_that_is_asked_for_has_a_noun() -> None:
    asked = [adjective.kinds for adjective in ADJECTIVES] + [preposition.kinds for preposition in PREPOSITIONS]
    asked += [verb.subjects for verb in VERBS] + [verb.objects for verb in VERBS]
    assert {kind for kinds in asked for kind in kinds} <= KINDS


def test_every_reference_between_tables_is_to_a_word_that_exists() -> None:
    adjectives = {adjective.en for adjective in ADJECTIVES}
    assert {place.noun for place in PLACES} <= {noun.en for noun in NOUNS}
    assert {en for group in CONTRASTS for en in group} <= adjectives
    assert {*OPINIONS_AND_SIZES, *AGES_AND_COLOURS, *PASSING} <= adjectives
    assert {noun for adjective in ADJECTIVES for noun in adjective.never} <= {noun.en for noun in NOUNS}


def test_verbs_are_completed_by_known_goals_and_additions() -> None:
    assert {goal for verb in VERBS for goal in verb.goal} <= set(GOALS)
    assert {addition for verb in VERBS for addition in verb.adds} <= set(ADDITIONS)
    assert {verb.aspect for verb in VERBS} == set(ASPECTS)


def test_genders_are_the_three_of_german_and_each_has_many_nouns() -> None:
    genders = Counter(noun.gender for noun in NOUNS)
    assert set(genders) == {"m", "f", "n"}
    assert min(genders.values()) >= 15
