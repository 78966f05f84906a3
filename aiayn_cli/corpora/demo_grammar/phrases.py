"""Noun phrases, names and pronouns of the built-in corpus, in English and German.

Every phrase says what it is in both languages; German asks for a case. Combinations are the word pairs by which the
corpus is split (heldout): ("adjective", "red", "car").
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from aiayn_cli.corpora.demo_grammar.conjugation import Person
from aiayn_cli.corpora.demo_grammar.determiners import BARE, KEIN, THE, A, Case, Determiner
from aiayn_cli.corpora.demo_grammar.lexicon import Adjective, Noun

Combination = tuple[str, str, str]  # kind, first lemma, second lemma (both English)


@dataclass(frozen=True)
class Pronoun:
    """A personal pronoun."""

    subject: str
    object: str
    de: tuple[str, str, str]  # by case
    person: Person
    definite: bool = True
    relative: None = None

    def english(self, case: Case) -> str:
        """Say it in English; only the subject differs."""
        return self.subject if case is Case.NOM else self.object

    def german(self, case: Case, *, negated: bool = False) -> str:
        """Say it in German."""
        return self.de[case]

    def nouns(self) -> tuple[Noun, ...]:
        """Name the nouns that agree with a verb: none."""
        return ()

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside: none."""
        yield from ()


I = Pronoun("I", "me", ("ich", "mich", "mir"), Person.I)  # noqa: E741
YOU = Pronoun("you", "you", ("du", "dich", "dir"), Person.YOU)
HE = Pronoun("he", "him", ("er", "ihn", "ihm"), Person.HE)
SHE = Pronoun("she", "her", ("sie", "sie", "ihr"), Person.HE)
WE = Pronoun("we", "us", ("wir", "uns", "uns"), Person.WE)
THEY = Pronoun("they", "them", ("sie", "sie", "ihnen"), Person.THEY)
PRONOUNS = (I, YOU, HE, SHE, WE, THEY)
IT = Pronoun("it", "it", ("es", "es", "ihm"), Person.HE)  # only of the weather and the time
WHO = Pronoun("who", "who", ("wer", "wen", "wem"), Person.HE)
WHAT = Pronoun("what", "what", ("was", "was", ""), Person.HE)


@dataclass(frozen=True)
class Name(Pronoun):
    """A person's name; agrees like a pronoun, stands like a noun."""


def name(text: str) -> Name:
    """Make the phrase of a name, which is alike in all cases and both languages."""
    return Name(text, text, (text, text, text), Person.HE)


class RelativeClause(Protocol):
    """A relative clause on a noun phrase (clauses.Relative)."""

    def english(self) -> str:
        """Say it in English."""

    def german(self) -> str:
        """Say it in German, without commas around it."""

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""


@dataclass(frozen=True)
class NounPhrase:
    """A noun with what stands before it and perhaps a relative clause."""

    noun: Noun
    plural: bool = False
    determiner: Determiner = THE
    adjectives: tuple[Adjective, ...] = ()
    count: tuple[str, str] | None = None  # English and German, after the determiner
    relative: RelativeClause | None = None

    @property
    def person(self) -> Person:
        """Agreement with the verb."""
        return Person.THEY if self.plural else Person.HE

    @property
    def definite(self) -> bool:
        """Whether it stands before adverbials in German."""
        return self.determiner.definite

    @property
    def takes_kein(self) -> bool:
        """Whether a negation in German is said on it: einen Hund, Hunde, but not zwei Hunde."""
        return self.determiner in (A, BARE) and self.count is None

    @property
    def column(self) -> int:
        """Column of the tables of endings."""
        return 3 if self.plural else "mfn".index(self.noun.gender)

    def english(self, case: Case) -> str:
        """Say it in English, relative clause included."""
        words = [adjective.en for adjective in self.adjectives]
        words.append((self.noun.en_plural or plural(self.noun.en)) if self.plural else self.noun.en)
        if self.count:
            words.insert(0, self.count[0])
        determiner = self.determiner.en_plural if self.plural else self.determiner.en
        if determiner:
            words.insert(0, "an" if determiner == "a" and words[0][0] in "aeiou" else determiner)
        if self.relative:
            words.append(self.relative.english())
        return " ".join(words)

    def german(self, case: Case, *, negated: bool = False) -> str:
        """Say it in German without its relative clause; `negated` turns ein and no article into kein."""
        determiner = KEIN if negated and self.takes_kein else self.determiner
        column = self.column
        article = determiner.de + determiner.endings[case][column]
        words = [article] if article else []
        if self.count:
            words.append(self.count[1])
        if self.adjectives:
            ending = determiner.adjective_endings[case][column]
            words += [(adjective.stem or adjective.de) + ending for adjective in self.adjectives]
        words.append(self._german_noun(case))
        return " ".join(words)

    def _german_noun(self, case: Case) -> str:
        if not self.plural:
            return self.noun.oblique if self.noun.oblique and case is not Case.NOM else self.noun.de
        form = self.noun.de_plural
        return form + "n" if case is Case.DAT and not form.endswith(("n", "s")) else form

    def nouns(self) -> tuple[Noun, ...]:
        """Name the noun that goes with a verb."""
        return (self.noun,)

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        for adjective in self.adjectives:
            yield ("adjective", adjective.en, self.noun.en)
        if self.relative:
            yield from self.relative.combinations()


@dataclass(frozen=True)
class Both:
    """Two phrases joined by "and"."""

    first: "Pronoun | NounPhrase"
    second: "Pronoun | NounPhrase"
    person: Person = Person.THEY
    definite: bool = True
    relative: None = None

    def english(self, case: Case) -> str:
        """Say it in English."""
        return f"{self.first.english(case)} and {self.second.english(case)}"

    def german(self, case: Case, *, negated: bool = False) -> str:
        """Say it in German."""
        return f"{self.first.german(case)} und {self.second.german(case)}"

    def nouns(self) -> tuple[Noun, ...]:
        """Name the nouns that go with a verb."""
        return self.first.nouns() + self.second.nouns()

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        yield from self.first.combinations()
        yield from self.second.combinations()


Phrase = Pronoun | NounPhrase | Both


def plural(noun: str) -> str:
    """Spell the regular English plural: dogs, churches, libraries."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "sh", "ch", "x")) else "s")
