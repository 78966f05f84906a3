"""Clauses of the built-in corpus: verb position, order of objects and adverbials, negation, relative clauses."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed, Prepositional, after
from aiayn_cli.corpora.demo_grammar.conjugation import EnglishVerb, GermanVerb, Modal, Tense, english_verb, german_verb
from aiayn_cli.corpora.demo_grammar.determiners import DEFINITE, Case
from aiayn_cli.corpora.demo_grammar.lexicon import Adjective
from aiayn_cli.corpora.demo_grammar.phrases import Combination, Name, NounPhrase, Phrase, Pronoun
from aiayn_cli.corpora.demo_grammar.verbs import BY_KEY, Verb


class Gap(Enum):
    """What a question or relative clause has moved to its front."""

    SUBJECT = 0
    OBJECT = 1


class Order(Enum):
    """Where the German finite verb stands."""

    SECOND = 0
    FIRST = 1
    LAST = 2


@dataclass(frozen=True)
class Predicate:
    """What "is" says of its subject: an adjective, perhaps compared with something."""

    adjective: Adjective
    than: Phrase | None = None

    def english(self) -> str:
        """Say it in English: "tired", "older than the car"."""
        if self.than is None:
            return self.adjective.en
        return f"{self.adjective.en_comparative} than {self.than.english(Case.ACC)}"

    def german(self) -> str:
        """Say it in German without what it is compared with: "müde", "älter"."""
        return self.adjective.de if self.than is None else self.adjective.de_comparative

    def german_comparison(self) -> str:
        """Say what it is compared with, which follows even a last verb: "als das Auto", or nothing."""
        return "" if self.than is None else f"als {self.than.german(Case.NOM)}"

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside the compared phrase."""
        if self.than is not None:
            for noun in self.than.nouns():
                yield ("adjective", self.adjective.en, noun.en)
            yield from self.than.combinations()


Part = Fixed | Prepositional | Predicate


@dataclass(frozen=True)
class Clause:
    """A subject, a verb and what goes with it."""

    subject: Phrase
    verb: Verb
    tense: Tense
    object: Phrase | None = None  # its case or preposition is the verb's
    recipient: Phrase | None = None
    complement: Part | None = None  # predicate, direction, spot, for whom: next to the German verb's last place
    company: Part | None = None  # with whom, by what
    manner: Fixed | None = None
    place: Part | None = None
    time: Fixed | None = None
    time_first: bool = False
    modal: Modal | None = None
    negated: bool = False

    def english(self, front: str = "", *, inverted: bool = False, gap: Gap | None = None) -> str:
        """Say it in English after `front` (a question word, a conjunction), without punctuation."""
        verb = self._english_verb(inverted)
        subject = "" if gap is Gap.SUBJECT else self.subject.english(Case.NOM)
        words = [front, self.time.english() if self.time and self.time_first else ""]
        words += [verb.auxiliary, subject] if inverted else [subject, verb.auxiliary]
        if self.negated:
            words.append("not")
        if self.time and self.time.before_verb:
            words.append(self.time.english())
        words.append(verb.main)
        if self.recipient:
            words.append(self.recipient.english(Case.DAT))
        words += self._english_object(gap)
        words += [part.english() for part in (self.complement, self.company, self.manner, self.place) if part]
        if self.time and not self.time_first and not self.time.before_verb:
            words.append(self.time.english())
        return " ".join(word for word in words if word).replace("can not", "cannot")

    def _english_verb(self, inverted: bool) -> EnglishVerb:
        person = self.subject.person
        return english_verb(self.verb, self.tense, person, modal=self.modal, negated=self.negated, inverted=inverted)

    def _english_object(self, gap: Gap | None) -> tuple[str, ...]:
        verb = self.verb
        if self.object is None or gap is Gap.OBJECT:
            return (verb.particle, verb.en_preposition)
        words = self.object.english(Case.ACC)
        if isinstance(self.object, Pronoun) and not isinstance(self.object, Name):
            return (words, verb.particle) if not verb.en_preposition else (verb.en_preposition, words)
        return (verb.particle, verb.en_preposition, words)

    def german(self, order: Order, front: str = "", *, gap: Gap | None = None) -> str:
        """Say it in German, without punctuation around it.

        Args:
            order: of the finite verb.
            front: what is before it (SECOND) or opens the clause (LAST); by default the subject or an early time.
            gap: what `front` already says.
        """
        verb = self._german_verb()
        subject = "" if gap is Gap.SUBJECT else self.german_subject()
        time = self.time.german() if self.time else ""
        if order is Order.SECOND and not front:
            if self.time_first:
                front, time = time, ""
            else:
                front, subject = subject, ""
        middle = self._german_middle(subject, time, gap)
        words = [front, *middle, verb.final] if order is Order.LAST else [front, verb.finite, *middle, verb.second]
        if isinstance(self.complement, Predicate):
            words.append(self.complement.german_comparison())
        text = " ".join(word for word in words if word)
        if self.object is not None and self.object.relative is not None:
            text += f", {self.object.relative.german()}"
        return text

    def german_subject(self) -> str:
        """Say the subject with its relative clause between commas."""
        words = self.subject.german(Case.NOM)
        return f"{words}, {self.subject.relative.german()}," if self.subject.relative else words

    def _german_verb(self) -> GermanVerb:
        return german_verb(self.verb, self.tense, self.subject.person, modal=self.modal)

    def _german_middle(self, subject: str, time: str, gap: Gap | None) -> list[str]:
        """Order the middle field: pronouns, definite objects, time, nicht, manner, place, indefinite objects, rest."""
        early: list[str] = []
        late: list[str] = []
        rest: list[str] = []
        gladly = self.modal is Modal.GLADLY
        no_object = False
        if self.recipient is not None:
            (early if self.recipient.definite else late).append(self.recipient.german(Case.DAT))
        if self.object is not None and gap is not Gap.OBJECT:
            if self.verb.de_preposition:
                rest.append(after(self.verb.de_preposition, self.object, self.object_case))
            else:
                takes_kein = isinstance(self.object, NounPhrase) and self.object.takes_kein
                no_object = self.negated and takes_kein and not gladly
                words = self.object.german(self.object_case, negated=no_object)
                (early if self.object.definite else late).append(words)
        if self.complement is not None:
            rest.append(self.complement.german())
        nicht = ["nicht"] if self.negated and not no_object else []
        adverbs = ["gern"] if gladly else []
        adverbs += [part.german() for part in (self.manner, self.company, self.place) if part]
        return [subject, *early, time, *nicht, *adverbs, *late, *rest]

    @property
    def object_case(self) -> Case:
        """The case that the verb gives its object."""
        return Case.DAT if self.verb.dative else Case.ACC

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs by which the corpus is split."""
        if BY_KEY.get(self.verb.key) is self.verb:
            for noun in self.subject.nouns():
                yield ("subject", noun.en, self.verb.key)
            for phrase in (self.object, self.recipient):
                for noun in phrase.nouns() if phrase else ():
                    yield ("object", self.verb.key, noun.en)
        if isinstance(self.complement, Predicate):
            for noun in self.subject.nouns():
                yield ("adjective", self.complement.adjective.en, noun.en)
        for part in (self.subject, self.object, self.recipient, self.complement, self.company, self.place):
            if part is not None:
                yield from part.combinations()


@dataclass(frozen=True)
class Relative:
    """A relative clause; in its clause the antecedent (without relative clause) stands where it belongs."""

    clause: Clause
    gap: Gap  # SUBJECT or OBJECT

    def english(self) -> str:
        """Say it in English: "who is working", "that Anna is waiting for"."""
        who = self.gap is Gap.SUBJECT and self._antecedent.noun.kind == "person"
        return self.clause.english("who" if who else "that", gap=self.gap)

    def german(self) -> str:
        """Say it in German: "der arbeitet", "auf den Anna wartet", "denen Anna hilft"."""
        case = Case.NOM if self.gap is Gap.SUBJECT else self.clause.object_case
        column = self._antecedent.column
        pronoun = "denen" if case is Case.DAT and column == 3 else DEFINITE[case][column]
        preposition = self.clause.verb.de_preposition if self.gap is Gap.OBJECT else ""
        return self.clause.german(Order.LAST, f"{preposition} {pronoun}".strip(), gap=self.gap)

    @property
    def _antecedent(self) -> NounPhrase:
        phrase = self.clause.subject if self.gap is Gap.SUBJECT else self.clause.object
        assert isinstance(phrase, NounPhrase)
        return phrase

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        yield from self.clause.combinations()
