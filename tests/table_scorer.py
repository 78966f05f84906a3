"""A scorer for tests of searches: next-token distributions from a table, and a check that rows are kept straight."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor

from aiayn_cli.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS
from aiayn_cli.translate.search.beam import Hypothesis

Prefix = tuple[int, ...]
NextLogProbs = Callable[[int, Prefix], list[float]]  # sentence, tokens so far -> log p of each next token


class TableScorer:
    """A scorer whose every row remembers its own prefix, so that a wrong reorder or keep changes its answers."""

    def __init__(self, next_log_probs: NextLogProbs, sentences: list[int]) -> None:
        self.next_log_probs = next_log_probs
        self.sentences = sentences
        self.prefixes: list[Prefix] = [() for _ in self.sentences]
        self.n_steps = 0
        self.n_rows = 0

    def step(self, tokens: Tensor) -> Tensor:
        self.n_steps += 1
        self.n_rows += len(self.prefixes)
        assert tokens.shape == (len(self.prefixes),)
        beams = len(self.prefixes) // len(self.sentences)
        self.prefixes = [(*prefix, token) for prefix, token in zip(self.prefixes, tokens.tolist(), strict=True)]
        assert all(prefix[0] == BOS_ID for prefix in self.prefixes)
        rows = [self._row(self.sentences[row // beams], prefix[1:]) for row, prefix in enumerate(self.prefixes)]
        return torch.tensor(rows, dtype=torch.double)

    def _row(self, sentence: int, prefix: Prefix) -> list[float]:
        row = self.next_log_probs(sentence, tuple(token for token in prefix if token >= N_SPECIAL_TOKENS))
        ended = any(token < N_SPECIAL_TOKENS for token in prefix)
        return [0.0] * len(row) if ended else row  # a tempting answer that the search has to ignore

    def reorder(self, rows: Tensor) -> None:
        before, after = len(self.prefixes) // len(self.sentences), rows.numel() // len(self.sentences)
        assert all(row // before == new // after for new, row in enumerate(rows.tolist())), "a row left its sentence"
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        before, after = len(self.prefixes) // len(self.sentences), rows.numel() // sentences.numel()
        kept = sentences.tolist()
        assert all(row // before == kept[new // after] for new, row in enumerate(rows.tolist()))
        self.sentences = [self.sentences[sentence] for sentence in kept]
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    def take(self, places: Tensor, other: "TableScorer", sentences: slice) -> None:
        beams = len(self.prefixes) // len(self.sentences)
        assert len(other.prefixes) == beams * len(other.sentences)
        for place, number in zip(places.tolist(), range(sentences.start, sentences.stop), strict=True):
            self.sentences[place] = other.sentences[number]
            rows = other.prefixes[number * beams : (number + 1) * beams]
            self.prefixes[place * beams : (place + 1) * beams] = rows


def scorers(table: NextLogProbs, n_sentences: int, at_once: int) -> Iterator[TableScorer]:
    """A scorer for each at_once sentences."""
    for start in range(0, n_sentences, at_once):
        yield TableScorer(table, list(range(start, min(start + at_once, n_sentences))))


def random_table(seed: int, n_words: int, sharpness: float = 2.0, zeros: float = 0.0) -> NextLogProbs:
    """Next-token distributions that depend on the sentence and on the whole prefix; some entries are impossible."""
    known: dict[tuple[int, Prefix], list[float]] = {}

    def next_log_probs(sentence: int, prefix: Prefix) -> list[float]:
        if (sentence, prefix) not in known:
            source = random.Random(repr((seed, sentence, prefix)))
            logits = [source.gauss(0, sharpness) for _ in range(N_SPECIAL_TOKENS + n_words)]
            logits = [-math.inf if source.random() < zeros else logit for logit in logits]
            total = math.fsum(math.exp(logit) for logit in logits) or 1.0
            known[sentence, prefix] = [logit - math.log(total) for logit in logits]
        return list(known[sentence, prefix])

    return next_log_probs


def log_prob_of(next_log_probs: NextLogProbs, sentence: int, tokens: Prefix) -> float:
    ended = (*tokens, EOS_ID)
    return sum(next_log_probs(sentence, ended[:position])[token] for position, token in enumerate(ended))


def words(n_words: int) -> range:
    return range(N_SPECIAL_TOKENS, N_SPECIAL_TOKENS + n_words)


def restricted(
    table: NextLogProbs, min_lengths: list[int], prefixes: list[Prefix], no_repeat_ngram: int
) -> NextLogProbs:
    """The same table with log p -inf for what Restrictions forbid, found the slow way."""

    def next_log_probs(sentence: int, prefix: Prefix) -> list[float]:
        row = table(sentence, prefix)
        n = no_repeat_ngram
        seen = {prefix[start : start + n] for start in range(len(prefix) - n + 1)} if n else set()
        words = [
            token
            for token in range(N_SPECIAL_TOKENS, len(row))
            if not (n and (*prefix[len(prefix) - n + 1 :], token) in seen and len(prefix) >= n)
        ]
        may_end = len(prefix) + 1 >= min_lengths[sentence] or all(row[token] == -math.inf for token in words)
        allowed = {*words, EOS_ID} if may_end else set(words)
        if len(prefix) < len(prefixes[sentence]):
            allowed = {prefixes[sentence][len(prefix)]}  # which may repeat what came before
        return [log_prob if token in allowed else -math.inf for token, log_prob in enumerate(row)]

    return next_log_probs


def all_outputs(
    table: NextLogProbs, sentence: int, n_words: int, max_length: int, alpha: float
) -> list[tuple[Prefix, float]]:
    """What exhaustive search finds: every possible output with its score, the best first."""
    outputs = [
        (tokens, log_prob_of(table, sentence, tokens) / ((5 + n + 1) / 6) ** alpha)
        for n in range(max_length)
        for tokens in itertools.product(words(n_words), repeat=n)
    ]
    return sorted((each for each in outputs if each[1] > -math.inf), key=lambda each: -each[1])


def assert_same(found: Sequence[Hypothesis], expected: Sequence[tuple[Prefix, float]]) -> None:
    assert [hypothesis.tokens for hypothesis in found] == [tokens for tokens, _ in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for _, score in expected])
