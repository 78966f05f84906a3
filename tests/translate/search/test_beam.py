import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_scorer import (
    NextLogProbs,
    Prefix,
    TableScorer,
    all_outputs,
    assert_same,
    random_table,
    restricted,
    scorers,
    words,
)
from torch import Tensor

from aiayn_cli.special_tokens import EOS_ID
from aiayn_cli.translate.search.beam import batch_size, beam_search, length_penalty, top_k
from aiayn_cli.translate.search.restrictions import Restrictions

torch.set_num_threads(1)


def plain_beam_search(
    next_log_probs: NextLogProbs, sentence: int, n_words: int, max_length: int, beam: int, alpha: float, n_best: int
) -> list[tuple[Prefix, float]]:
    """The documented search written out with lists; only a beam of 1 is stopped early."""
    live: list[tuple[Prefix, float]] = [((), 0.0)]
    ended: list[tuple[Prefix, float]] = []
    for n in range(1, max_length + 1):
        choices = [EOS_ID] if n == max_length else [EOS_ID, *words(n_words)]
        candidates = [
            ((*tokens, word), log_prob + next_log_probs(sentence, tokens)[word])
            for tokens, log_prob in live
            for word in choices
        ]
        possible = sorted((c for c in candidates if c[1] > -math.inf), key=lambda c: -c[1])
        ended += [(tokens[:-1], lp / ((5 + n) / 6) ** alpha) for tokens, lp in possible[:beam] if tokens[-1] == EOS_ID]
        live = [(tokens, lp) for tokens, lp in possible if tokens[-1] != EOS_ID][:beam]
        if beam == 1 and ended:
            break
    return sorted(ended, key=lambda output: -output[1])[:n_best]


alphas = st.one_of(st.sampled_from([0.0, 0.6, 1.0]), st.floats(0, 3))
tables = st.builds(
    random_table,
    seed=st.integers(0, 2**32),
    n_words=st.just(3),
    sharpness=st.sampled_from([0.3, 2.0, 6.0]),
    zeros=st.sampled_from([0.0, 0.0, 0.3]),
)


@given(table=tables, max_lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), alpha=alphas, data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_beam_that_holds_every_output_finds_what_exhaustive_search_finds(
    table: NextLogProbs, max_lengths: list[int], alpha: float, data: st.DataObject
) -> None:
    beam_size = 1 + 3 + 9 + 27  # every output of up to 3 words
    n_best = data.draw(st.sampled_from([1, 2, 5, beam_size]))
    scorer = TableScorer(table, list(range(len(max_lengths))))
    found = beam_search(scorer, max_lengths, beam_size=beam_size, alpha=alpha, n_best=n_best)
    for sentence, max_length in enumerate(max_lengths):
        assert_same(found[sentence], all_outputs(table, sentence, 3, max_length, alpha)[:n_best])


@given(
    table=tables,
    max_lengths=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    beam=st.integers(1, 7),
    alpha=alphas,
    data=st.data(),
)
@settings(max_examples=50, deadline=None)
def test_batched_search_with_early_stop_equals_a_plain_search_without(
    table: NextLogProbs, max_lengths: list[int], beam: int, alpha: float, data: st.DataObject
) -> None:
    n_best = data.draw(st.integers(1, beam))
    at_once = data.draw(st.integers(1, 9))
    groups = scorers(table, len(max_lengths), at_once)
    found = beam_search(
        next(groups), max_lengths, beam_size=beam, alpha=alpha, n_best=n_best, waiting=groups, at_once=at_once
    )
    for sentence, max_length in enumerate(max_lengths):
        assert_same(found[sentence], plain_beam_search(table, sentence, 3, max_length, beam, alpha, n_best))


@given(
    table=tables,
    max_lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    beam=st.integers(1, 7),
    alpha=alphas,
    no_repeat_ngram=st.integers(0, 4),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_restrictions_are_those_of_a_search_in_a_table_without_what_they_forbid(
    table: NextLogProbs, max_lengths: list[int], beam: int, alpha: float, no_repeat_ngram: int, data: st.DataObject
) -> None:
    min_lengths = [data.draw(st.integers(1, max_length)) for max_length in max_lengths]
    word = st.sampled_from(list(words(3)))
    prefixes: list[Prefix] = [tuple(data.draw(st.lists(word, max_size=max_length - 1))) for max_length in max_lengths]
    at_once = data.draw(st.integers(1, 6))  # so that sentences stand at different steps
    groups = scorers(table, len(max_lengths), at_once)
    found = beam_search(
        next(groups), max_lengths, beam_size=beam, alpha=alpha, n_best=beam, waiting=groups, at_once=at_once,
        restrictions=Restrictions(min_lengths, prefixes, no_repeat_ngram),
    )  # fmt: skip
    expected = restricted(table, min_lengths, prefixes, no_repeat_ngram)
    for sentence, max_length in enumerate(max_lengths):
        assert_same(found[sentence], plain_beam_search(expected, sentence, 3, max_length, beam, alpha, beam))


def test_search_ends_as_soon_as_no_live_hypothesis_can_win() -> None:
    sure = {(): {4: 0.999, 5: 0.001}, (4,): {EOS_ID: 0.999, 5: 0.001}, (5,): {5: 0.9, EOS_ID: 0.1}}
    scorer = TableScorer(lambda _, prefix: [math.log(sure.get(prefix, {}).get(word, 1e-30)) for word in range(7)], [0])
    beam_search(scorer, [50], beam_size=2, alpha=0.6)
    assert scorer.n_steps == 2


def test_a_finished_sentence_leaves_the_batch() -> None:
    def next_log_probs(sentence: int, prefix: Prefix) -> list[float]:
        word = EOS_ID if len(prefix) == sentence else 4
        return [0.0 if token == word else -math.inf for token in range(7)]

    scorer = TableScorer(next_log_probs, [0, 1, 2, 3, 4])
    found = beam_search(scorer, [9] * 5, beam_size=3, alpha=0.6)
    assert [[output.tokens for output in outputs] for outputs in found] == [[(4,) * n] for n in range(5)]
    assert scorer.n_rows == 5 + 3 * (4 + 3 + 2 + 1)  # one row a sentence before the first step, then three


def test_waiting_sentences_take_the_places_of_finished_ones() -> None:
    def next_log_probs(sentence: int, prefix: Prefix) -> list[float]:
        word = EOS_ID if len(prefix) == sentence % 3 else 4
        return [0.0 if token == word else -math.inf for token in range(7)]

    groups = list(scorers(next_log_probs, 12, 4))
    waiting = iter(groups[1:])
    found = beam_search(groups[0], [9] * 12, beam_size=2, alpha=0.6, waiting=waiting, at_once=4)
    assert [[output.tokens for output in outputs] for outputs in found] == [[(4,) * (n % 3)] for n in range(12)]
    assert [group.n_steps for group in groups[1:]] == [1, 1]  # each sentence's first step, with one row
    # 12 sentences take 12 steps after their first ones: with all 4 places full they need 3 together.
    assert groups[0].n_steps <= 1 + 4


def test_no_sentence_reads_beyond_its_longest_length_while_others_go_on() -> None:
    """A model with learned positions has no more of them."""
    source = random.Random(5)
    max_lengths = [source.randint(1, 12) for _ in range(90)]

    class LimitedScorer(TableScorer):
        def step(self, tokens: Tensor) -> Tensor:
            log_probs = super().step(tokens)
            beams = len(self.prefixes) // len(self.sentences)
            for row, prefix in enumerate(self.prefixes):
                assert len(prefix) <= max_lengths[self.sentences[row // beams]]
            return log_probs

    endless = [-math.inf] * EOS_ID + [-9.0] + [-1.0] * 3
    groups = (LimitedScorer(lambda *_: list(endless), list(range(n, min(n + 40, 90)))) for n in range(0, 90, 40))
    found = beam_search(next(groups), max_lengths, beam_size=2, alpha=0.6, waiting=groups, at_once=40)
    assert [len(outputs[0].tokens) for outputs in found] == [n - 1 for n in max_lengths]


def test_an_output_ends_early_rather_than_not_at_all() -> None:
    log_probs = torch.zeros(1, 1, 5)  # one word only
    restrictions = Restrictions([9], no_repeat_ngram=1)
    restrictions.apply(log_probs, torch.tensor([[[4]]]), torch.tensor([1]), [0])
    assert log_probs[0, 0].eq(0).nonzero().flatten().tolist() == [EOS_ID]


def test_nothing_to_search_and_a_scorer_without_a_number_give_no_output() -> None:
    assert beam_search(TableScorer(random_table(1, 3), []), [], beam_size=3, alpha=0.6) == []
    assert beam_search(TableScorer(lambda sentence, prefix: [math.nan] * 7, [0]), [5], beam_size=3, alpha=0.6) == [[]]


def test_batch_sizes_are_few_and_near() -> None:
    for n in range(1, 5000):
        lower, upper = batch_size(n, up=False), batch_size(n, up=True)
        assert 0.8 * n < lower <= n <= upper < 1.25 * n
        assert batch_size(lower, up=True) == lower
        assert batch_size(upper, up=False) == upper
    assert len({batch_size(n, up=True) for n in range(1, 1025)}) == 36


def test_the_penalty_is_that_of_wu_et_al() -> None:
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(13, 0.6) == pytest.approx(3**0.6)
    assert length_penalty(40, 0.0) == 1.0


@given(vocab=st.integers(1, 900), k=st.integers(1, 9), seed=st.integers(0, 999), zeros=st.booleans())
@settings(max_examples=40)
def test_the_k_best_are_found_without_sorting_the_vocabulary(vocab: int, k: int, seed: int, zeros: bool) -> None:
    k = min(k, vocab)
    scores = torch.randn(3, 5, vocab, generator=torch.Generator().manual_seed(seed))
    if zeros:
        scores[scores < 0.8] = -torch.inf
    values, index = top_k(scores, k)
    torch.testing.assert_close(values, scores.sort(dim=-1, descending=True).values[..., :k], rtol=0, atol=0)
    torch.testing.assert_close(scores.gather(-1, index), values, rtol=0, atol=0)
    assert all(len(set(row)) == k for row in index.flatten(0, 1).tolist())
