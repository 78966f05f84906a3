import math

import pytest
import torch

from aiayn_cli.errors import DataError
from aiayn_cli.model.embeddings import LearnedPositions, SinusoidalPositions, sinusoids


@pytest.mark.parametrize("position", [0, 1, 7, 255, 256, 511, 5_000])
@pytest.mark.parametrize("d_model", [2, 18, 512])
def test_sinusoids_are_the_papers_formula_at_any_position(position: int, d_model: int) -> None:
    row = SinusoidalPositions(d_model)(position, 1)[0].tolist()
    expected = []
    for i in range(d_model // 2):
        angle = position / 10_000 ** (2 * i / d_model)
        expected += [math.sin(angle), math.cos(angle)]
    assert row == pytest.approx(expected, abs=1e-6)


def test_the_table_grows_without_changing_what_it_held() -> None:
    positions = SinusoidalPositions(6)
    before = positions(0, 200).clone()
    assert positions(900, 150).shape == (150, 6)
    assert torch.equal(positions(0, 200), before)
    assert torch.equal(positions(0, 1050), sinusoids(1050, 6))


def test_a_grown_table_keeps_its_type() -> None:
    positions = SinusoidalPositions(6).to(torch.bfloat16)
    assert positions(700, 3).dtype == torch.bfloat16
    torch.testing.assert_close(positions(700, 3).float(), sinusoids(703, 6)[700:], rtol=2**-8, atol=2**-8)


def test_a_table_grown_without_gradients_serves_training() -> None:
    positions = SinusoidalPositions(4)
    with torch.inference_mode():
        positions(0, 600)
    weight = torch.ones(4, requires_grad=True)
    (weight * 2 + positions(0, 5)).sum().backward()
    assert weight.grad.tolist() == [10, 10, 10, 10]


def test_sinusoids_are_neither_trained_nor_saved() -> None:
    positions = SinusoidalPositions(8)
    assert not list(positions.parameters())
    assert not positions.state_dict()


def test_learned_positions_are_rows_of_one_trained_table() -> None:
    positions = LearnedPositions(11, 6)
    torch.nn.init.normal_(positions.weight)
    assert positions(2, 9).shape == (9, 6)
    assert torch.equal(positions(2, 9), positions.weight[2:])
    positions(4, 3).sum().backward()
    grad = positions.weight.grad
    assert grad.sum(dim=1).tolist() == [0, 0, 0, 0, 6, 6, 6, 0, 0, 0, 0]


@pytest.mark.parametrize(("start", "length", "reached"), [(0, 12, 12), (11, 1, 12), (5, 20, 25)])
def test_learned_positions_refuse_a_longer_sequence(start: int, length: int, reached: int) -> None:
    with pytest.raises(DataError) as caught:
        LearnedPositions(11, 6)(start, length)
    assert caught.value.problem == f"a sequence of {reached} tokens is longer than the 11 learned positions"
    assert "model.max_positions" in caught.value.hint
