"""Random phrases and times of the built-in corpus, out of the word combinations that one split may use."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed, Prepositional
from aiayn_cli.corpora.demo_grammar.chance import Chance
from aiayn_cli.corpora.demo_grammar.conjugation import Person, Tense
from aiayn_cli.corpora.demo_grammar.determiners import (
    BARE,
    EVERY,
    MANY,
    POSSESSIVES,
    THE,
    THIS,
    A,
    Case,
    Determiner,
    of_name,
)
from aiayn_cli.corpora.demo_grammar.heldout import split_of
from aiayn_cli.corpora.demo_grammar.lexicon import (
    ADJECTIVES,
    AGES_AND_COLOURS,
    CITIES,
    NAMES,
    NOUNS,
    OPINIONS_AND_SIZES,
    PLACES,
    Adjective,
    Noun,
    Place,
    Preposition,
)
from aiayn_cli.corpora.demo_grammar.phrases import PRONOUNS, Both, Combination, NounPhrase, Phrase, name
from aiayn_cli.corpora.demo_grammar.times import (
    CLOCK_MINUTES,
    DAYS,
    ON_WEEKDAYS,
    QUARTERS,
    SPANS,
    TIMES,
    ago,
    at,
    clock,
    digital_clock,
    digits,
    joined,
    number,
    on_date,
    within,
)
from aiayn_cli.corpora.demo_grammar.verbs import Verb

PERSONS = [noun for noun in NOUNS if noun.kind == "person"]
_NOUN = {noun.en: noun for noun in NOUNS}
_SOLD_BY_DOZENS = ("thing", "text", "snack", "dish", "clothes", "furniture")
_GENITIVES = tuple(of_name(text) for text in NAMES)
_NAMES = tuple(name(text) for text in NAMES)
_TO_PERSON = Preposition("to", "zu", ())


class PhraseSampler:
    """Draws phrases whose word combinations all belong to `allowed` splits."""

    def __init__(self, chance: Chance, allowed: tuple[str, ...]) -> None:
        self.chance = chance
        self._allowed = allowed
        self._subjects: dict[Verb, list[Noun]] = {}
        self._objects: dict[Verb, list[Noun]] = {}
        self._recipients: dict[Verb, list[Noun]] = {}
        self._after: dict[Preposition, list[Noun]] = {}
        self._adjectives: dict[Noun, list[Adjective]] = {}

    def _nouns(self, kinds: Iterable[str], combination: Callable[[Noun], Combination]) -> list[Noun]:
        return [noun for noun in NOUNS if noun.kind in kinds and split_of(combination(noun)) in self._allowed]

    def subjects(self, verb: Verb) -> list[Noun]:
        """List the nouns that may do this."""
        if verb not in self._subjects:
            self._subjects[verb] = self._nouns(verb.subjects, lambda noun: ("subject", noun.en, verb.key))
        return self._subjects[verb]

    def objects(self, verb: Verb) -> list[Noun]:
        """List the nouns to which this may be done."""
        if verb not in self._objects:
            self._objects[verb] = self._nouns(verb.objects, lambda noun: ("object", verb.key, noun.en))
        return self._objects[verb]

    def recipients(self, verb: Verb) -> list[Noun]:
        """List the nouns that may be given something."""
        if verb not in self._recipients:
            self._recipients[verb] = self._nouns(("person",), lambda noun: ("object", verb.key, noun.en))
        return self._recipients[verb]

    def after(self, preposition: Preposition) -> list[Noun]:
        """List the nouns that may follow this preposition."""
        if preposition not in self._after:
            found = self._nouns(preposition.kinds, lambda noun: ("preposition", preposition.en, noun.en))
            self._after[preposition] = found
        return self._after[preposition]

    def adjectives(self, noun: Noun) -> list[Adjective]:
        """List the adjectives that may describe this noun."""
        if noun not in self._adjectives:
            self._adjectives[noun] = [
                adjective
                for adjective in ADJECTIVES
                if noun.kind in adjective.kinds
                and noun.en not in adjective.never
                and split_of(("adjective", adjective.en, noun.en)) in self._allowed
            ]
        return self._adjectives[noun]

    def person(self, nouns: list[Noun], taken: Phrase | None = None, *, subject: bool = False) -> Phrase:
        """Draw a pronoun, a name or one of the nouns, and not the same person as `taken`; two only without `taken`."""
        kind = self.chance.weighted((("pronoun", 0.25), ("name", 0.22), ("both", 0.04), ("noun", 0.49)))
        if kind == "noun":
            return self.noun_phrase(self.chance.pick(nouns), subject=subject)
        if kind == "both" and taken is None:
            first = self.chance.pick(_NAMES)
            if self.chance.of(0.4):
                second = self.noun_phrase(self.chance.pick(nouns), simple=True)
                owner = self.chance.pick(POSSESSIVES) if second.noun.family else THE  # not "Anna and Paul's uncle"
                return Both(first, replace(second, determiner=owner))
            return Both(first, self.chance.pick([other for other in _NAMES if other != first]))
        options = PRONOUNS if kind == "pronoun" else _NAMES
        return self.chance.pick([phrase for phrase in options if taken is None or not _overlap(phrase, taken)])

    def noun_phrase(self, noun: Noun, *, simple: bool = False, subject: bool = False) -> NounPhrase:
        """Draw number, determiner and adjectives; `simple` = singular and definite, `subject` = not bare."""
        plural = not (simple or noun.single) and bool(noun.de_plural) and self.chance.of(0.28)
        count = None
        if simple:
            determiner = self._possessive() if noun.family else THE
        elif not noun.de_plural:
            determiner = THE if subject else self.chance.weighted(((THE, 0.4), (BARE, 0.5), (THIS, 0.1)))
        elif plural:
            determiner, count = self._plural_determiner(noun, subject=subject)
        elif noun.family:
            determiner = self._possessive() if self.chance.of(0.9) else THE
        else:
            determiner = self.chance.weighted(((THE, 0.5), (A, 0.24), (THIS, 0.1), (EVERY, 0.03), (MANY, 0.13)))
            if determiner is MANY:  # stands for an owner here
                determiner = self._possessive() if noun.owned else THE
        return NounPhrase(noun, plural, determiner, self._described(noun), count)

    def _plural_determiner(self, noun: Noun, *, subject: bool) -> tuple[Determiner, tuple[str, str] | None]:
        kind = self.chance.weighted((("the", 0.42), ("owner", 0.18), ("these", 0.1), ("many", 0.08), ("count", 0.22)))
        if kind == "count":
            large = (
                not subject and noun.kind in _SOLD_BY_DOZENS and self.chance.of(0.3)
            )  # no sentence opens with digits
            count = digits(self.chance.between(13, 99)) if large else number(self.chance.between(2, 12))
            return (THE if self.chance.of(0.2) else BARE), count
        if kind == "owner" or noun.family:
            return (self._possessive() if noun.owned else THE), None
        if kind == "the" and not subject and noun.kind != "person" and self.chance.of(0.35):
            return BARE, None
        return {"the": THE, "these": THIS, "many": MANY}[kind], None

    def _possessive(self) -> Determiner:
        return self.chance.pick(POSSESSIVES) if self.chance.of(0.7) else self.chance.pick(_GENITIVES)

    def _described(self, noun: Noun) -> tuple[Adjective, ...]:
        if not self.chance.of(0.38):
            return ()
        first = self.chance.pick(self.adjectives(noun))
        if first.en in OPINIONS_AND_SIZES and self.chance.of(0.25):
            second = [adjective for adjective in self.adjectives(noun) if adjective.en in AGES_AND_COLOURS]
            return (first, self.chance.pick(second)) if second else (first,)
        return (first,)

    def at_place(self) -> Prepositional:
        """Draw where one is: im Garten, am Bahnhof, auf dem Markt."""
        place = self.chance.pick(PLACES)
        return Prepositional(Preposition(place.en_at, place.de_at, ()), Case.DAT, self._place_phrase(place))

    def to_place(self, who: Phrase) -> Prepositional:
        """Draw where or to whom `who` goes: in den Garten, zum Bahnhof, zu meiner Mutter."""
        if self.chance.of(0.2):
            noun = self.chance.pick([noun for noun in PERSONS if noun not in who.nouns()])
            return Prepositional(_TO_PERSON, Case.DAT, self.noun_phrase(noun, simple=True))
        place = self.chance.pick(PLACES)
        case = Case.DAT if place.to_dative else Case.ACC
        return Prepositional(Preposition(place.en_to, place.de_to, ()), case, self._place_phrase(place))

    def _place_phrase(self, place: Place) -> NounPhrase:
        noun = _NOUN[place.noun]
        determiner = THE
        if self.chance.of(0.25):
            determiner = self._possessive() if noun.owned else A
        adjectives = (self.chance.pick(self.adjectives(noun)),) if self.chance.of(0.25) else ()
        return NounPhrase(noun, determiner=determiner, adjectives=adjectives)

    def beside(self, preposition: Preposition, case: Case, kinds: tuple[str, ...] = ()) -> Prepositional:
        """Draw a prepositional phrase with a noun, of these kinds if any are given."""
        noun = self.chance.pick([noun for noun in self.after(preposition) if not kinds or noun.kind in kinds])
        return Prepositional(preposition, case, self.noun_phrase(noun, simple=self.chance.of(0.5), subject=True))

    def with_person(self, preposition: Preposition, case: Case, taken: Phrase) -> Prepositional:
        """Draw "with", "without" or "for" somebody who is not `taken`."""
        return Prepositional(preposition, case, self.person(self.after(preposition), taken))

    def city(self) -> tuple[str, str]:
        """Draw a city in both languages."""
        return self.chance.pick(CITIES)

    def time(self, tense: Tense) -> Fixed:
        """Draw a time that is past or to come (Tense.PAST or Tense.FUTURE)."""
        kind = self.chance.weighted(
            (("day", 0.3), ("fixed", 0.28), ("day and clock", 0.1), ("clock", 0.12), ("date", 0.1), ("distance", 0.1))
        )
        if kind == "fixed":
            return self.chance.pick(TIMES[tense])
        if kind == "clock":
            return at(self.clock())
        if kind == "date":
            return on_date(self.chance.between(1, 28), self.chance.between(0, 11))
        if kind == "distance":
            count, span = number(self.chance.between(2, 12)), self.chance.pick(SPANS)
            return ago(count, span) if tense is Tense.PAST else within(count, span)
        day = self.chance.pick(DAYS[tense] if self.chance.of(0.6) else ON_WEEKDAYS)
        return joined(day, at(self.clock())) if kind == "day and clock" else day

    def clock(self) -> tuple[str, str]:
        """Draw a clock time, in words or in digits."""
        if self.chance.of(0.65):
            return clock(self.chance.between(1, 12), self.chance.pick(CLOCK_MINUTES))
        return digital_clock(self.chance.between(8, 20), self.chance.pick(QUARTERS))


def may_be_denied(subject: Phrase) -> bool:
    """Tell whether a negation has one meaning with this subject: not with "every child", "three dogs"."""
    return subject.definite and not (isinstance(subject, NounPhrase) and subject.count)


def _overlap(first: Phrase, second: Phrase) -> bool:
    """Tell whether both are the same, or both include the speaker (I and us), or one is part of the other."""
    if isinstance(second, Both):
        return first in (second.first, second.second)
    us = (Person.I, Person.WE)
    return first == second or (first.person in us and second.person in us)
