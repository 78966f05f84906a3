"""Sentences of the built-in corpus: statements, questions, complex and compound sentences, with their punctuation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from aiayn_cli.corpora.demo_grammar.clauses import Clause, Gap, Order
from aiayn_cli.corpora.demo_grammar.determiners import Case
from aiayn_cli.corpora.demo_grammar.phrases import Combination

Pair = tuple[str, str]  # English, German


class Sentence(Protocol):
    """Anything that can be said as one sentence."""

    def english(self) -> str:
        """Say it in English, with capital and full stop or question mark."""

    def german(self) -> str:
        """Say it in German, with capital and full stop or question mark."""

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs by which the corpus is split."""


@dataclass(frozen=True)
class Statement:
    """One main clause; with "?" it asks for its subject: "Who is singing?"."""

    clause: Clause
    mark: str = "."

    def english(self) -> str:
        """Say it in English."""
        return _finish(self.clause.english(), self.mark)

    def german(self) -> str:
        """Say it in German."""
        return _finish(self.clause.german(Order.SECOND), self.mark)

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        return self.clause.combinations()


@dataclass(frozen=True)
class YesNoQuestion:
    """A question that opens with the verb."""

    clause: Clause

    def english(self) -> str:
        """Say it in English."""
        return _finish(self.clause.english(inverted=True), "?")

    def german(self) -> str:
        """Say it in German."""
        return _finish(self.clause.german(Order.FIRST), "?")

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        return self.clause.combinations()


@dataclass(frozen=True)
class WordQuestion:
    """A question for the object (WHO or WHAT in the clause) or, with `adverb`, for where, when or why."""

    clause: Clause
    adverb: Pair | None = None

    def english(self) -> str:
        """Say it in English: "Who is Anna waiting for?"."""
        if self.adverb:
            return _finish(self.clause.english(self.adverb[0], inverted=True), "?")
        assert self.clause.object is not None
        return _finish(self.clause.english(self.clause.object.english(Case.ACC), inverted=True, gap=Gap.OBJECT), "?")

    def german(self) -> str:
        """Say it in German: "Auf wen wartet Anna?"."""
        clause = self.clause
        if self.adverb:
            return _finish(clause.german(Order.SECOND, self.adverb[1]), "?")
        assert clause.object is not None
        front = f"{clause.verb.de_preposition} {clause.object.german(clause.object_case)}".strip()
        return _finish(clause.german(Order.SECOND, front, gap=Gap.OBJECT), "?")

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        return self.clause.combinations()


@dataclass(frozen=True)
class Complex:
    """A main clause and a subordinate one, whose German verb stands last."""

    main: Clause
    conjunction: Pair
    subordinate: Clause
    subordinate_first: bool = False

    def english(self) -> str:
        """Say it in English."""
        main, subordinate = self.main.english(), self.subordinate.english(self.conjunction[0])
        return _finish(f"{subordinate}, {main}" if self.subordinate_first else f"{main} {subordinate}", ".")

    def german(self) -> str:
        """Say it in German."""
        subordinate = self.subordinate.german(Order.LAST, self.conjunction[1])
        if self.subordinate_first:  # it takes the first place, so the main clause goes on with its verb
            return _finish(f"{subordinate}, {self.main.german(Order.FIRST)}", ".")
        return _finish(f"{self.main.german(Order.SECOND)}, {subordinate}", ".")

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        yield from self.main.combinations()
        yield from self.subordinate.combinations()


@dataclass(frozen=True)
class Compound:
    """Two main clauses, joined by "and" or, after a comma, by "but"."""

    first: Clause
    second: Clause
    conjunction: Pair

    def english(self) -> str:
        """Say it in English."""
        return _finish(f"{self.first.english()}{self.conjunction[0]} {self.second.english()}", ".")

    def german(self) -> str:
        """Say it in German."""
        first, second = self.first.german(Order.SECOND), self.second.german(Order.SECOND)
        return _finish(f"{first}{self.conjunction[1]} {second}", ".")

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside."""
        yield from self.first.combinations()
        yield from self.second.combinations()


def _finish(text: str, mark: str) -> str:
    """Close an open comma (of a relative clause at the end), capitalise, add the mark."""
    text = text.removesuffix(",")
    return text[0].upper() + text[1:] + mark
