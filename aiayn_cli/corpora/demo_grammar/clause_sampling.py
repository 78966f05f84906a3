"""Random clauses of the built-in corpus: a verb, what it needs, and what makes sense beside it."""

from collections.abc import Sequence

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed
from aiayn_cli.corpora.demo_grammar.chance import Chance
from aiayn_cli.corpora.demo_grammar.clauses import Clause, Part
from aiayn_cli.corpora.demo_grammar.conjugation import Modal, Person, Tense
from aiayn_cli.corpora.demo_grammar.copula_sampling import CopulaSampler
from aiayn_cli.corpora.demo_grammar.determiners import Case
from aiayn_cli.corpora.demo_grammar.lexicon import (
    BY_VEHICLE,
    FOR,
    MANNERS,
    NEXT_TO,
    ON,
    PREPOSITIONS,
    UNDER,
    WITH,
    WITHOUT,
)
from aiayn_cli.corpora.demo_grammar.phrase_sampling import PhraseSampler, may_be_denied
from aiayn_cli.corpora.demo_grammar.phrases import NounPhrase, Phrase
from aiayn_cli.corpora.demo_grammar.times import NOW, OFTEN, REGULARLY
from aiayn_cli.corpora.demo_grammar.verbs import VERBS, Verb
from aiayn_cli.corpora.demo_grammar.wish import Wish

_BY_NAME = {preposition.en: preposition for preposition in PREPOSITIONS}
_LASTING = tuple(verb for verb in VERBS if verb.aspect == "action")
_VERBS = {
    None: VERBS,
    "past": VERBS,
    "now": tuple(verb for verb in VERBS if verb.aspect != "chance"),
    "habit": tuple(verb for verb in VERBS if verb.aspect != "deed"),
    "future": tuple(verb for verb in VERBS if verb.aspect != "state"),
}
_PERCEIVED = ("see", "hear", "find")
_LIVING = ("person", "animal")


class ClauseSampler:
    """Draws clauses whose word combinations all belong to `allowed` splits."""

    def __init__(self, chance: Chance, allowed: tuple[str, ...]) -> None:
        self.chance = chance
        self.phrases = PhraseSampler(chance, allowed)
        self.copula = CopulaSampler(chance, self.phrases)

    def clause(
        self, wish: Wish, *, subject: Phrase | None = None, what: Phrase | None = None, verb: Verb | None = None
    ) -> Clause:
        """Draw a clause; with `subject` or `what`, a verb that goes with this subject or object."""
        verbs = [verb] if verb else self._verbs(wish, subject, what)
        may_be = verb is None and what is None and wish.be and not wish.lasting and wish.when != "future"
        if not verbs or (may_be and self.chance.of(0.16)):
            return self.copula.clause(wish, subject)
        verb = self.chance.pick(verbs)
        who = subject or self._subject(verb, what)
        tense, modal = self._tense(verb, who, wish)
        what = what or (self._object(verb, who) if verb.objects else None)
        recipient = self.phrases.person(self.phrases.recipients(verb), who) if verb.recipient else None
        complement = self._goal(verb, who)
        time = self._time(verb, tense, modal, wish)
        negated = wish.negation and self._negated(who, what, recipient, time)
        complement, company, manner, place = self._additions(verb, who, what, complement, wish, negated=negated)
        if place and time and " at " in time.en:
            place = None
        time_first = wish.fronting and time is not None and not time.before_verb and self.chance.of(0.45)
        return Clause(
            who, verb, tense, what, recipient, complement, company, manner, place, time, time_first, modal, negated
        )

    def _verbs(self, wish: Wish, subject: Phrase | None, what: Phrase | None) -> Sequence[Verb]:
        """List the verbs that go with a subject and an object, where they are given."""
        verbs = _LASTING if wish.lasting else _VERBS[wish.when]
        if subject is None and what is None:
            return verbs
        return [
            verb
            for verb in verbs
            if (subject is None or self._may_do(verb, subject)) and (what is None or self._may_suffer(verb, what))
        ]

    def _may_do(self, verb: Verb, subject: Phrase) -> bool:
        nouns = subject.nouns()
        return all(noun in self.phrases.subjects(verb) for noun in nouns) if nouns else "person" in verb.subjects

    def _may_suffer(self, verb: Verb, what: Phrase) -> bool:
        return bool(verb.objects) and all(noun in self.phrases.objects(verb) for noun in what.nouns())

    def _subject(self, verb: Verb, what: Phrase | None) -> Phrase:
        taken = what.nouns() if what else ()
        nouns = [noun for noun in self.phrases.subjects(verb) if noun not in taken]
        if "person" in verb.subjects:
            return self.phrases.person(nouns, subject=True)
        return self.phrases.noun_phrase(self.chance.pick(nouns), subject=True)

    def _object(self, verb: Verb, who: Phrase) -> Phrase:
        nouns = [noun for noun in self.phrases.objects(verb) if noun not in who.nouns()]
        noun = self.chance.pick(nouns)
        if noun.kind == "person" and self.chance.of(0.5):
            return self.phrases.person(nouns, who)
        return self.phrases.noun_phrase(noun)

    def _tense(self, verb: Verb, who: Phrase, wish: Wish) -> tuple[Tense, Modal | None]:
        """Draw tense and modal; "they read" and "they put" are left to the past, being spelt alike."""
        now = Tense.PROGRESSIVE if verb.aspect in ("action", "deed") else Tense.PRESENT
        ambiguous = verb.en == verb.en_past and who.person is not Person.HE
        modal = self._modal(verb, who, wish)
        if modal is not None:
            past = wish.when == "past" or (wish.when is None and self.chance.of(0.35))
            return (Tense.PAST if past and modal is not Modal.SHOULD else Tense.PRESENT), modal
        if wish.when is not None:
            habit = now if ambiguous else Tense.PRESENT
            return {"past": Tense.PAST, "future": Tense.FUTURE, "habit": habit, "now": now}[wish.when], None
        shares = {
            "action": ((now, 0.27), (Tense.PRESENT, 0.18), (Tense.PAST, 0.35), (Tense.FUTURE, 0.2)),
            "deed": ((now, 0.35), (Tense.PAST, 0.45), (Tense.FUTURE, 0.2)),
            "event": ((now, 0.35), (Tense.PAST, 0.45), (Tense.FUTURE, 0.2)),
            "chance": ((now, 0.15), (Tense.PAST, 0.6), (Tense.FUTURE, 0.25)),
            "state": ((now, 0.7), (Tense.PAST, 0.3)),
        }[verb.aspect]
        tense = self.chance.weighted(shares)
        return (now if tense is Tense.PRESENT and ambiguous else tense), None

    def _modal(self, verb: Verb, who: Phrase, wish: Wish) -> Modal | None:
        living = not isinstance(who, NounPhrase) or who.noun.kind in _LIVING
        if not wish.modal or not living or verb.aspect == "state" or not self.chance.of(0.2):
            return None
        if verb.aspect in ("event", "chance"):
            return Modal.CAN if verb.en in _PERCEIVED else None
        if "hobby" in verb.adds and wish.when in (None, "now") and self.chance.of(0.35):
            return Modal.GLADLY
        if wish.when == "past":
            return self.chance.pick((Modal.CAN, Modal.MUST, Modal.WANT))
        return self.chance.pick((Modal.CAN, Modal.MUST, Modal.WANT, Modal.SHOULD))

    def _time(self, verb: Verb, tense: Tense, modal: Modal | None, wish: Wish) -> Fixed | None:
        if not wish.time or verb.aspect == "state" or modal is Modal.GLADLY:
            return None
        if modal is not None:
            when = Tense.PAST if tense is Tense.PAST else Tense.FUTURE
            return self.phrases.time(when) if self.chance.of(0.4) else None
        if tense is Tense.PROGRESSIVE:
            return self.chance.pick(NOW) if self.chance.of(0.35) else None
        if tense is Tense.PRESENT:
            if verb.aspect == "event" and self.chance.of(0.5):
                return None
            return self.chance.pick(OFTEN) if self.chance.of(0.5) else self.chance.pick(REGULARLY)
        return self.phrases.time(tense) if self.chance.of(0.55) else None

    def _negated(self, who: Phrase, what: Phrase | None, recipient: Phrase | None, time: Fixed | None) -> bool:
        """Draw a negation where it has one meaning: not of "every child" or "three books", not of "often"."""
        if time is not None and (time.before_verb or time in REGULARLY):
            return False
        if not may_be_denied(who) or (recipient is not None and not recipient.definite):
            return False
        if isinstance(what, NounPhrase) and (what.count or not (what.definite or what.takes_kein)):
            return False
        return self.chance.of(0.16)

    def _goal(self, verb: Verb, who: Phrase) -> Part | None:
        if not verb.goal:
            return None
        goal = self.chance.pick(verb.goal)
        if goal == "at":
            return self.phrases.at_place()
        if goal == "to":
            return self.phrases.to_place(who)
        if goal == "at home":
            return Fixed("at home", "zu Hause")
        if goal == "home":
            return Fixed("home", "nach Hause")
        if goal == "onto":
            return self.phrases.beside(self.chance.pick((ON, ON, UNDER, NEXT_TO)), Case.ACC, ("furniture",))
        if goal in _BY_NAME:
            return self.phrases.beside(_BY_NAME[goal], Case.DAT, self._spots(who))
        if goal == "from city" and self.chance.of(0.5):
            return None
        en, de = self.phrases.city()
        preposition = {"in city": "in", "to city": "nach", "from city": "aus"}[goal]
        return Fixed(f"{goal.split()[0]} {en}", f"{preposition} {de}")

    @staticmethod
    def _spots(who: Phrase) -> tuple[str, ...]:
        kind = who.noun.kind if isinstance(who, NounPhrase) else "person"
        return ("building",) if kind in ("vehicle", "transport") else ("furniture",) if kind not in _LIVING else ()

    def _additions(
        self, verb: Verb, who: Phrase, what: Phrase | None, complement: Part | None, wish: Wish, *, negated: bool
    ) -> tuple[Part | None, Part | None, Fixed | None, Part | None]:
        """Draw at most one of: for whom (a complement), with whom or by what, how, where."""
        company: Part | None = None
        manner: Fixed | None = None
        place: Part | None = None
        kind = self.chance.pick(verb.adds) if verb.adds and wish.additions and self.chance.of(0.5) else ""
        if kind == "at" and not negated:
            place = self.phrases.at_place()
        elif kind == "for" and complement is None and not negated:
            complement = self.phrases.with_person(FOR, Case.ACC, who)
        elif kind == "by":
            company = Fixed(*self.chance.pick(BY_VEHICLE))
        elif kind == "with":
            preposition, case = (WITH, Case.DAT) if self.chance.of(0.7) else (WITHOUT, Case.ACC)
            company = self.phrases.with_person(preposition, case, who)
        elif kind == "manner" and not negated:
            manner = Fixed(*self.chance.pick(MANNERS))
        return complement, company, manner, place
