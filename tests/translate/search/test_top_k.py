import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn_cli.translate.search.top_k import top_k


@given(vocab=st.integers(1, 900), k=st.integers(1, 9), seed=st.integers(0, 999), zeros=st.booleans())
@settings(max_examples=80)
def test_the_k_best_are_found_without_sorting_the_vocabulary(vocab: int, k: int, seed: int, zeros: bool) -> None:
    k = min(k, vocab)
    scores = torch.randn(3, 5, vocab, generator=torch.Generator().manual_seed(seed))
    if zeros:
        scores[scores < 0.8] = -torch.inf
    values, index = top_k(scores, k)
    torch.testing.assert_close(values, scores.sort(dim=-1, descending=True).values[..., :k], rtol=0, atol=0)
    torch.testing.assert_close(scores.gather(-1, index), values, rtol=0, atol=0)
    assert all(len(set(row)) == k for row in index.flatten(0, 1).tolist())
