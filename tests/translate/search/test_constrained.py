import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_scorer import (
    NextLogProbs,
    Prefix,
    TableScorer,
    all_outputs,
    assert_same,
    log_prob_of,
    random_table,
    restricted,
    words,
)

from aiayn_cli.special_tokens import EOS_ID
from aiayn_cli.translate.search.beam import Hypothesis, beam_search
from aiayn_cli.translate.search.constrained import Constraint, WordPieces, constrained_search
from aiayn_cli.translate.search.restrictions import Restrictions

N_WORDS = 4
EVERYTHING = sum(N_WORDS**n for n in range(6))  # more hypotheses than there are outputs of up to five words

tables = st.builds(
    random_table,
    seed=st.integers(0, 2**32),
    n_words=st.just(N_WORDS),
    sharpness=st.sampled_from([0.3, 2.0, 6.0]),
    zeros=st.sampled_from([0.0, 0.0, 0.2]),
)
# Constraints that share no token, so that what an output holds does not depend on how it is read.
CONSTRAINTS: list[list[Constraint]] = [[], [((4,),)], [((4, 5),)], [((4,),), ((5, 6),)], [((4, 5), (6,))], [((7, 7),)]]


def holds(tokens: Prefix, phrase: Prefix, continuations: set[int]) -> bool:
    return any(
        tokens[start : start + len(phrase)] == phrase
        and not (start + len(phrase) < len(tokens) and tokens[start + len(phrase)] in continuations)
        for start in range(len(tokens) - len(phrase) + 1)
    )


def holds_all(tokens: Prefix, constraints: list[Constraint], continuations: set[int]) -> bool:
    return all(any(holds(tokens, phrase, continuations) for phrase in each) for each in constraints)


@given(table=tables, phrase=st.sampled_from([(4,), (4, 5), (6, 6)]), alpha=st.sampled_from([0.0, 0.6, 2.0]))
@settings(max_examples=8)
def test_with_known_words_half_of_a_phrases_cost_counts_and_that_of_its_place(
    table: NextLogProbs, phrase: Prefix, alpha: float
) -> None:
    starts = [4, 5, 7]

    def rank(tokens: Prefix) -> float:
        place = next(i for i in range(len(tokens)) if tokens[i : i + len(phrase)] == phrase)
        total = 0.0
        for i, token in enumerate((*tokens, EOS_ID)):
            row = table(0, tokens[:i])
            if i == place:
                any_word = math.fsum(math.exp(row[word]) for word in starts)
                word = max(math.log(any_word) if any_word else -math.inf, row[token])
                total += word + (row[token] - word) / 2
            else:
                total += row[token] / 2 if place < i < place + len(phrase) else row[token]
        return total

    outputs = [
        tokens for n in range(5) for tokens in itertools.product(words(N_WORDS), repeat=n)
        if holds(tokens, phrase, set()) and log_prob_of(table, 0, tokens) > -math.inf
    ]  # fmt: skip
    expected = sorted(
        ((tokens, rank(tokens) / ((6 + len(tokens)) / 6) ** alpha) for tokens in outputs), key=lambda x: -x[1]
    )
    [found] = constrained_search(
        TableScorer(table, [0]),
        [5],
        [[(phrase,)]],
        beam_size=EVERYTHING,
        alpha=alpha,
        n_best=3,
        words=WordPieces(starts=frozenset(starts)),
    )
    assert_same([each for each in found if holds(each.tokens, phrase, set())], expected[:3])
    assert [each.log_prob for each in found] == pytest.approx([log_prob_of(table, 0, each.tokens) for each in found])


@given(
    table=tables,
    sentences=st.lists(st.tuples(st.integers(3, 5), st.sampled_from(CONSTRAINTS)), min_size=1, max_size=3),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    n_best=st.integers(1, 3),
    continuations=st.sampled_from([set(), {7}]),
)
@settings(max_examples=10)
def test_a_beam_that_holds_everything_finds_what_exhaustive_search_finds(
    table: NextLogProbs,
    sentences: list[tuple[int, list[Constraint]]],
    alpha: float,
    n_best: int,
    continuations: set[int],
) -> None:
    max_lengths = [max_length for max_length, _ in sentences]
    constraints = [each for _, each in sentences]
    if continuations and any(7 in phrase for each in constraints for alternatives in each for phrase in alternatives):
        continuations = set()
    found = constrained_search(
        TableScorer(table, list(range(len(sentences)))), max_lengths, constraints, beam_size=EVERYTHING, alpha=alpha,
        n_best=n_best, words=WordPieces(continuations=frozenset(continuations)),
    )  # fmt: skip
    for number, outputs in enumerate(found):
        outputs_of_table = all_outputs(table, number, N_WORDS, max_lengths[number], alpha)
        expected = [each for each in outputs_of_table if holds_all(each[0], constraints[number], continuations)]
        whole = [each for each in outputs if holds_all(each.tokens, constraints[number], continuations)]
        assert_same(whole, expected[:n_best])


@given(
    table=tables,
    sentences=st.lists(st.tuples(st.integers(6, 12), st.sampled_from(CONSTRAINTS)), min_size=1, max_size=4),
    beam=st.integers(4, 8),
)
@settings(max_examples=25)
def test_outputs_are_distinct_and_neighbours_change_nothing(
    table: NextLogProbs, sentences: list[tuple[int, list[Constraint]]], beam: int
) -> None:
    max_lengths, constraints = [length for length, _ in sentences], [each for _, each in sentences]

    def search(chosen: list[int]) -> list[list[Hypothesis]]:
        return constrained_search(
            TableScorer(table, chosen), [max_lengths[i] for i in chosen], [constraints[i] for i in chosen],
            beam_size=beam, alpha=0.6, n_best=beam,
        )  # fmt: skip

    together = search(list(range(len(sentences))))
    for number, outputs in enumerate(together):
        assert [outputs] == search([number])
        assert len({output.tokens for output in outputs}) == len(outputs)
        for output in outputs:
            assert len(output.tokens) < max_lengths[number]
            assert output.log_prob == pytest.approx(log_prob_of(table, number, output.tokens))


@pytest.mark.parametrize("constraints", CONSTRAINTS)
@given(seed=st.integers(0, 2**32), beam=st.integers(4, 8))
@settings(max_examples=6)
def test_where_nothing_is_impossible_a_small_beam_finds_every_phrase(
    constraints: list[Constraint], seed: int, beam: int
) -> None:
    table = random_table(seed, N_WORDS, sharpness=6.0)
    [[output]] = constrained_search(TableScorer(table, [0]), [12], [constraints], beam_size=beam, alpha=0.6)
    assert holds_all(output.tokens, constraints, set())


def test_a_term_needed_twice_is_there_twice_and_what_does_not_fit_is_missing() -> None:
    table = random_table(2, N_WORDS)
    constraints: list[Constraint] = [((4, 5),), ((4, 5),)]
    [[output]] = constrained_search(TableScorer(table, [0]), [10], [constraints], beam_size=6, alpha=0.6)
    pairs = list(itertools.pairwise(output.tokens))
    assert pairs.count((4, 5)) >= 2
    table = random_table(3, N_WORDS)
    [[output]] = constrained_search(TableScorer(table, [0]), [3], [[((4, 5, 6),)]], beam_size=3, alpha=0.6)
    assert len(output.tokens) == 2


@given(table=tables, no_repeat_ngram=st.integers(0, 3), prefix=st.lists(st.sampled_from([5, 6]), max_size=3))
@settings(max_examples=15)
def test_restrictions_hold(table: NextLogProbs, no_repeat_ngram: int, prefix: list[int]) -> None:
    restrictions = Restrictions([3], [prefix], no_repeat_ngram)
    [outputs] = constrained_search(
        TableScorer(table, [0]), [9], [[((4,),)]], beam_size=6, alpha=0.6, n_best=6, restrictions=restrictions
    )
    allowed = restricted(table, [3], [tuple(prefix)], no_repeat_ngram)
    for output in outputs:
        if len(output.tokens) < 8:  # at the longest length it ends in any case
            assert log_prob_of(allowed, 0, output.tokens) > -math.inf


def test_without_constraints_the_best_output_is_as_good_as_beam_searchs() -> None:
    for seed in range(20):
        table = random_table(seed, N_WORDS)
        [[found]] = constrained_search(TableScorer(table, [0]), [8], [[]], beam_size=5, alpha=0.6)
        [[expected]] = beam_search(TableScorer(table, [0]), [8], beam_size=5, alpha=0.6)
        assert found.score >= expected.score - 1e-9


def test_nothing_to_search_gives_nothing() -> None:
    assert constrained_search(TableScorer(random_table(1, 3), []), [], [], beam_size=3, alpha=0.6) == []
    nothing = constrained_search(
        TableScorer(lambda sentence, prefix: [math.nan] * 7, [0]), [5], [[]], beam_size=3, alpha=0.6
    )
    assert nothing == [[]]
