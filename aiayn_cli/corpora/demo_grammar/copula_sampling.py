"""Random clauses with "be" of the built-in corpus: what somebody is like, how old, where."""

from dataclasses import replace

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed
from aiayn_cli.corpora.demo_grammar.chance import Chance
from aiayn_cli.corpora.demo_grammar.clauses import Clause, Part, Predicate
from aiayn_cli.corpora.demo_grammar.conjugation import Tense
from aiayn_cli.corpora.demo_grammar.determiners import THE, A, Case
from aiayn_cli.corpora.demo_grammar.lexicon import (
    ADJECTIVES,
    BEHIND,
    CONTRASTS,
    IN_FRONT_OF,
    NEXT_TO,
    NOUNS,
    ON,
    PASSING,
    UNDER,
    Adjective,
)
from aiayn_cli.corpora.demo_grammar.phrase_sampling import PERSONS, PhraseSampler, may_be_denied
from aiayn_cli.corpora.demo_grammar.phrases import NounPhrase, Phrase
from aiayn_cli.corpora.demo_grammar.times import NOW, OFTEN, digits, number
from aiayn_cli.corpora.demo_grammar.verbs import BE
from aiayn_cli.corpora.demo_grammar.wish import Wish

_ON_FURNITURE = ("thing", "device", "clothes", "text", "press", "snack")
_AGES = {"child": (2, 14), "boy": (2, 14), "girl": (2, 14), "grandmother": (60, 99)}  # others: grown up


class CopulaSampler:
    """Draws clauses with "be" whose word combinations all belong to the splits of `phrases`."""

    def __init__(self, chance: Chance, phrases: PhraseSampler) -> None:
        self.chance = chance
        self.phrases = phrases

    def clause(self, wish: Wish, subject: Phrase | None = None) -> Clause:
        """Draw "the car is red", "Anna was older than Paul", "the key is on the table"; subject drawn if None."""
        who = subject or self._subject()
        tense = self._tense(wish, who)
        adjectives = self._adjectives(who)
        predicate: Predicate | None = None
        if adjectives and tense is not Tense.FUTURE and self.chance.of(0.7):
            adjective = self.chance.pick(adjectives)
            than = self._compared(adjective, who) if adjective.en_comparative and self.chance.of(0.2) else None
            predicate = Predicate(adjective, than)
        passing = predicate is None or (predicate.adjective.en in PASSING and predicate.than is None)
        time = self._time(tense) if wish.time and passing and self.chance.of(0.4) else None
        early = time is None or not time.before_verb
        return Clause(
            who,
            BE,
            tense,
            complement=predicate or self._where(who),
            time=time,
            time_first=wish.fronting and time is not None and early and self.chance.of(0.4),
            negated=wish.negation and early and may_be_denied(who) and self.chance.of(0.15),
        )

    def age(self) -> Clause:
        """Draw how old somebody is, in digits or words."""
        who = self.phrases.person(PERSONS, subject=True)
        low, high = _AGES.get(who.noun.en, (18, 70)) if isinstance(who, NounPhrase) else (2, 99)
        years = self.chance.between(low, high)
        en, de = number(years) if years < 60 and self.chance.of(0.7) else digits(years)
        return Clause(who, BE, Tense.PRESENT, complement=Fixed(f"{en} years old", f"{de} Jahre alt"))

    def _subject(self) -> Phrase:
        if self.chance.of(0.4):
            return self.phrases.person(PERSONS, subject=True)
        phrase = self.phrases.noun_phrase(self.chance.pick(NOUNS), subject=True)
        return replace(phrase, determiner=THE) if phrase.determiner is A else phrase

    def _tense(self, wish: Wish, who: Phrase) -> Tense:
        if wish.when is not None:
            return Tense.PAST if wish.when == "past" else Tense.PRESENT
        person = not who.nouns() or who.nouns()[0].kind == "person"
        if person and self.chance.of(0.1):
            return Tense.FUTURE
        return Tense.PAST if self.chance.of(0.35) else Tense.PRESENT

    def _adjectives(self, who: Phrase) -> list[Adjective]:
        """List what may be said of everyone in a phrase, but not what it says already, nor its contrary."""
        nouns = who.nouns()
        if not nouns:
            return [adjective for adjective in ADJECTIVES if "person" in adjective.kinds]
        said = [adjective.en for adjective in who.adjectives] if isinstance(who, NounPhrase) else []
        said += [en for group in CONTRASTS if set(group) & set(said) for en in group]
        return [
            adjective
            for adjective in self.phrases.adjectives(nouns[0])
            if adjective.en not in said and all(adjective in self.phrases.adjectives(noun) for noun in nouns[1:])
        ]

    def _compared(self, adjective: Adjective, who: Phrase) -> Phrase | None:
        nouns = who.nouns()
        kind = nouns[0].kind if nouns else "person"
        others = [
            noun
            for noun in NOUNS
            if noun.kind == kind and noun not in nouns and adjective in self.phrases.adjectives(noun)
        ]
        if not others:
            return None
        if kind == "person":
            return self.phrases.person(others, who)
        return self.phrases.noun_phrase(self.chance.pick(others), simple=True)

    def _where(self, who: Phrase) -> Part:
        """Draw a place that suits the subject."""
        kind = who.nouns()[0].kind if who.nouns() else "person"
        if kind == "person":
            goal = self.chance.weighted((("place", 0.6), ("city", 0.2), ("home", 0.2)))
            if goal == "city":
                en, de = self.phrases.city()
                return Fixed(f"in {en}", f"in {de}")
            return Fixed("at home", "zu Hause") if goal == "home" else self.phrases.at_place()
        if kind == "animal":
            return self.phrases.beside(self.chance.pick((ON, UNDER, BEHIND, NEXT_TO)), Case.DAT)
        if kind in ("vehicle", "transport"):
            return self.phrases.beside(self.chance.pick((BEHIND, NEXT_TO, IN_FRONT_OF)), Case.DAT, ("building",))
        if kind in _ON_FURNITURE:
            return self.phrases.beside(self.chance.pick((ON, ON, UNDER, NEXT_TO)), Case.DAT, ("furniture",))
        return Fixed("here", "hier")

    def _time(self, tense: Tense) -> Fixed:
        if tense is not Tense.PRESENT:
            return self.phrases.time(tense)
        return self.chance.pick(OFTEN) if self.chance.of(0.5) else self.chance.pick(NOW)
