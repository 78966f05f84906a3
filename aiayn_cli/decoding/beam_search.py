"""Beam search: a pure search over a scorer's log-probabilities, without a model and without text.

One hypothesis is ranked by log p / ((5 + n) / 6) ** alpha, where n counts its tokens with EOS (Wu et al. 2016,
Section 7; the paper's Section 6.1 uses alpha 0.6). A sentence has `beam_size` places. At each step the best
continuations of its live hypotheses fill the places that are still free; one that ends in EOS keeps its place to
the end, so that `beam_size` hypotheses are followed from the first token to the last and a beam of 1 is greedy
search. The search of a sentence ends when no live hypothesis can still come among the best `n_best`: log p only
falls and the penalty only grows, so log p now / penalty at the longest length is the best that it can reach.

At the longest length every live hypothesis is ended with EOS, at the probability that the model gives EOS there:
a score is always that of the whole output. PAD, BOS and UNK are never produced; Restrictions can forbid more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.decoding.restrictions import Restrictions
from aiayn_cli.decoding.top_k import top_k
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID


class StepScorer(Protocol):
    """What the search needs to know of a model. Row = sentence * beams + beam, for the sentences still kept."""

    def step(self, tokens: Tensor) -> Tensor:
        """Read one more token in each row: [rows] -> float log p of the next one, [rows, vocab], free to overwrite."""

    def reorder(self, rows: Tensor) -> None:
        """Let new row i continue what row rows[i] has read: [new rows], each from the same sentence."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all sentences but these: [kept], with their rows as in `reorder`, [kept * beams]."""


@dataclass(frozen=True)
class Hypothesis:
    """One finished output of the search."""

    tokens: tuple[int, ...]  # without BOS and EOS
    log_prob: float  # natural log of the probability of the tokens and EOS
    score: float  # log_prob / ((5 + n) / 6) ** alpha, n = len(tokens) + 1


def length_penalty(n: int, alpha: float) -> float:
    """The divisor of log p for an output of n tokens, EOS included: ((5 + n) / 6) ** alpha (Wu et al. 2016)."""
    return float(((5 + n) / 6) ** alpha)


def batch_size(n: int, *, up: bool) -> int:
    """A number near n that is one of few: 1 to 8, then 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on.

    Sentences leave a batch only down to such a size, a few done ones among them: matrix libraries prepare, and keep,
    code for each shape they meet, which can take longer than the product itself.

    Args:
        n: at least 1.
        up: the nearest one above n (or n itself), not below.
    """
    step = 1 << max((n - 1 if up else n).bit_length() - 3, 0)
    return -(-n // step) * step if up else n // step * step


def beam_search(
    scorer: StepScorer,
    max_lengths: Sequence[int] | Tensor,
    *,
    beam_size: int,
    alpha: float,
    n_best: int = 1,
    restrictions: Restrictions | None = None,
) -> list[list[Hypothesis]]:
    """Search the best outputs of a batch of sentences.

    Args:
        scorer: has one row for each sentence, nothing read yet.
        max_lengths: [batch], the longest output of each sentence in tokens with EOS, at least 1.
        beam_size: hypotheses followed for each sentence.
        alpha: exponent of the length penalty, at least 0.
        n_best: outputs returned for each sentence, at most beam_size.
        restrictions: of the same sentences; None = only what is never produced.

    Returns:
        For each sentence its outputs, all different, best score first: n_best of them, or fewer where the scorer
        gives no more of them a probability above 0 under the restrictions.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best is {n_best}, but must be from 1 to beam_size ({beam_size})")
    if alpha < 0:
        raise ValueError(f"alpha is {alpha}, but must be at least 0: the stop rule needs a penalty that never falls")
    lengths = torch.as_tensor(max_lengths, dtype=torch.long)
    if lengths.numel() == 0:
        return []
    if int(lengths.min()) < 1:
        raise ValueError(f"a longest length is {int(lengths.min())}, but EOS alone already needs 1")
    found: list[list[Hypothesis]] = [[] for _ in range(lengths.numel())]
    next_tokens = torch.full((lengths.numel(),), BOS_ID)
    log_probs = scorer.step(next_tokens.to(lengths.device))
    beams = _Beams(
        lengths.to(log_probs.device), log_probs.dtype, beam_size, alpha, n_best, restrictions or Restrictions()
    )
    while True:
        parents = beams.advance(log_probs)
        n_live = int((~beams.done).sum())
        if n_live == 0:
            beams.collect(found)
            return found
        size = batch_size(n_live, up=True)
        if size < len(beams.sentences):
            beams.collect(found)
            staying = beams.done.int().argsort(stable=True)[:size].sort().values
            scorer.keep(staying, parents[staying].flatten())
            beams.keep(staying)
        else:
            scorer.reorder(parents.flatten())
        log_probs = scorer.step(beams.tokens[:, :, -1].flatten())


class _Beams:
    """All places of all sentences after the same number of steps.

    Shapes: sentences [batch]; tokens [batch, beams, steps]; log_probs and scores [batch, beams]. A place is live
    (log_prob above -inf, score -inf), ended (score above -inf) or empty (both -inf). Before the first step there is
    one beam.
    """

    def __init__(
        self,
        max_lengths: Tensor,
        dtype: torch.dtype,
        beam_size: int,
        alpha: float,
        n_best: int,
        restrictions: Restrictions,
    ) -> None:
        batch = max_lengths.numel()
        self.sentences = list(range(batch))  # positions in the caller's batch
        self.max_lengths = max_lengths
        self.alpha = alpha
        self.last_penalties = (((5 + max_lengths.double()) / 6) ** alpha).to(dtype)  # at the longest length
        self.beam_size = beam_size
        self.n_best = n_best
        self.restrictions = restrictions
        self.n_steps = 0
        self.tokens = max_lengths.new_empty((batch, 1, 0))
        self.log_probs = self.last_penalties.new_zeros((batch, 1))
        self.scores = self.last_penalties.new_full((batch, beam_size), -torch.inf)
        self.ended = torch.zeros_like(self.scores, dtype=torch.bool)
        self.done = torch.zeros_like(max_lengths, dtype=torch.bool)

    def advance(self, next_log_probs: Tensor) -> Tensor:
        """Take one step in every place.

        Args:
            next_log_probs: [batch * beams, vocab], overwritten.

        Returns:
            [batch, beam_size], the scorer's row that each place continues.
        """
        batch, beams = self.log_probs.shape
        n_read = torch.full_like(self.max_lengths, self.n_steps)
        self.restrictions.apply(next_log_probs.view(batch, beams, -1), self.tokens, n_read, self.sentences)
        self.n_steps += 1
        live = self.log_probs if beams == 1 else self.log_probs.masked_fill(self.ended, -torch.inf)
        eos_log_probs = live + next_log_probs[:, EOS_ID].view(batch, beams)
        log_probs, tokens, parents = self._best_continuations(live, next_log_probs.view(batch, beams, -1))

        # The best continuation goes to the first place that is free, and so on; ended places stay as they are.
        free = ~self.ended
        rank = free.cumsum(1).sub_(1).clamp_(min=0)
        log_probs, tokens, parents = log_probs.gather(1, rank), tokens.gather(1, rank), parents.gather(1, rank)
        places = torch.arange(self.beam_size, device=live.device).expand(batch, -1)
        at_limit = (self.max_lengths == self.n_steps).unsqueeze(1)
        own = places.clamp(max=beams - 1)
        log_probs = torch.where(at_limit, eos_log_probs.gather(1, own), log_probs)
        if beams == 1:  # one hypothesis to end, not beam_size copies of it
            log_probs = log_probs.masked_fill(at_limit & (places > 0), -torch.inf)
        tokens = torch.where(at_limit, EOS_ID, tokens)
        parents = torch.where(at_limit | self.ended, own, parents)
        self.log_probs = torch.where(free, log_probs, self.log_probs)

        possible = free & (log_probs > -torch.inf)
        ending = possible & (tokens == EOS_ID)
        tokens = tokens.masked_fill(~possible, PAD_ID)
        history = self.tokens.gather(1, parents.unsqueeze(2).expand(-1, -1, self.tokens.shape[2]))
        self.tokens = torch.cat([history, tokens.unsqueeze(2)], dim=2)
        self.scores = torch.where(ending, log_probs / length_penalty(self.n_steps, self.alpha), self.scores)
        self.ended = self.ended | ending
        self._stop()
        return parents + torch.arange(0, batch * beams, beams, device=parents.device).unsqueeze(1)

    def _best_continuations(self, live: Tensor, next_log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best beam_size of all continuations of each sentence, best first.

        Args:
            live: [batch, beams], log p of each live hypothesis; -inf where there is none.
            next_log_probs: [batch, beams, vocab].

        Returns:
            [batch, beam_size] each: log p (-inf where there are fewer), last token, the beam it continues.
        """
        per_beam = min(self.beam_size, next_log_probs.shape[2])
        values, tokens = top_k(next_log_probs, per_beam)  # no beam can fill more places than there are
        values = (values + live.unsqueeze(2)).flatten(1)
        missing = self.beam_size - values.shape[1]
        if missing > 0:
            values = functional.pad(values, (0, missing), value=-torch.inf)
            tokens = functional.pad(tokens.flatten(1), (0, missing))
        log_probs, index = values.topk(self.beam_size)
        return log_probs, tokens.flatten(1).gather(1, index), index.clamp(max=live.shape[1] * per_beam - 1) // per_beam

    def _stop(self) -> None:
        """Mark the sentences whose n_best outputs can no longer change, and empty their live places."""
        live = self.log_probs.masked_fill(self.ended, -torch.inf)
        reachable = live.amax(1) / self.last_penalties
        last_kept = self.scores.topk(self.n_best).values[:, -1]
        self.done = ~(reachable > last_kept)  # also done where the scorer gave no number
        self.log_probs = self.log_probs.masked_fill(self.done.unsqueeze(1) & ~self.ended, -torch.inf)

    def collect(self, found: list[list[Hypothesis]]) -> None:
        """Write the outputs of the sentences that are done to their places in `found`."""
        done = self.done.nonzero().squeeze(1)
        scores, order = self.scores[done].sort(dim=1, descending=True, stable=True)
        log_probs = self.log_probs[done].gather(1, order)
        tokens = self.tokens[done].gather(1, order.unsqueeze(2).expand(-1, -1, self.n_steps))
        rows = zip(done.tolist(), scores.tolist(), log_probs.tolist(), tokens.tolist(), strict=True)
        for sentence, sentence_scores, sentence_log_probs, outputs in rows:
            found[self.sentences[sentence]] = [
                Hypothesis(tuple(output[: output.index(EOS_ID)]), log_prob, score)
                for output, log_prob, score in zip(outputs, sentence_log_probs, sentence_scores, strict=True)
                if score > -torch.inf
            ][: self.n_best]

    def keep(self, sentences: Tensor) -> None:
        """Go on with these sentences only, [kept]."""
        self.sentences = [self.sentences[sentence] for sentence in sentences.tolist()]
        self.max_lengths = self.max_lengths[sentences]
        self.last_penalties = self.last_penalties[sentences]
        self.tokens = self.tokens[sentences]
        self.log_probs = self.log_probs[sentences]
        self.scores = self.scores[sentences]
        self.ended = self.ended[sentences]
        self.done = self.done[sentences]
