"""Adverbials of the built-in corpus: fixed words and groups, and prepositional phrases with their contractions."""

from collections.abc import Iterator
from dataclasses import dataclass

from aiayn_cli.corpora.demo_grammar.determiners import THE, Case
from aiayn_cli.corpora.demo_grammar.lexicon import Preposition
from aiayn_cli.corpora.demo_grammar.phrases import Combination, NounPhrase, Phrase

CONTRACTIONS = {
    ("an", "dem"): "am",
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


@dataclass(frozen=True)
class Fixed:
    """An adverbial that is a word or fixed group: "yesterday", "at half past three", "home"."""

    en: str
    de: str
    before_verb: bool = False  # English "often", "never"

    def english(self) -> str:
        """Say it in English."""
        return self.en

    def german(self) -> str:
        """Say it in German."""
        return self.de

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside: none."""
        yield from ()


@dataclass(frozen=True)
class Prepositional:
    """A prepositional phrase; the preposition and an article may contract: im, ins, am, zum, zur, vom."""

    preposition: Preposition
    case: Case
    phrase: Phrase

    def english(self) -> str:
        """Say it in English."""
        return f"{self.preposition.en} {self.phrase.english(self.case)}"

    def german(self) -> str:
        """Say it in German."""
        return after(self.preposition.de, self.phrase, self.case)

    def combinations(self) -> Iterator[Combination]:
        """Name the word pairs inside; places have their own preposition, so only freely chosen ones count."""
        if self.preposition.kinds:
            for noun in self.phrase.nouns():
                yield ("preposition", self.preposition.en, noun.en)
        yield from self.phrase.combinations()


def after(preposition: str, phrase: Phrase, case: Case) -> str:
    """Put a German phrase after a preposition, contracted with an article where that is usual."""
    words = phrase.german(case)
    if isinstance(phrase, NounPhrase) and phrase.determiner is THE:
        article, _, rest = words.partition(" ")
        contraction = CONTRACTIONS.get((preposition, article))
        if contraction and phrase.relative is None:  # in dem Haus, das ...
            return f"{contraction} {rest}"
    return f"{preposition} {words}"
