"""The fused loss equals torch's, in value and gradients, however many blocks the logits are made in."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.train import loss
from aiayn_cli.train.loss import smoothed_cross_entropy

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

Inputs = tuple[Tensor, Tensor, Tensor]


def some_inputs(tokens: int, vocab: int, d_model: int = 6, seed: int = 0, dtype: torch.dtype = torch.float32) -> Inputs:
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, d_model, generator=random).to(dtype).requires_grad_()
    weight = torch.randn(vocab, d_model, generator=random).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(vocab, (tokens,), generator=random)


def torchs_loss(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """torch's smoothed loss and plain negative log-likelihood, in float64, summed over tokens."""
    logits = hidden.double() @ weight.double().T
    smoothed = functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    return smoothed, functional.cross_entropy(logits, targets, reduction="sum")


def gradients(value: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value, inputs))


@pytest.fixture
def blocks_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """How many logits are held at once."""
    return lambda elements: monkeypatch.setattr(loss, "_BLOCK_ELEMENTS", elements)


def check_values(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float = 0.1, *, rtol: float = 1e-5, atol: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Compare the loss with torch's; return both, for their gradients."""
    value, nll = smoothed_cross_entropy(hidden, weight, targets, smoothing)
    expected, expected_nll = torchs_loss(hidden[: len(targets)], weight, targets, smoothing)
    assert (value.dtype, nll.dtype, nll.requires_grad) == (torch.float32, torch.float32, False)
    torch.testing.assert_close(value.double(), expected, rtol=rtol, atol=atol)
    torch.testing.assert_close(nll.double(), expected_nll, rtol=rtol, atol=atol)
    return value, expected


@pytest.mark.parametrize(
    ("rows", "used", "vocab", "smoothing"),  # 23 rows: uneven last blocks, and one block
    [(23, 23, 2, 0.0), (23, 23, 7, 0.1), (23, 23, 101, 0.7), (200, 180, 7, 0.1), (3, 3, 50, 0.1)],
)
@pytest.mark.parametrize("rows_at_once", [0, 1, 4, 5, 23, 130, 1_000])  # 0: a vocabulary larger than a block
def test_loss_and_gradients_equal_torchs_and_rows_after_the_targets_count_for_nothing(
    rows: int, used: int, vocab: int, smoothing: float, rows_at_once: int, blocks_of: Callable[[int], None]
) -> None:
    blocks_of(rows_at_once * vocab + vocab // 2)
    hidden, weight, targets = some_inputs(rows, vocab, seed=vocab)
    value, expected = check_values(hidden, weight, targets[:used], smoothing)
    mine = gradients(value, hidden, weight)
    for one, other in zip(mine, gradients(expected, hidden, weight), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert (mine[0][used:] == 0).all()


def test_bf16_is_as_near_as_its_rounding(blocks_of: Callable[[int], None]) -> None:
    blocks_of(64 * 100)
    hidden, weight, targets = some_inputs(500, 64, d_model=8, dtype=torch.bfloat16)
    value, expected = check_values(hidden, weight, targets, rtol=2e-3, atol=0)  # sums, over which roundings average out
    for mine, torchs in zip(gradients(value, hidden, weight), gradients(expected, hidden, weight), strict=True):
        assert mine.dtype is torch.bfloat16
        assert float((mine - torchs).norm() / torchs.norm()) < 1e-2


def test_on_a_device_that_is_not_asked_impossible_targets_count_as_the_smallest_normal_p() -> None:
    logits = torch.tensor([[0.0, 200.0], [0.0, 1.0]])
    target = torch.tensor([[0], [0]])
    gpu_like = SimpleNamespace(device=torch.device("cuda"))
    found = loss._log_total(gpu_like, logits.softmax(1), target, logits.gather(1, target))  # type: ignore[arg-type]
    smallest = -math.log(torch.finfo(torch.float32).tiny)
    assert found.flatten().tolist() == pytest.approx([smallest, math.log(1 + math.e)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_gradients", [True, False])
def test_targets_that_seem_impossible_have_a_finite_and_right_loss(dtype: torch.dtype, with_gradients: bool) -> None:
    # Logits of 200, -200 and 0: the true class has a probability of e^-400, which no float32 holds.
    hidden = torch.tensor([[200.0, 0.0], [200.0, 1.0], [0.0, 0.0]], dtype=dtype, requires_grad=with_gradients)
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]], dtype=dtype, requires_grad=with_gradients)
    value, expected = check_values(hidden, weight, torch.tensor([1, 0, 2]), rtol=1e-3, atol=0)
    if with_gradients:
        for mine, torchs in zip(gradients(value, hidden, weight), gradients(expected, hidden, weight), strict=True):
            torch.testing.assert_close(mine.float(), torchs.float(), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_the_same_with_and_without_gradients(dtype: torch.dtype) -> None:
    hidden, weight, targets = some_inputs(400, 33, dtype=dtype)
    with_gradients = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    with torch.no_grad():
        without = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    assert not without[0].requires_grad
    for mine, other in zip(with_gradients, without, strict=True):
        torch.testing.assert_close(mine.detach(), other, rtol=1e-6 if dtype is torch.float32 else 2e-3, atol=0)


def test_without_gradients_bf16_probabilities_are_never_rounded() -> None:
    # Validation: nothing needs the softmax itself, so only the logits are bf16.
    hidden, weight, targets = some_inputs(400, 33, dtype=torch.bfloat16)
    with torch.no_grad():
        _, nll = smoothed_cross_entropy(hidden, weight, targets, 0.0)
        expected = functional.cross_entropy((hidden @ weight.T).double(), targets, reduction="sum")
    torch.testing.assert_close(nll.double(), expected, rtol=1e-6, atol=0)


def test_gradients_scale_with_what_is_made_of_the_loss() -> None:
    hidden, weight, targets = some_inputs(11, 9)
    value, _ = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    plain = gradients(value, hidden, weight)
    value, _ = smoothed_cross_entropy(hidden, weight, targets, 0.1)
    scaled = gradients(value / 37, hidden, weight)
    for one, other in zip(plain, scaled, strict=True):
        torch.testing.assert_close(one / 37, other)


@pytest.mark.parametrize("fixed", ["hidden", "weight"])
def test_one_side_may_be_fixed(fixed: str) -> None:
    hidden, weight, targets = some_inputs(11, 9)
    expected = gradients(torchs_loss(hidden, weight, targets, 0.1)[0], hidden, weight)
    (hidden if fixed == "hidden" else weight).requires_grad_(False)
    smoothed_cross_entropy(hidden, weight, targets, 0.1)[0].backward()  # type: ignore[no-untyped-call]
    free = 1 if fixed == "hidden" else 0
    torch.testing.assert_close((hidden, weight)[free].grad, expected[free], rtol=1e-5, atol=1e-5)
    assert (hidden, weight)[1 - free].grad is None
