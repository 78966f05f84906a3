import pytest
import torch
from torch import Tensor

from aiayn_cli.model.cpu.dropout import dropout, dropout_add

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

_COUNT = 1_000_003  # not a multiple of the elements that share a random number


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.3, 0.9])
def test_each_element_is_lost_with_the_given_probability(probability: float) -> None:
    lost = (dropout(torch.ones(_COUNT), probability) == 0).double()
    deviation = (probability * (1 - probability) / _COUNT) ** 0.5
    assert abs(lost.mean().item() - probability) < 4 * deviation + 2**-17  # 2^-17: the documented rounding
    for place in range(4):  # also at each place within one random number
        deviation_of_a_quarter = 2 * deviation
        assert abs(lost[place::4].mean().item() - probability) < 4 * deviation_of_a_quarter + 2**-17


@pytest.mark.parametrize(("distance", "calls"), [(1, 1), (4, 1), (5, 1), (64, 1), (0, 2), (1, 2), (64, 2)])
def test_elements_are_lost_independently_of_their_neighbours_and_of_the_next_call(distance: int, calls: int) -> None:
    lost = [(dropout(torch.ones(_COUNT), 0.3) == 0).double() - 0.3 for _ in range(calls)]
    correlation = (lost[0][distance:] * lost[-1][: _COUNT - distance]).mean().item() / (0.3 * 0.7)
    assert abs(correlation) < 4 / _COUNT**0.5


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_is_kept_is_scaled_by_the_chance_of_being_kept(probability: float, dtype: torch.dtype) -> None:
    x = torch.randn(7, 11, 13).to(dtype)
    y = dropout(x, probability)
    kept = y != 0
    assert y.dtype == dtype
    assert y.shape == x.shape
    assert 0 < kept.sum() < kept.numel()
    expected = (x.double() / (1 - probability))[kept]
    torch.testing.assert_close(y.double()[kept], expected, rtol=2**-8 if dtype == torch.bfloat16 else 1e-4, atol=0)


def test_the_sum_with_a_residual_is_the_residual_plus_dropout() -> None:
    x, residual = torch.randn(3, 5, 6), torch.randn(3, 5, 6)
    torch.manual_seed(4)
    alone = dropout(x, 0.4)
    torch.manual_seed(4)
    torch.testing.assert_close(dropout_add(x, residual, 0.4), residual + alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_backward_pass_loses_the_same_elements_and_leaves_the_residual_unscaled(dtype: torch.dtype) -> None:
    x = torch.randn(6, 35).to(dtype).requires_grad_()
    residual = torch.zeros(6, 35, dtype=dtype, requires_grad=True)
    grad = torch.randn(6, 35).to(dtype)
    y = dropout_add(x, residual, 0.4)
    y.backward(grad)
    lost = y == 0
    assert 0 < lost.sum() < lost.numel()
    assert torch.equal(residual.grad, grad)
    assert torch.equal(x.grad == 0, lost)
    expected = grad.double()[~lost] / 0.6
    torch.testing.assert_close(
        x.grad.double()[~lost], expected, rtol=2**-8 if dtype == torch.bfloat16 else 1e-4, atol=0
    )


def test_bf16_added_to_fp32_as_under_autocast_stays_fp32_and_gives_gradients_of_each_type() -> None:
    x = torch.ones(8, 9, dtype=torch.bfloat16, requires_grad=True)
    residual = torch.full((8, 9), 0.3, requires_grad=True)
    y = dropout_add(x, residual, 0.5)
    y.sum().backward()
    assert y.dtype == torch.float32
    assert set(y.unique().tolist()) == {residual[0, 0].item(), (residual[0, 0] + 2).item()}
    assert (x.grad.dtype, residual.grad.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(x.grad != 0, y > 1)


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_gradients_equal_finite_differences(needs: tuple[bool, bool]) -> None:
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=needs[0])
    residual = torch.randn(3, 7, dtype=torch.float64, requires_grad=needs[1])

    def seeded(x: Tensor, residual: Tensor) -> Tensor:
        torch.manual_seed(5)
        return dropout_add(x, residual, 0.5) + dropout(x, 0.2)

    assert torch.autograd.gradcheck(seeded, (x, residual))


def test_probability_zero_is_the_identity() -> None:
    x, residual = torch.randn(4, 6), torch.randn(4, 6)
    state = torch.get_rng_state()
    assert dropout(x, 0) is x
    assert torch.equal(dropout_add(x, residual, 0), residual + x)
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn in vain


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (5,), (2, 3, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_any_shape_is_kept(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.ones(shape, dtype=dtype)
    assert dropout(x, 0.5).shape == shape
    assert dropout_add(x, x, 0.5).shape == shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_transposed_input_loses_single_elements_too(dtype: torch.dtype) -> None:
    x = torch.randn(40, 50).to(dtype).t()
    y = dropout(x, 0.5)
    kept = y != 0
    assert 0.4 < kept.float().mean() < 0.6
    assert torch.equal(y[kept], 2 * x[kept])


def test_what_torch_compiles_loses_elements_in_both_passes_too() -> None:
    @torch.compile(backend="aot_eager", dynamic=True)  # all but the last step, machine code, which takes long
    def twice(x: Tensor, residual: Tensor) -> Tensor:
        return dropout_add(dropout(x, 0.5), residual, 0.5)

    x, residual = torch.rand(3, 21, 16, requires_grad=True), torch.zeros(3, 21, 16)
    y = twice(x, residual)
    y.sum().backward()  # type: ignore[no-untyped-call]
    lost = y == 0
    assert float(lost.float().mean()) == pytest.approx(0.75, abs=0.05)
    torch.testing.assert_close(y, 4 * x * ~lost)
    torch.testing.assert_close(x.grad, 4.0 * ~lost)
    torch.compiler.reset()
