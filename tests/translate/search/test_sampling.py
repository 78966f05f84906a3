import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from table_scorer import NextLogProbs, Prefix, TableScorer, log_prob_of, random_table, restricted, words

from aiayn_cli.special_tokens import EOS_ID
from aiayn_cli.translate.options import Sampling
from aiayn_cli.translate.search.restrictions import Restrictions
from aiayn_cli.translate.search.sampling import sample

tables = st.builds(
    random_table,
    seed=st.integers(0, 2**32),
    n_words=st.just(5),
    sharpness=st.sampled_from([0.3, 2.0]),
    zeros=st.sampled_from([0.0, 0.3]),
)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 100]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    seed=st.integers(0, 3),
)


def counts_of_first_tokens(table: NextLogProbs, sampling: Sampling, n: int = 4000) -> dict[int, float]:
    """How often each token was drawn first, EOS for an empty output."""
    [outputs] = sample(TableScorer(table, [0]), [2], [[5]], sampling, alpha=0.0, n_samples=n)
    counts = Counter(output.tokens[0] if output.tokens else EOS_ID for output in outputs)
    return {token: count / n for token, count in counts.items()}


def expected_distribution(log_probs: list[float], sampling: Sampling) -> dict[int, float]:
    """Temperature, then the k likeliest, then the fewest that reach top_p: in plain Python."""
    weights = {token: math.exp(log_probs[token] / sampling.temperature) for token in (EOS_ID, *words(5))}
    ranked = sorted(weights, key=lambda token: -weights[token])[: sampling.top_k or None]
    total = sum(weights[token] for token in ranked)
    kept, reached = [], 0.0
    for token in ranked:
        if reached < sampling.top_p:
            kept.append(token)
        reached += weights[token] / total
    total = sum(weights[token] for token in kept)
    return {token: weights[token] / total for token in kept}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.5),
        Sampling(temperature=3.0, seed=4),
        Sampling(top_k=3),
        Sampling(top_p=0.7),
        Sampling(temperature=1.5, top_k=4, top_p=0.8),
    ],
)
def test_tokens_are_drawn_as_often_as_their_probability_says(sampling: Sampling) -> None:
    table = random_table(3, 5, sharpness=1.0)
    found, expected = counts_of_first_tokens(table, sampling), expected_distribution(table(0, ()), sampling)
    assert set(found) <= set(expected)
    for token, probability in expected.items():  # five standard deviations of 4,000 draws
        assert found.get(token, 0.0) == pytest.approx(probability, abs=5 * math.sqrt(0.25 / 4000))


@given(table=tables, sampling=samplings, data=st.data())
@settings(max_examples=25)
def test_an_output_depends_on_its_own_sentence_and_the_seed_alone(
    table: NextLogProbs, sampling: Sampling, data: st.DataObject
) -> None:
    sentences = data.draw(st.permutations(range(5)))
    lengths = [3, 9, 1, 5, 7]

    def search(chosen: list[int]) -> dict[int, object]:
        found = sample(
            TableScorer(table, chosen), [lengths[i] for i in chosen], [[50 + i, i] for i in chosen], sampling,
            alpha=0.6, n_samples=3,
        )  # fmt: skip
        return dict(zip(chosen, found, strict=True))

    together = search(list(sentences))
    for sentence in sentences:
        assert search([sentence])[sentence] == together[sentence]


@given(table=tables, sampling=samplings, no_repeat_ngram=st.integers(0, 2), data=st.data())
@settings(max_examples=25)
def test_outputs_obey_the_restrictions_and_have_the_scorers_own_log_p(
    table: NextLogProbs, sampling: Sampling, no_repeat_ngram: int, data: st.DataObject
) -> None:
    max_lengths = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    min_lengths = [data.draw(st.integers(1, max_length)) for max_length in max_lengths]
    prefixes: list[Prefix] = [tuple([4, 5, 6][: max_length - 1]) for max_length in max_lengths]
    found = sample(
        TableScorer(table, list(range(len(max_lengths)))), max_lengths, [[i] for i in range(len(max_lengths))],
        sampling, alpha=0.6, n_samples=4, restrictions=Restrictions(min_lengths, prefixes, no_repeat_ngram),
    )  # fmt: skip
    allowed = restricted(table, min_lengths, prefixes, no_repeat_ngram)
    for sentence, (outputs, max_length) in enumerate(zip(found, max_lengths, strict=True)):
        for output in outputs:
            assert len(output.tokens) < max_length
            expected = log_prob_of(table, sentence, output.tokens)
            assert output.log_prob == pytest.approx(expected)
            assert output.score == pytest.approx(expected / ((5 + len(output.tokens) + 1) / 6) ** 0.6)
            if len(output.tokens) + 1 < max_length:  # at the longest length it ends in any case
                assert log_prob_of(allowed, sentence, output.tokens) > -math.inf


def test_other_seeds_and_other_sentences_give_other_outputs() -> None:
    table = random_table(1, 5, sharpness=0.3)

    def search(seed: int, key: int) -> list[Prefix]:
        [outputs] = sample(TableScorer(table, [0]), [12], [[key]], Sampling(seed=seed), alpha=0.0, n_samples=20)
        return [output.tokens for output in outputs]

    assert search(1, 1) == search(1, 1)
    assert search(1, 1) != search(2, 1)
    assert search(1, 1) != search(1, 2)
    assert len(set(search(1, 1))) > 10


def test_top_k_of_one_is_greedy_search() -> None:
    table = random_table(5, 5)
    [[output]] = sample(TableScorer(table, [0]), [20], [[1]], Sampling(top_k=1), alpha=0.0)
    tokens: Prefix = ()
    while len(tokens) < 19:
        row = table(0, tokens)
        best = max([EOS_ID, *words(5)], key=row.__getitem__)
        if best == EOS_ID:
            break
        tokens = (*tokens, best)
    assert output.tokens == tokens


def test_a_scorer_without_a_number_gives_no_output() -> None:
    def table(sentence: int, prefix: Prefix) -> list[float]:
        return [math.nan] * 9 if sentence else random_table(1, 5)(sentence, prefix)

    found = sample(TableScorer(table, [0, 1]), [5, 5], [[0], [1]], Sampling(), alpha=0.6, n_samples=2)
    assert [len(outputs) for outputs in found] == [2, 0]
    assert sample(TableScorer(table, []), [], [], Sampling(), alpha=0.6) == []


def test_rare_tokens_of_a_large_vocabulary_are_drawn_as_often_as_they_should() -> None:
    vocab = 30_000
    row = torch.full((vocab,), -torch.inf)
    row[4], row[EOS_ID] = math.log(0.9), -30.0
    row[100:] = math.log(0.1 / (vocab - 100))

    class OneStep:
        def step(self, tokens: torch.Tensor) -> torch.Tensor:
            return row.repeat(len(tokens), 1)

        def reorder(self, rows: torch.Tensor) -> None: ...
        def keep(self, sentences: torch.Tensor, rows: torch.Tensor) -> None: ...

    keys = [[i] for i in range(60)]
    found = sample(OneStep(), [12] * 60, keys, Sampling(), alpha=0.0)
    drawn = [token for [output] in found for token in output.tokens]
    assert len(drawn) == 60 * 11
    assert sum(token != 4 for token in drawn) / len(drawn) == pytest.approx(0.1, abs=0.05)
    assert min(token for token in drawn if token != 4) < 10_000 < 20_000 < max(drawn)
