"""Random sentences of the built-in corpus: the mix of statements, questions, complex and compound sentences."""

from collections.abc import Callable
from dataclasses import replace

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed
from aiayn_cli.corpora.demo_grammar.chance import Chance
from aiayn_cli.corpora.demo_grammar.clause_sampling import ClauseSampler
from aiayn_cli.corpora.demo_grammar.clauses import Clause, Gap, Relative
from aiayn_cli.corpora.demo_grammar.conjugation import Tense
from aiayn_cli.corpora.demo_grammar.determiners import EVERY, THE, THIS, A
from aiayn_cli.corpora.demo_grammar.lexicon import NOUNS
from aiayn_cli.corpora.demo_grammar.phrase_sampling import PERSONS
from aiayn_cli.corpora.demo_grammar.phrases import IT, WHAT, WHO, NounPhrase
from aiayn_cli.corpora.demo_grammar.sentences import (
    Complex,
    Compound,
    Pair,
    Sentence,
    Statement,
    WordQuestion,
    YesNoQuestion,
)
from aiayn_cli.corpora.demo_grammar.times import NOW, digits, number
from aiayn_cli.corpora.demo_grammar.verbs import ASK, BE, BELIEVE, COST, HOPE, KNOW_THAT, RAIN, SAY, SNOW, VERBS, Verb
from aiayn_cli.corpora.demo_grammar.wish import When, Wish, plain

_KINDS = (
    ("statement", 0.36),
    ("relative", 0.11),
    ("complex", 0.18),
    ("that", 0.07),
    ("compound", 0.05),
    ("yes or no", 0.06),
    ("who or what", 0.06),
    ("where", 0.02),
    ("when or why", 0.03),
    ("age", 0.025),
    ("price", 0.015),
    ("clock", 0.005),
    ("weather", 0.015),
)
_BECAUSE, _ALTHOUGH = ("because", "weil"), ("although", "obwohl")
_TENSES: tuple[When, ...] = ("now", "past", "future")
# Conjunction, when the main clause is and when the subordinate one, weight.
_COMPLEX: tuple[tuple[tuple[Pair, When, When], float], ...] = (
    ((_BECAUSE, "past", "past"), 0.1),
    ((_BECAUSE, "now", "now"), 0.08),
    ((_BECAUSE, "now", "past"), 0.06),
    ((_BECAUSE, "future", "now"), 0.06),
    ((_ALTHOUGH, "past", "past"), 0.06),
    ((_ALTHOUGH, "now", "now"), 0.05),
    ((_ALTHOUGH, "future", "now"), 0.04),
    ((("when", "wenn"), "habit", "habit"), 0.13),
    ((("when", "als"), "past", "past"), 0.13),
    ((("if", "wenn"), "future", "habit"), 0.11),
    ((("while", "während"), "now", "now"), 0.08),
    ((("before", "bevor"), "past", "past"), 0.1),
)
_WHITHER = {"to", "to city", "onto"}
_WHERE = {"at", "in city", "on", "behind"} | _WHITHER
_TRIES = 3


class SentenceSampler:
    """Draws sentences whose word combinations all belong to `allowed` splits."""

    def __init__(self, chance: Chance, allowed: tuple[str, ...]) -> None:
        self.chance = chance
        self.clauses = ClauseSampler(chance, allowed)
        self._makers: dict[str, Callable[[], Sentence]] = {
            "statement": self._statement,
            "relative": self._relative_sentence,
            "complex": self._complex,
            "that": self._that,
            "compound": self._compound,
            "yes or no": self._yes_or_no,
            "who or what": self._who_or_what,
            "where": self._where,
            "when or why": self._when_or_why,
            "age": lambda: Statement(self.clauses.copula.age()),
            "price": self._price,
            "clock": self._clock,
            "weather": lambda: Statement(self._weather(Wish())),
        }

    def sentence(self) -> Sentence:
        """Draw one sentence."""
        return self._makers[self.chance.weighted(_KINDS)]()

    def _statement(self) -> Sentence:
        return Statement(self.clauses.clause(Wish()))

    def _relative_sentence(self) -> Sentence:
        """Draw a statement whose subject or object carries a relative clause."""
        clause = self.clauses.clause(plain(time=True))
        if clause.time is not None and not clause.time.before_verb:
            clause = replace(clause, time_first=True)
        if isinstance(clause.object, NounPhrase) and _ends_with_object(clause) and self.chance.of(0.6):
            return Statement(replace(clause, object=self._with_relative(clause.object, clause.verb)))
        if isinstance(clause.subject, NounPhrase):
            return Statement(replace(clause, subject=self._with_relative(clause.subject, clause.verb)))
        return Statement(clause)

    def _with_relative(self, phrase: NounPhrase, used: Verb) -> NounPhrase:
        """Add a relative clause, with another verb than `used` if that comes easily."""
        if phrase.noun.family or phrase.determiner not in (THE, THIS, A, EVERY):
            phrase = replace(phrase, determiner=THE, count=None)
        wish = plain("now" if self.chance.of(0.5) else "past")
        has_object = any(phrase.noun in self.clauses.phrases.objects(verb) for verb in VERBS)
        gap = Gap.OBJECT if has_object and self.chance.of(0.5) else Gap.SUBJECT
        for _ in range(_TRIES):
            if gap is Gap.OBJECT:
                clause = self.clauses.clause(wish, what=phrase)
            else:
                clause = self.clauses.clause(wish, subject=phrase)
            if clause.verb is not used:
                break
        return replace(phrase, relative=Relative(clause, gap))

    def _complex(self) -> Sentence:
        """Draw a main and a subordinate clause whose tenses agree."""
        conjunction, main, other = self.chance.weighted(_COMPLEX)
        reason = conjunction in (_BECAUSE, _ALTHOUGH)
        first = self._part(main, lasting=not reason)
        if reason and self.chance.of(0.1):
            second = self._weather(plain(other))
        else:
            second = self._other_part(first, other, lasting=not reason)
        return Complex(first, conjunction, second, subordinate_first=self.chance.of(0.35))

    def _part(self, when: When, *, lasting: bool = False) -> Clause:
        """Draw a clause for a longer sentence, mostly short."""
        additions = self.chance.of(0.3)
        wish = plain(when)
        return self.clauses.clause(
            replace(wish, lasting=lasting, additions=additions, negation=not lasting, modal=not lasting)
        )

    def _other_part(self, first: Clause, when: When, *, lasting: bool = False) -> Clause:
        """Draw another clause, about somebody and something else if that comes easily."""
        for _ in range(_TRIES):
            part = self._part(when, lasting=lasting)
            shared = [noun for noun in part.subject.nouns() if noun in first.subject.nouns()]
            if part.verb is not first.verb and part.subject != first.subject and not shared:
                break
        return part

    def _that(self) -> Sentence:
        """Draw what somebody says, knows, believes, hopes or asks."""
        verb = self.chance.pick((SAY, BELIEVE, KNOW_THAT, HOPE, ASK))
        who = self.clauses.phrases.person(PERSONS, subject=True)
        main = Clause(who, verb, Tense.PROGRESSIVE if verb is ASK else Tense.PRESENT)
        when = self.chance.pick(_TENSES)
        wish = Wish(when=when, time=self.chance.of(0.4), fronting=False, additions=False)
        return Complex(main, ("whether", "ob") if verb is ASK else ("that", "dass"), self.clauses.clause(wish))

    def _compound(self) -> Sentence:
        when = self.chance.pick(_TENSES)
        first = self._part(when)
        conjunction = self.chance.pick(((" and", " und"), (", but", ", aber")))
        return Compound(first, self._other_part(first, when), conjunction)

    def _yes_or_no(self) -> Sentence:
        return YesNoQuestion(self.clauses.clause(Wish(negation=False, fronting=False)))

    def _who_or_what(self) -> Sentence:
        """Ask for the subject or the object."""
        wish = Wish(negation=False, fronting=False, be=False)
        if self.chance.of(0.4):
            return Statement(self.clauses.clause(wish, subject=WHO), "?")
        verb = self.chance.pick([verb for verb in VERBS if verb.objects])
        only_persons = verb.dative or bool(verb.de_preposition) or verb.objects == ("person",)
        person = only_persons or ("person" in verb.objects and self.chance.of(0.5))
        return WordQuestion(self.clauses.clause(wish, what=WHO if person else WHAT, verb=verb))

    def _where(self) -> Sentence:
        """Ask where something happens (wo) or goes (wohin)."""
        verb = self.chance.pick([verb for verb in VERBS if "at" in verb.adds or _WHERE.intersection(verb.goal)])
        wish = Wish(additions=False, negation=False, fronting=False, be=False)
        clause = replace(self.clauses.clause(wish, verb=verb), complement=None)
        return WordQuestion(clause, ("where", "wohin" if _WHITHER.intersection(verb.goal) else "wo"))

    def _when_or_why(self) -> Sentence:
        if self.chance.of(0.5):
            wish = Wish(when=self.chance.pick(("past", "future")), time=False, be=False, negation=False)
            return WordQuestion(self.clauses.clause(wish), ("when", "wann"))
        return WordQuestion(self.clauses.clause(Wish(time=False)), ("why", "warum"))

    def _price(self) -> Sentence:
        nouns = [noun for noun in NOUNS if noun.kind in COST.subjects]
        who = self.clauses.phrases.noun_phrase(self.chance.pick(nouns), simple=self.chance.of(0.5), subject=True)
        price = self.chance.between(2, 99)
        en, de = number(price) if price < 60 and self.chance.of(0.5) else digits(price)
        return Statement(Clause(who, COST, Tense.PRESENT, complement=Fixed(f"{en} euros", f"{de} Euro")))

    def _clock(self) -> Sentence:
        en, de = self.clauses.phrases.clock()
        return Statement(Clause(IT, BE, Tense.PRESENT, complement=Fixed(en, de)))

    def _weather(self, wish: Wish) -> Clause:
        """Draw rain or snow, perhaps in a city."""
        tenses = {"now": Tense.PROGRESSIVE, "past": Tense.PAST, "future": Tense.FUTURE, "habit": Tense.PRESENT}
        tense = tenses[wish.when or self.chance.pick(_TENSES)]
        time = None
        if wish.time and self.chance.of(0.7):
            time = self.chance.pick(NOW) if tense is Tense.PROGRESSIVE else self.clauses.phrases.time(tense)
        en, de = self.clauses.phrases.city()
        place = Fixed(f"in {en}", f"in {de}") if self.chance.of(0.5) else None
        verb = self.chance.pick((RAIN, SNOW))
        return Clause(IT, verb, tense, place=place, time=time, time_first=time is not None and self.chance.of(0.4))


def _ends_with_object(clause: Clause) -> bool:
    """Tell whether in German at most a verb parts the object from a relative clause at the end."""
    early_time = clause.time is None or clause.time_first
    return early_time and clause.complement is None and (clause.recipient is None or clause.recipient.definite)
