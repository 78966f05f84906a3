from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.translate.search.batches import bands, batch_size, batches, most_sentences

LENGTHS = st.lists(st.integers(1, 60), max_size=60)


@given(lengths=LENGTHS, batch_tokens=st.integers(1, 300), at_most=st.integers(1, 30))
def test_batches_hold_each_sentence_once_within_both_limits(
    lengths: list[int], batch_tokens: int, at_most: int
) -> None:
    found = list(batches(lengths, batch_tokens=batch_tokens, at_most=at_most))
    assert sorted(number for batch in found for number in batch) == list(range(len(lengths)))
    for batch in found:
        width = max(lengths[number] for number in batch) + 1
        assert len(batch) <= at_most
        assert len(batch) == 1 or len(batch) * width <= batch_tokens


@given(lengths=LENGTHS, batch_tokens=st.integers(1, 300))
def test_a_band_is_batches_of_one_size_of_which_the_last_may_be_smaller(lengths: list[int], batch_tokens: int) -> None:
    grouped = list(batches(lengths, batch_tokens=batch_tokens, at_most=100))
    found = bands(iter(grouped))
    assert [batch for band in found for batch in band] == grouped
    for band in found:
        assert {len(batch) for batch in band[:-1]} <= {len(band[0])}
        assert 0 < len(band[-1]) <= len(band[0])


def test_as_many_sentences_as_the_scores_of_one_step_allow_and_one_at_least() -> None:
    assert most_sentences(4, 32_000, on_cpu=True) * 4 * 32_000 * 4 <= 16 << 20
    assert most_sentences(4, 32_000, on_cpu=False) == 262
    assert most_sentences(10**6, 32_000, on_cpu=False) == 1


def test_batch_sizes_are_few_and_near() -> None:
    for n in range(1, 5000):
        lower, upper = batch_size(n, up=False), batch_size(n, up=True)
        assert 0.8 * n < lower <= n <= upper < 1.25 * n
        assert batch_size(lower, up=True) == lower
        assert batch_size(upper, up=False) == upper
    assert len({batch_size(n, up=True) for n in range(1, 1025)}) == 36
