"""Sampling: outputs drawn from a scorer's distribution, each with its own random numbers.

A random number is a function of (key, step) alone, so that an output depends on its sentence's key and the scorer, and
never on its batch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aiayn_cli.data.batches import splitmix64
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.translate.options import Sampling
from aiayn_cli.translate.search.beam import Hypothesis, StepScorer, length_penalty
from aiayn_cli.translate.search.restrictions import Restrictions

Keys = npt.NDArray[np.uint64]


def sample(
    scorer: StepScorer,
    max_lengths: Sequence[int],
    keys: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    alpha: float,
    n_samples: int = 1,
    restrictions: Restrictions | None = None,
) -> list[list[Hypothesis]]:
    """Draw outputs for a batch of sentences.

    Args:
        scorer: has one row for each sentence, nothing read yet.
        max_lengths: [batch], the longest output of each sentence in tokens with EOS, at least 1.
        keys: [batch], numbers that seed the draws of a sentence, such as its tokens.
        alpha: exponent of the length penalty in the scores.
        n_samples: outputs for each sentence, drawn independently, so that some can be the same.
        restrictions: of the same sentences; None = only what is never produced.
    Returns:
        For each sentence its outputs as drawn, with the scorer's log p at temperature 1 and without any cut; fewer than
        n_samples if no token has a probability above 0.
    """
    restrictions = restrictions or Restrictions()
    if not max_lengths:
        return []
    row_keys = _row_keys(keys, n_samples, sampling.seed)  # [batch, samples]
    sentences = np.arange(len(max_lengths))
    limits = np.asarray(max_lengths)
    outputs = [[_Output() for _ in range(n_samples)] for _ in max_lengths]
    log_probs = scorer.step(torch.full((len(sentences),), BOS_ID))
    tokens = torch.empty((len(sentences), 1, 0), dtype=torch.long)
    while True:
        batch, rows, n_read = len(sentences), tokens.shape[1], tokens.shape[2]
        scores = log_probs.view(batch, rows, -1)
        device = scores.device
        allowed = scores.clone()
        lengths = torch.full((batch,), n_read, device=device)
        restrictions.apply(allowed, tokens.to(device), lengths, sentences.tolist())
        ends = torch.as_tensor(limits == n_read + 1, device=device)
        allowed[ends] = torch.where(torch.arange(allowed.shape[2], device=device) == EOS_ID, scores[ends], -torch.inf)
        random = torch.from_numpy(_uniform(row_keys, n_read)).to(device)  # [batch, samples]
        drawn = _draw(allowed.expand(-1, n_samples, -1), random, sampling)
        values = scores.expand(-1, n_samples, -1).gather(2, drawn.clamp(min=0).unsqueeze(2)).squeeze(2)
        done = np.ones(batch, np.bool_)
        for i, (row, row_values) in enumerate(zip(drawn.tolist(), values.tolist(), strict=True)):
            for output, token, value in zip(outputs[sentences[i]], row, row_values, strict=True):
                output.take(token, value)
            done[i] = all(output.ended for output in outputs[sentences[i]])
        kept = torch.from_numpy((~done).nonzero()[0])
        if not len(kept):
            return [[output.hypothesis(alpha) for output in sentence if not output.failed] for sentence in outputs]
        parents = (torch.arange(batch).unsqueeze(1) * rows + torch.arange(n_samples).clamp(max=rows - 1))[kept]
        tokens = torch.cat([tokens.expand(-1, n_samples, -1), drawn.clamp(min=EOS_ID).cpu().unsqueeze(2)], dim=2)[kept]
        if done.any():
            scorer.keep(kept.to(device), parents.flatten().to(device))
        elif rows < n_samples:
            scorer.reorder(parents.flatten().to(device))
        sentences, limits, row_keys = sentences[~done], limits[~done], row_keys[~done]
        log_probs = scorer.step(tokens[:, :, -1].flatten())


@dataclass
class _Output:
    tokens: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    ended: bool = False
    failed: bool = False  # nothing could be drawn

    def take(self, token: int, log_prob: float) -> None:
        if self.ended:
            return
        self.failed = token < 0
        self.ended = token == EOS_ID or self.failed
        self.log_prob += log_prob
        if not self.ended:
            self.tokens.append(token)

    def hypothesis(self, alpha: float) -> Hypothesis:
        score = self.log_prob / length_penalty(len(self.tokens) + 1, alpha)
        return Hypothesis(tuple(self.tokens), self.log_prob, score)


def _draw(log_probs: Tensor, random: Tensor, sampling: Sampling) -> Tensor:
    """Draw a token in each row of log p [batch, rows, vocab], by float64 [batch, rows] uniform from [0, 1).

    Returns int64 [batch, rows]; -1 if nothing can be drawn.
    """
    values, index = log_probs, None
    if sampling.top_k or sampling.top_p < 1:  # likeliest first
        k = min(sampling.top_k or log_probs.shape[2], log_probs.shape[2])
        values, index = log_probs.topk(k, dim=2)
    # In float64: a sum over a vocabulary in float32 is off by as much as a rare token's probability.
    probabilities = (values.double() / sampling.temperature).softmax(dim=2)
    summed = probabilities.cumsum(dim=2)
    if sampling.top_p < 1:
        probabilities = probabilities.masked_fill(summed - probabilities >= sampling.top_p, 0.0)
        summed = probabilities.cumsum(dim=2)
    total = summed[..., -1:]
    place = (summed <= random.unsqueeze(2) * total).sum(dim=2, keepdim=True).clamp(max=values.shape[2] - 1)
    tokens = place if index is None else index.gather(2, place)
    return torch.where(total > 0, tokens, -1).squeeze(2)  # NaN where every log p is -inf


def _row_keys(keys: Sequence[Sequence[int]], n_samples: int, seed: int) -> Keys:
    """A 64-bit key for each sample of each sentence, [batch, samples]."""
    digests = [hashlib.sha256(repr((seed, list(map(int, key)))).encode()).digest() for key in keys]
    first = np.array([int.from_bytes(digest[:8], "little") for digest in digests], np.uint64).reshape(-1, 1)
    return splitmix64(first ^ splitmix64(np.arange(n_samples, dtype=np.uint64)))


def _uniform(keys: Keys, step: int) -> npt.NDArray[np.float64]:
    """A number from [0, 1) for each key and step."""
    bits = splitmix64(keys ^ splitmix64(np.array([step], np.uint64))) >> np.uint64(11)
    return np.asarray(bits * 2.0**-53, np.float64)
