"""Every token has one row and one place of the grid; shapes come from short lists."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.model.cpu.packed_attention import pack

some_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=30)


@given(some_lengths)
def test_each_token_has_a_row_and_a_place_and_each_leads_to_the_other(lengths: list[int]) -> None:
    packing = pack(torch.tensor(lengths))
    assert packing.tokens == sum(lengths) < packing.rows
    row = 0
    for sentence, length in enumerate(lengths):
        for position in range(length):
            assert packing.positions[row] == position
            assert packing.places_of_rows[row] == sentence * packing.length + position
            assert packing.rows_of_places[sentence, position] == row
            row += 1
        assert (packing.rows_of_places[sentence, length:] == packing.rows - 1).all()
        assert packing.is_token[sentence].tolist() == [i < length for i in range(packing.length)]
    assert (packing.rows_of_places[len(lengths) :] == packing.rows - 1).all()


@given(some_lengths)
def test_every_sentence_of_the_grid_has_something_to_attend_to(lengths: list[int]) -> None:
    packing = pack(torch.tensor(lengths))
    assert packing.is_token.any(dim=1).all()


@given(some_lengths, st.sampled_from([(1, 3), (2, 4), (3, 2)]))
def test_heads_find_their_vectors_and_the_way_back(lengths: list[int], shape: tuple[int, int]) -> None:
    (parts, heads), packing = shape, pack(torch.tensor(lengths))
    there, back = packing.indices(parts, heads)
    numbers = torch.arange(packing.rows * parts * heads).view(packing.rows, parts, heads)
    grid = numbers.flatten()[there.long()].view(parts, packing.sentences, heads, packing.length)
    row = 0
    for sentence, length in enumerate(lengths):
        for position in range(length):
            assert torch.equal(grid[:, sentence, :, position], numbers[row])
            row += 1
    returned = grid.flatten()[back.long()].view(packing.rows, parts, heads)
    assert torch.equal(returned[: packing.tokens], numbers[: packing.tokens])


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
