"""Packed batches come in few shapes, and hold few rows without a token."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.model.cpu.packed_attention import pack


@given(st.integers(30, 5_000))
def test_rows_without_a_token_are_few_and_sizes_come_from_a_short_list(tokens: int) -> None:
    packing = pack(torch.full((tokens // 10,), 10))
    assert packing.rows - packing.tokens <= 1 + packing.tokens // 32
    assert packing.sentences <= len(range(0, tokens, 10)) * 9 / 8
    assert packing.length == 16


def test_a_thousand_different_batches_have_few_shapes() -> None:
    random = torch.Generator().manual_seed(1)
    seen = set()
    for _ in range(1_000):
        longest = int(torch.randint(8, 100, (), generator=random))
        count = 4_096 // longest
        lengths = torch.randint(longest * 9 // 10, longest + 1, (count,), generator=random)
        packing = pack(lengths)
        seen.add((packing.sentences, packing.length))
    assert len(seen) < 50
