"""Beam search: a pure search over a scorer's log-probabilities, without a model and without text.

Hypotheses are ranked by log p / ((5 + n) / 6) ** alpha, where n counts the tokens with EOS (Wu et al. 2016, Section 7;
the paper's Section 6.1 uses alpha 0.6). At each step the `beam_size` best continuations without EOS of a sentence's
live hypotheses become the live ones of the next step. A continuation with EOS is an output if it is among the
`beam_size` best of all; it takes no place from the live ones, and the best `n_best` outputs are kept. The search of a
sentence ends when no live hypothesis can still become one of these: log p only falls and the penalty only grows, so
its log p / the penalty at the longest length is an upper bound. A beam of 1 is greedy search, which ends with its first
output.

At the longest length every live hypothesis is ended with EOS, at the model's probability of EOS there, so that a score
is always that of the whole output. PAD, BOS and UNK are never produced; Restrictions can forbid more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.translate.search.restrictions import Restrictions

_LEAST_REPLACED = 16  # sentences are replaced by waiting ones when one in this many is done
_STEPS_BETWEEN_CHECKS = 4  # of which sentences are done, on a GPU
_FOLDS = 8  # parts of the vocabulary that top_k() folds onto each other


class StepScorer(Protocol):
    """What the search needs of a model. Row = sentence * beams + beam, of the sentences still kept."""

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token in each row: [rows] -> float log p of the next one, [rows, vocab], free to overwrite."""

    def reorder(self, rows: Tensor) -> None:
        """Let new row i continue what row rows[i] has read: [new rows], each from the same sentence."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all sentences but these: [kept], with their rows as in `reorder`, [kept * beams]."""

    def take(self, places: Tensor, other: Self, sentences: slice) -> None:
        """Replace the sentences at these places, [taken], by some of another scorer, with their rows."""


@dataclass(frozen=True)
class Hypothesis:
    """One finished output of the search."""

    tokens: tuple[int, ...]  # without BOS and EOS
    log_prob: float  # natural log of the probability of the tokens and EOS
    score: float  # log_prob / ((5 + n) / 6) ** alpha, n = len(tokens) + 1


def length_penalty(n: int, alpha: float) -> float:
    """The divisor of log p for an output of n tokens, EOS included: ((5 + n) / 6) ** alpha (Wu et al. 2016)."""
    return float(((5 + n) / 6) ** alpha)


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """As torch.topk over the vocabulary, [..., vocab] -> values and indices, [..., k] each, best first.

    Fold each row into an eighth: the k best scores lie in the k columns with the best maxima. That is one pass over
    the vocabulary and a selection among an eighth of it, in less than half the time of torch's topk on a CPU.
    """
    vocab = scores.shape[-1]
    n_columns = vocab // _FOLDS
    if n_columns < 8 * k:
        return scores.topk(k)
    folded = scores[..., : n_columns * _FOLDS].view(*scores.shape[:-1], _FOLDS, n_columns)
    columns = folded.amax(-2).topk(k, sorted=False).indices.unsqueeze(-2)  # [..., 1, k]
    candidates = folded.gather(-1, columns.expand(*folded.shape[:-1], k)).flatten(-2)  # [..., folds * k]
    rows = torch.arange(0, n_columns * _FOLDS, n_columns, device=scores.device)
    index = (columns + rows.unsqueeze(1)).flatten(-2)
    if n_columns * _FOLDS < vocab:
        rest = torch.arange(n_columns * _FOLDS, vocab, device=scores.device)
        candidates = torch.cat([candidates, scores[..., n_columns * _FOLDS :]], dim=-1)
        index = torch.cat([index, rest.expand(*index.shape[:-1], -1)], dim=-1)
    values, best = candidates.topk(k)
    return values, index.gather(-1, best)


def batch_size(n: int, *, up: bool) -> int:
    """Round n >= 1, up or down, to one of few sizes: 1 to 8, then 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on.

    Matrix libraries prepare and cache code for each new shape, which can take longer than the product itself.
    """
    step = 1 << max((n - 1 if up else n).bit_length() - 3, 0)
    return -(-n // step) * step if up else n // step * step


def beam_search(
    scorer: StepScorer,
    max_lengths: Sequence[int],
    *,
    beam_size: int,
    alpha: float,
    n_best: int = 1,
    restrictions: Restrictions | None = None,
    waiting: Iterable[StepScorer] = (),
    at_once: int | None = None,
) -> list[list[Hypothesis]]:
    """Search the best outputs of sentences; finished ones leave the batch, and waiting ones take their places.

    Args:
        scorer: has one row for each of the first `at_once` sentences, nothing read yet.
        max_lengths: [sentences], the longest output of each in tokens with EOS, at least 1.
        beam_size: hypotheses followed for each sentence.
        alpha: exponent of the length penalty, at least 0: the stop rule needs a penalty that never falls.
        n_best: outputs returned for each sentence, at most beam_size.
        restrictions: of the same sentences; None = only what is never produced.
        waiting: one scorer for each further `at_once` sentences; the last may have fewer.
        at_once: sentences searched together; None = all.
    Returns:
        For each sentence its outputs, all different, best score first: n_best of them, or fewer if no others have a
        probability above 0 under the restrictions.
    """
    assert 1 <= n_best <= beam_size, f"n_best is {n_best}, beam_size {beam_size}"
    found: list[list[Hypothesis]] = [[] for _ in max_lengths]
    if not found:
        return found
    size = at_once or len(found)
    search = _Search(max_lengths, beam_size, alpha, n_best, restrictions or Restrictions())
    beams = _Beams(search, scorer, range(min(size, len(found))))
    groups = (
        _Beams(search, following, range(first, min(first + size, len(found))))
        for following, first in zip(waiting, range(size, len(found), size), strict=True)
    )
    fresh = next(groups, None)
    while True:
        if beams.checks_now():
            n_done = int(beams.done.sum())
            at_limit = beams.at_limit()  # these must not read on: there may be no position for another token
            if fresh is not None:
                n_taken = min(n_done, fresh.waiting)
                if n_taken >= (1 if any(at_limit) else min(max(size // _LEAST_REPLACED, 1), fresh.waiting)):
                    beams.collect(found)
                    beams.take(fresh, n_taken)
                    if fresh.waiting == 0:
                        fresh = next(groups, None)
                    continue
            elif n_done == len(at_limit):
                beams.collect(found)
                return found
            else:  # keep the unfinished ones, and finished ones up to the next usual batch size
                kept = min(batch_size(len(at_limit) - n_done, up=True), len(at_limit) - sum(at_limit))
                if kept < len(at_limit):
                    beams.collect(found)
                    order = beams.done.int() + torch.tensor(at_limit, device=beams.done.device)
                    beams.keep(order.argsort(stable=True)[:kept].sort().values)
        beams.advance(beams.scorer.step(beams.last_tokens().flatten()))


@dataclass(frozen=True)
class _Search:
    """The arguments of beam_search() that hold for all sentences."""

    max_lengths: Sequence[int]
    beam_size: int
    alpha: float
    n_best: int
    restrictions: Restrictions

    def penalties(self, lengths: Sequence[int], like: Tensor) -> Tensor:
        return like.new_tensor([length_penalty(n, self.alpha) for n in lengths])


class _Beams:
    """All hypotheses of the sentences that are searched together, which need not be at the same step.

    Shapes: sentences [batch]; live hypotheses: tokens [batch, beams, most steps], log_probs [batch, beams], -inf where
    there is none; outputs so far: best_tokens [batch, n_best, most steps], best_log_probs and best_scores
    [batch, n_best], -inf where there is none. Before the first step, which is taken here, there is one beam.
    """

    def __init__(self, search: _Search, scorer: StepScorer, sentences: Sequence[int]) -> None:
        self.search, self.scorer = search, scorer
        self.sentences = list(sentences)  # positions in the caller's lists
        self.waiting = len(sentences)  # the last ones, not yet taken into another batch
        self.n_steps = [0] * len(sentences)
        self.since_check = 0
        log_probs = scorer.step(torch.full((len(sentences),), BOS_ID))
        longest = [search.max_lengths[sentence] for sentence in sentences]
        # Each tensor has one row for each sentence.
        self.max_lengths = torch.tensor(longest, device=log_probs.device)
        self.last_penalties = search.penalties(longest, log_probs)  # at the longest length
        self.tokens = self.max_lengths.new_empty((len(sentences), 1, 0))
        self.log_probs = log_probs.new_zeros((len(sentences), 1))
        self.best_tokens = self.tokens.expand(-1, search.n_best, -1)
        self.best_log_probs = log_probs.new_full((len(sentences), search.n_best), -torch.inf)
        self.best_scores = self.best_log_probs.clone()
        self.done = torch.zeros_like(self.max_lengths, dtype=torch.bool)
        self.advance(log_probs)

    def advance(self, next_log_probs: Tensor) -> None:
        """Take one step in every place, by log p [batch * beams, vocab], which is overwritten."""
        batch, beams = self.log_probs.shape
        beam_size, device = self.search.beam_size, self.tokens.device
        n_read = torch.tensor(self.n_steps, device=device)
        by_sentence = next_log_probs.view(batch, beams, -1)
        self.search.restrictions.apply(by_sentence, self.tokens, n_read, self.sentences)
        self.n_steps = [n + 1 for n in self.n_steps]
        at_limit = (self.max_lengths == n_read + 1).unsqueeze(1)
        ends = self.log_probs + by_sentence[:, :, EOS_ID]
        by_sentence[:, :, EOS_ID] = -torch.inf
        log_probs, tokens, parents = self._best_continuations(by_sentence)
        self.log_probs = log_probs.masked_fill(at_limit, -torch.inf)
        least = torch.cat([self.log_probs, ends], dim=1).topk(beam_size).values[:, -1:]
        ends = ends.masked_fill(ends < least, -torch.inf)

        self._make_room(max(self.n_steps))
        newest = n_read.view(-1, 1, 1)
        self._keep_best(self.tokens.scatter(2, newest.expand(-1, beams, 1), EOS_ID), ends)
        history = self.tokens.gather(1, parents.unsqueeze(2).expand(-1, -1, self.tokens.shape[2]))
        tokens = tokens.masked_fill(self.log_probs == -torch.inf, PAD_ID)
        self.tokens = history.scatter_(2, newest.expand(-1, beam_size, 1), tokens.unsqueeze(2))
        self._stop()
        first_rows = torch.arange(0, batch * beams, beams, device=device).unsqueeze(1)
        self.scorer.reorder((parents + first_rows).flatten())

    def _keep_best(self, tokens: Tensor, log_probs: Tensor) -> None:
        """Keep the best outputs, old ones and new ones with EOS: [batch, beams, most steps], log p [batch, beams]."""
        scores = log_probs / self.search.penalties(self.n_steps, log_probs).unsqueeze(1)
        self.best_scores, chosen = torch.cat([self.best_scores, scores], dim=1).topk(self.search.n_best)
        self.best_log_probs = torch.cat([self.best_log_probs, log_probs], dim=1).gather(1, chosen)
        outputs = torch.cat([self.best_tokens, tokens], dim=1)
        self.best_tokens = outputs.gather(1, chosen.unsqueeze(2).expand(-1, -1, tokens.shape[2]))

    def last_tokens(self) -> Tensor:
        """The token that each place reads next, [batch, beams]."""
        if min(self.n_steps) == max(self.n_steps):
            return self.tokens[:, :, self.n_steps[0] - 1]
        steps = torch.tensor(self.n_steps, device=self.tokens.device).view(-1, 1, 1)
        return self.tokens.gather(2, (steps - 1).expand(-1, self.search.beam_size, 1)).squeeze(2)

    def checks_now(self) -> bool:
        """Whether to check now which sentences are done: on a GPU that waits for all previous steps."""
        self.since_check += 1
        if self.tokens.device.type == "cpu" or self.since_check >= _STEPS_BETWEEN_CHECKS or any(self.at_limit()):
            self.since_check = 0
            return True
        return False

    def at_limit(self) -> list[bool]:
        return [n >= self.search.max_lengths[i] for n, i in zip(self.n_steps, self.sentences, strict=True)]

    def _best_continuations(self, next_log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best beam_size of all continuations of each sentence, best first.

        Returns [batch, beam_size] each: log p (-inf where there are fewer), last token, the beam it continues.
        """
        beam_size = self.search.beam_size
        per_beam = min(beam_size, next_log_probs.shape[2])
        values, tokens = top_k(next_log_probs, per_beam)  # no beam can fill more places than there are
        values = (values + self.log_probs.unsqueeze(2)).flatten(1)
        missing = beam_size - values.shape[1]
        if missing > 0:
            values = functional.pad(values, (0, missing), value=-torch.inf)
            tokens = functional.pad(tokens.flatten(1), (0, missing))
        log_probs, index = values.topk(beam_size)
        beams = index.clamp(max=next_log_probs.shape[1] * per_beam - 1) // per_beam
        return log_probs, tokens.flatten(1).gather(1, index), beams

    def _stop(self) -> None:
        """Mark the sentences whose n_best outputs can no longer change, and drop their live hypotheses."""
        reachable = self.log_probs.amax(1) / self.last_penalties
        self.done = ~(reachable > self.best_scores[:, -1])  # also if the scorer gave NaN
        if self.search.beam_size == 1:
            self.done = self.done | (self.best_scores[:, 0] > -torch.inf)
        self.log_probs = self.log_probs.masked_fill(self.done.unsqueeze(1), -torch.inf)

    def collect(self, found: list[list[Hypothesis]]) -> None:
        done = self.done.nonzero().squeeze(1)
        kept = (self.best_scores[done].tolist(), self.best_log_probs[done].tolist(), self.best_tokens[done].tolist())
        for sentence, *outputs in zip(done.tolist(), *kept, strict=True):
            found[self.sentences[sentence]] = [
                Hypothesis(tuple(tokens[: tokens.index(EOS_ID)]), log_prob, score)
                for score, log_prob, tokens in zip(*outputs, strict=True)
                if score > -torch.inf
            ]

    def take(self, other: Self, count: int) -> None:
        """Replace finished sentences by waiting ones of another batch."""
        places = self.done.nonzero().squeeze(1)[:count]
        first = len(other.sentences) - other.waiting
        chosen = slice(first, first + count)
        other.waiting -= count
        self.scorer.take(places, other.scorer, chosen)
        for place, number in zip(places.tolist(), range(first, first + count), strict=True):
            self.sentences[place], self.n_steps[place] = other.sentences[number], other.n_steps[number]
        steps = max(self.tokens.shape[2], other.tokens.shape[2])
        self._make_room(steps)
        other._make_room(steps)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                value[places] = getattr(other, name)[chosen]

    def keep(self, places: Tensor) -> None:
        beam_size = self.search.beam_size
        rows = torch.arange(len(self.sentences) * beam_size, device=places.device).view(-1, beam_size)
        self.scorer.keep(places, rows[places].flatten())
        kept = places.tolist()
        self.sentences = [self.sentences[place] for place in kept]
        self.n_steps = [self.n_steps[place] for place in kept]
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[places])

    def _make_room(self, steps: int) -> None:
        self.tokens, self.best_tokens = (
            functional.pad(tokens, (0, max(steps - tokens.shape[2], 0)), value=PAD_ID)
            for tokens in (self.tokens, self.best_tokens)
        )
