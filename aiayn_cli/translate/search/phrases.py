"""Phrases that an output has to hold, and how far it is with them after each token."""

from collections.abc import Sequence
from dataclasses import dataclass

Phrase = tuple[int, ...]
Constraint = tuple[Phrase, ...]  # alternatives, met where one of them stands in one piece; none is empty


def phrase_tokens(constraints: Sequence[Constraint]) -> int:
    """The most tokens that phrases for some constraints take together."""
    return sum(max(map(len, alternatives)) for alternatives in constraints)


@dataclass(frozen=True)
class PhraseState:
    """How far one hypothesis is.

    Attributes:
        met: numbers of the constraints that it meets.
        begun: (constraint, alternative, tokens so far) of each phrase that its last tokens may be the start of.
        completed: the constraint that its last token completed, which the next one can undo; -1 = none.
        matched: its last tokens that belong to a phrase, whole or begun.
    """

    met: frozenset[int] = frozenset()
    begun: frozenset[tuple[int, int, int]] = frozenset()
    completed: int = -1
    matched: int = 0

    @property
    def bank(self) -> tuple[int, int]:
        """Constraints met, and tokens of the next one."""
        return len(self.met), self.matched if self.begun else 0


@dataclass(frozen=True)
class PhraseRules:
    """What one output has to hold.

    Attributes:
        constraints: each met by one of its alternatives.
        word_continuations: tokens that go on with the word before them, which undo a phrase that they follow.
    """

    constraints: tuple[Constraint, ...]
    word_continuations: frozenset[int]

    def after(self, state: PhraseState, token: int) -> PhraseState:
        """The state after one more token."""
        met = state.met
        if state.completed >= 0 and token in self.word_continuations:
            met = met - {state.completed}
        begun = {(c, a, n + 1) for c, a, n in state.begun if c not in met and self.constraints[c][a][n] == token}
        begun |= {
            (c, a, 1)
            for c, alternatives in enumerate(self.constraints)
            if c not in met
            for a, phrase in enumerate(alternatives)
            if phrase[0] == token
        }
        whole = [(n, -c) for c, a, n in begun if n == len(self.constraints[c][a])]
        if whole:  # the longest, and of equal constraints the first
            length, completed = max(whole)[0], -max(whole)[1]
            return PhraseState(met | {completed}, completed=completed, matched=length)
        return PhraseState(met, frozenset(begun), matched=max((n for _, _, n in begun), default=0))

    def wanted(self, state: PhraseState) -> set[int]:
        """The tokens that lead on to a constraint that is not met."""
        tokens = {self.constraints[c][a][n] for c, a, n in state.begun}
        missing = (alternatives for c, alternatives in enumerate(self.constraints) if c not in state.met)
        return tokens | {phrase[0] for alternatives in missing for phrase in alternatives}

    def missing(self, state: PhraseState) -> int:
        """How many constraints are not met."""
        return len(self.constraints) - len(state.met)
