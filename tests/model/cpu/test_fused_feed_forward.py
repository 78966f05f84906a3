"""The fused network equals torch's operations one by one, in value and gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.model.cpu.fused_feed_forward import fused_feed_forward

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone


def _inputs(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(2)
    shapes = [(9, 6), (14, 6), (14,), (6, 14), (6,)]
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.03)]
)
def test_values_and_gradients_are_those_of_separate_operations(dtype: torch.dtype, tolerance: float) -> None:
    inputs = _inputs(dtype)
    x, w_1, b_1, w_2, b_2 = (each.double() for each in inputs)
    expected = functional.linear(functional.linear(x, w_1, b_1).relu(), w_2, b_2)
    mine = fused_feed_forward(*inputs, 0.0)
    assert mine.dtype == dtype
    ours = torch.autograd.grad(mine.double().square().sum(), inputs)
    theirs = torch.autograd.grad(expected.square().sum(), inputs)
    for one, other in ((mine, expected), *zip(ours, theirs, strict=True)):
        assert (one.double() - other.double()).abs().max() <= tolerance * other.abs().max()


def test_dropout_loses_hidden_elements_and_gives_the_gradient_of_what_it_computed() -> None:
    x, w_1, b_1, w_2, b_2 = _inputs(torch.float64)

    def run(x: Tensor, w_1: Tensor) -> Tensor:
        torch.manual_seed(5)
        return fused_feed_forward(x, w_1, b_1, w_2, b_2, 0.4)

    assert not torch.allclose(run(x, w_1), fused_feed_forward(x, w_1, b_1, w_2, b_2, 0.0))
    assert torch.autograd.gradcheck(run, (x, w_1))


def test_the_hidden_layer_is_lost_at_the_rate_and_scaled() -> None:
    x, w_1, b_1 = torch.ones(500, 1), torch.ones(40, 1), torch.zeros(40)
    y = fused_feed_forward(x, w_1, b_1, torch.eye(40), torch.zeros(40), 0.25)
    torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / 0.75), rtol=1e-4, atol=0)
    assert abs((y == 0).double().mean() - 0.25) < 4 * (0.25 * 0.75 / y.numel()) ** 0.5
