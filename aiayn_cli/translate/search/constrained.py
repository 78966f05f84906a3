"""Beam search for outputs that hold given phrases: dynamic beam allocation (Post and Vilar 2018).

A constraint is a list of alternatives, each a sequence of tokens. Hypotheses are sorted into banks by the number of
constraints met and of tokens into the next one, and the banks share the beam, so that likely hypotheses without a
phrase cannot push out all that have it. An output ends only when all constraints are met, or at the longest
length.

A model rarely likes a phrase that it did not choose, and places it where it costs least: after the end. If the tokens
that begin words are known, only half of that cost counts, plus log p that any word begins at that place: little where
a word is due, much next to a full stop.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.translate.search.beam import Hypothesis, StepScorer, length_penalty
from aiayn_cli.translate.search.restrictions import Restrictions

_T = TypeVar("_T")
Phrase = tuple[int, ...]
Constraint = tuple[Phrase, ...]  # alternatives; met if one of them occurs; none is empty

_PHRASE_WEIGHT = 0.5  # share of a phrase's own cost that counts if the tokens that begin words are known

_MORE_PLACES, _WIDEST = 8, 32  # of a beam


def phrase_tokens(constraints: Sequence[Constraint]) -> int:
    return sum(max(map(len, alternatives)) for alternatives in constraints)


@dataclass(frozen=True)
class PhraseState:
    """Which constraints a hypothesis meets, and which it has begun."""

    met: frozenset[int] = frozenset()  # indices of constraints
    begun: frozenset[tuple[int, int, int]] = frozenset()  # (constraint, alternative, tokens so far)
    completed: int = -1  # the constraint that the last token completed, which the next one can undo; -1 = none
    matched: int = 0  # last tokens that belong to a phrase, complete or begun

    @property
    def bank(self) -> tuple[int, int]:
        """The number of constraints met, and of tokens of the next one."""
        return len(self.met), self.matched if self.begun else 0


@dataclass(frozen=True)
class WordPieces:
    """Tokens by their place in a word."""

    continuations: frozenset[int] = frozenset()  # continue a word: a phrase followed by one does not count
    starts: frozenset[int] = frozenset()  # begin a word; empty = phrases cost what the scorer says


_NO_WORDS = WordPieces()


@dataclass(frozen=True)
class PhraseRules:
    """The constraints on one output."""

    constraints: tuple[Constraint, ...]
    word_continuations: frozenset[int]  # tokens that continue a word; one after a phrase undoes it

    def after(self, state: PhraseState, token: int) -> PhraseState:
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
        tokens = {self.constraints[c][a][n] for c, a, n in state.begun}
        missing = (alternatives for c, alternatives in enumerate(self.constraints) if c not in state.met)
        return tokens | {phrase[0] for alternatives in missing for phrase in alternatives}

    def missing(self, state: PhraseState) -> int:
        return len(self.constraints) - len(state.met)


def groups_of_one_beam(
    constraints: Sequence[Sequence[Constraint]], beam_size: int, at_once: int
) -> Iterator[tuple[int, list[int]]]:
    """Group sentences, at most `at_once`, by the beam they need: eight places and one for each token of their phrases.

    Yields a beam size, at least `beam_size`, and indices of sentences.
    """
    by_beam: defaultdict[int, list[int]] = defaultdict(list)
    for number, each in enumerate(constraints):
        by_beam[max(beam_size, min(_MORE_PLACES + phrase_tokens(each), _WIDEST))].append(number)
    for size, numbers in by_beam.items():
        for start in range(0, len(numbers), at_once):
            yield size, numbers[start : start + at_once]


def constrained_search(
    scorer: StepScorer,
    max_lengths: Sequence[int],
    constraints: Sequence[Sequence[Constraint]],
    *,
    beam_size: int,
    alpha: float,
    n_best: int = 1,
    restrictions: Restrictions | None = None,
    words: WordPieces = _NO_WORDS,
) -> list[list[Hypothesis]]:
    """Search the best outputs of a batch of sentences.

    Args:
        scorer: has one row for each sentence, nothing read yet.
        max_lengths: [batch], the longest output of each in tokens with EOS.
        constraints: [batch], those on each output; possibly none.
        beam_size, alpha, n_best, restrictions: as in beam_search().
    Returns:
        For each sentence its outputs, all different: those that miss the fewest constraints first, then by score; fewer
        than n_best if there are no others. log_prob is the scorer's own, score the value that was compared.
    """
    restrictions = restrictions or Restrictions()
    weight = _PHRASE_WEIGHT if words.starts else 1.0
    sentences = [
        _Sentence(number, limit, PhraseRules(tuple(each), words.continuations), beam_size, alpha, n_best, weight)
        for number, (limit, each) in enumerate(zip(max_lengths, constraints, strict=True))
    ]
    going = list(sentences)
    starts = sorted(words.starts)
    tokens = torch.full((len(going),), BOS_ID)
    n_read = 0
    while going:
        log_probs = scorer.step(tokens)  # [rows, vocab]; all sentences have the same number of rows
        rows = len(log_probs) // len(going)
        shaped = log_probs.view(len(going), rows, -1)
        begins = shaped[:, :, starts].logsumexp(2).tolist() if starts else [[-torch.inf] * rows] * len(going)
        outputs = torch.tensor([_filled([each.tokens for each in s.live], rows) for s in going], dtype=torch.long)
        endings = shaped[:, :, EOS_ID].tolist()  # before EOS may be forbidden
        lengths = torch.full((len(going),), n_read, device=log_probs.device)
        outputs = outputs.view(len(going), rows, n_read).to(log_probs.device)
        restrictions.apply(shaped, outputs, lengths, [s.number for s in going])
        n_read += 1
        best, best_tokens = shaped.topk(min(beam_size, shaped.shape[2]), dim=2)
        for sentence, scores, *rest in zip(
            going, shaped, best.tolist(), best_tokens.tolist(), endings, begins, strict=True
        ):
            sentence.advance(n_read, scores, *rest)
        staying = [number for number, sentence in enumerate(going) if sentence.live]
        if not staying:
            break
        parents = [
            number * rows + row for number in staying for row in _filled([x.row for x in going[number].live], beam_size)
        ]
        index = torch.tensor(parents, device=log_probs.device)
        if len(staying) < len(going):
            scorer.keep(torch.tensor(staying, device=log_probs.device), index)
        else:
            scorer.reorder(index)
        going = [going[number] for number in staying]
        tokens = torch.tensor([_filled([each.tokens[-1] for each in s.live], beam_size) for s in going]).flatten()
    return [sentence.results() for sentence in sentences]


@dataclass(frozen=True)
class _Live:
    """A live hypothesis."""

    tokens: Phrase
    log_prob: float
    state: PhraseState
    row: int = 0  # of the previous step, which it continues
    rank: float = 0.0  # log_prob with reduced cost of phrases, by which hypotheses are compared
    owed: float = 0.0  # the reduction for a phrase that is not complete, which is added if it stays so


@dataclass
class _Sentence:
    number: int
    limit: int
    rules: PhraseRules
    beam_size: int
    alpha: float
    n_best: int
    phrase_weight: float  # see _PHRASE_WEIGHT
    live: list[_Live] = field(default_factory=lambda: [_Live((), 0.0, PhraseState())])
    ended: list[tuple[int, Hypothesis]] = field(default_factory=list)  # constraints missed, output

    def advance(
        self,
        n: int,
        scores: Tensor,
        likely: list[list[float]],
        likely_tokens: list[list[int]],
        endings: list[float],
        words: list[float],
    ) -> None:
        """Take a step, after which each output has n tokens.

        Log p of the next token are `scores`, [rows, vocab], the best `likely`, [rows][beam_size], that of EOS, even if
        forbidden, `endings`, [rows], and that a word begins `words`, [rows].
        """
        if n >= self.limit:
            for row, each in enumerate(self.live):
                self._keep(self._ended(each, endings[row]), n)
            self.live = []
            return
        candidates: list[_Live] = []
        for row, each in enumerate(self.live):
            steps = dict(zip(likely_tokens[row], likely[row], strict=True))
            wanted = self.rules.wanted(each.state)
            is_whole = self.rules.missing(each.state) == 0
            if is_whole:
                wanted.add(EOS_ID)
            more = sorted(wanted - steps.keys())
            steps |= zip(more, scores[row, more].tolist(), strict=True)
            for token, log_prob in steps.items():
                if not log_prob > -torch.inf:
                    continue
                if token != EOS_ID:
                    candidates.append(self._longer(each, row, token, log_prob, words[row]))
                elif is_whole:
                    candidates.append(self._ended(each, log_prob))
        chosen = _share_out(candidates, self.beam_size)
        for each in chosen:
            if each.tokens[-1] == EOS_ID:
                self._keep(each, n)
        self.live = [each for each in chosen if each.tokens[-1] != EOS_ID]
        self._stop()

    def results(self) -> list[Hypothesis]:
        ranked = sorted(self.ended, key=lambda each: (each[0], -each[1].score))
        return [output for _, output in ranked[: self.n_best]]

    def _longer(self, each: _Live, row: int, token: int, log_prob: float, word: float) -> _Live:
        """A hypothesis with one more token, of the given log p; `word` is log p that a word begins there."""
        state = self.rules.after(each.state, token)
        rank, owed = each.rank, each.owed
        if each.state.completed >= 0:
            is_undone = each.state.completed not in state.met
            rank, owed = (rank + owed if is_undone else rank), 0.0
        elif state.matched < 2:  # no phrase is continued
            rank, owed = rank + owed, 0.0
        if state.matched == 0:
            return _Live((*each.tokens, token), each.log_prob + log_prob, state, row, rank + log_prob)
        place = max(word, log_prob) if state.matched == 1 else 0.0
        paid = place + self.phrase_weight * (log_prob - place)
        rank, owed = rank + paid, owed + log_prob - paid
        return _Live((*each.tokens, token), each.log_prob + log_prob, state, row, rank, owed)

    def _ended(self, each: _Live, log_prob: float) -> _Live:
        rank = each.rank + log_prob + (0.0 if each.state.completed >= 0 else each.owed)
        return replace(each, tokens=(*each.tokens, EOS_ID), log_prob=each.log_prob + log_prob, rank=rank)

    def _keep(self, ended: _Live, n: int) -> None:
        if ended.log_prob > -torch.inf:
            score = ended.rank / length_penalty(n, self.alpha)
            output = Hypothesis(ended.tokens[:-1], ended.log_prob, score)
            self.ended.append((self.rules.missing(ended.state), output))

    def _stop(self) -> None:
        """Drop the live hypotheses once none can become one of the best."""
        whole = sorted((output.score for missing, output in self.ended if missing == 0), reverse=True)
        if len(whole) >= self.n_best:
            reachable = max((each.rank for each in self.live), default=-torch.inf)
            if reachable / length_penalty(self.limit, self.alpha) <= whole[self.n_best - 1]:
                self.live = []


def _filled(values: list[_T], size: int) -> list[_T]:
    """Rows without a hypothesis repeat the first."""
    return values + values[:1] * (size - len(values))


def _share_out(candidates: Sequence[_Live], places: int) -> list[_Live]:
    """Choose the best of each bank for its share of the places, and the best overall for the remaining ones."""
    banks: defaultdict[tuple[int, int], list[_Live]] = defaultdict(list)
    for each in sorted(candidates, key=lambda each: -each.rank):
        banks[each.state.bank].append(each)
    chosen: list[_Live] = []
    left: list[_Live] = []
    for number, bank in enumerate(sorted(banks, reverse=True)):
        share = places // len(banks) + (number < places % len(banks))
        chosen += banks[bank][:share]
        left += banks[bank][share:]
    left.sort(key=lambda each: -each.rank)
    return chosen + left[: places - len(chosen)]
