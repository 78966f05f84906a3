"""Adam on flat float32 weights, the moving average of the weights, and the paper's learning rate."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aiayn_cli.errors import CheckpointError
from aiayn_cli.recipe_keys import TrainingConfig
from aiayn_cli.train.optimizer import MasterAdam, learning_rate

CONFIG = TrainingConfig()
WITH_AVERAGE = TrainingConfig(ema_decay=0.9)


class Tied(nn.Module):
    """Two names for one matrix, and two tensors of other sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.linear = nn.Linear(3, 4)
        self.output = self.embedding

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.linear(self.embedding(x))
        logits: Tensor = hidden[:, :3] @ self.output.weight.T + hidden[:, 3:]
        return logits


def a_model(dtype: torch.dtype = torch.float32) -> Tied:
    torch.manual_seed(3)
    return Tied().to(dtype)


def losses(model: nn.Module, steps: int, seed: int = 0) -> Iterator[Tensor]:
    """A loss for each step, on other inputs each time."""
    for step in range(steps):
        random = torch.Generator().manual_seed(seed * 1_000 + step)
        x, y = torch.randint(5, (7,), generator=random), torch.randint(5, (7,), generator=random)
        yield nn.functional.cross_entropy(model(x).float(), y)


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def learn_from(optimizer: MasterAdam, given: Iterable[Tensor], rate: float = 0.1) -> None:
    """A step for each loss."""
    for loss in given:
        backward(loss)
        optimizer.accumulate()
        optimizer.step(rate)


@pytest.mark.parametrize("config", [CONFIG, TrainingConfig(adam_beta1=0.5, adam_beta2=0.25, adam_eps=2.0)])
def test_steps_equal_torchs_adam_on_separate_tensors(config: TrainingConfig) -> None:
    mine, torchs = a_model(), a_model()
    optimizer = MasterAdam(mine, config)
    betas = (config.adam_beta1, config.adam_beta2)
    adam = torch.optim.Adam(torchs.parameters(), betas=betas, eps=config.adam_eps)
    for step, (loss, expected) in enumerate(zip(losses(mine, 12), losses(torchs, 12), strict=True), start=1):
        rate = 0.01 / step
        learn_from(optimizer, [loss], rate)
        adam.zero_grad()
        backward(expected)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        for parameter, other in zip(mine.parameters(), torchs.parameters(), strict=True):
            torch.testing.assert_close(parameter, other, rtol=1e-6, atol=1e-7)


def test_the_papers_betas_and_eps_are_the_default() -> None:
    assert (CONFIG.adam_beta1, CONFIG.adam_beta2, CONFIG.adam_eps) == (0.9, 0.98, 1e-9)


def test_a_shared_matrix_exists_once_and_stays_shared() -> None:
    model = a_model()
    optimizer = MasterAdam(model, CONFIG)
    assert list(optimizer.weights()) == ["embedding.weight", "linear.weight", "linear.bias"]
    assert optimizer.gradient.shape == (5 * 3 + 3 * 4 + 4,)
    learn_from(optimizer, losses(model, 2))
    assert model.output.weight is model.embedding.weight
    torch.testing.assert_close(model.output.weight.detach(), optimizer.weights()["embedding.weight"], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_several_backward_passes_add_up_until_the_step(dtype: torch.dtype) -> None:
    model, separate = a_model(dtype), a_model(dtype)
    optimizer = MasterAdam(model, CONFIG)
    for step in range(2):
        expected = torch.zeros_like(optimizer.gradient)
        for loss, other in zip(losses(model, 3, step), losses(separate, 3, step), strict=True):
            backward(loss)
            optimizer.accumulate()
            separate.zero_grad()
            backward(other)
            gradients = [p.grad for p in separate.parameters() if p.grad is not None]
            expected += torch.cat([gradient.float().flatten() for gradient in gradients])
        torch.testing.assert_close(optimizer.gradient, expected, rtol=1e-6, atol=1e-7)
        optimizer.step(0.0)
        assert not optimizer.gradient.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_backward_pass_leaves_out_keeps_nothing_of_the_step_before(dtype: torch.dtype) -> None:
    model = a_model(dtype)
    optimizer = MasterAdam(model, CONFIG)
    learn_from(optimizer, losses(model, 1))
    backward(model.embedding.weight.sum())
    optimizer.accumulate()
    assert optimizer.gradient.tolist() == [1.0] * 15 + [0.0] * 16


def test_updates_far_below_bf16_steps_are_not_lost() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    model.to(torch.bfloat16)
    optimizer = MasterAdam(model, CONFIG)
    for _ in range(100):  # Adam moves by the rate: 1e-4, where bf16 near 1 has steps of 4e-3 and more
        optimizer.gradient.fill_(1.0)
        optimizer.step(1e-4)
    assert float(optimizer.weights()["weight"]) == pytest.approx(0.99, abs=1e-4)
    assert model.weight.dtype is torch.bfloat16
    assert model.weight.item() == pytest.approx(0.99, abs=2**-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", [CONFIG, WITH_AVERAGE], ids=["plain", "moving average"])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_going_on_from_weights_and_moments_changes_no_bit(
    dtype: torch.dtype, config: TrainingConfig, stop: int
) -> None:
    def learn(model: nn.Module, optimizer: MasterAdam, first: int, last: int) -> None:
        learn_from(optimizer, (loss for n, loss in enumerate(losses(model, last)) if n >= first), rate=0.02)

    unbroken = a_model(dtype)
    expected = MasterAdam(unbroken, config)
    learn(unbroken, expected, 0, 7)
    broken = a_model(dtype)
    optimizer = MasterAdam(broken, config)
    learn(broken, optimizer, 0, stop)
    continued = Tied().to(dtype)
    again = MasterAdam(continued, config, {name: w.clone() for name, w in optimizer.weights().items()})
    again.load_moments({name: m.clone() for name, m in optimizer.moments().items()}, stop)
    learn(continued, again, stop, 7)
    for one, other in ((expected.weights(), again.weights()), (expected.moments(), again.moments())):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert all(torch.equal(*pair) for pair in zip(unbroken.parameters(), continued.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"exp_avg_sq": None}, "no exp_avg_sq of 31 numbers"),
        ({"exp_avg": torch.zeros(30)}, "no exp_avg of 31 numbers"),
        ({"exp_avg_sq": torch.full((31,), -0.5)}, "exp_avg_sq .* holds -0.5, but no square is negative"),
        ({"exp_avg": torch.ones(31, dtype=torch.int32)}, "exp_avg .* is int32, not float32"),
    ],
)
def test_moments_that_do_not_fit_are_refused(change: dict[str, Tensor | None], problem: str) -> None:
    moments = {"exp_avg": torch.ones(31), "exp_avg_sq": torch.ones(31), **change}
    given = {name: moment for name, moment in moments.items() if moment is not None}
    with pytest.raises(CheckpointError, match=problem) as error:
        MasterAdam(a_model(), CONFIG).load_moments(given, 5)
    assert ("recipe" if "no exp_avg" in problem else "another checkpoint") in error.value.hint


@pytest.mark.parametrize("name", ["_master", "_mean", "_mean_of_squares"])
def test_what_is_no_number_in_weights_or_moments_is_noticed(name: str) -> None:
    optimizer = MasterAdam(a_model(), CONFIG)
    assert optimizer.is_finite()
    getattr(optimizer, name)[7] = torch.inf
    assert not optimizer.is_finite()


def learn(optimizer: MasterAdam, steps: range) -> list[np.ndarray]:
    """Take steps with gradients of their own; return the weights after each."""
    after = []
    for step in steps:
        optimizer.gradient.copy_(torch.randn(optimizer.gradient.shape, generator=torch.Generator().manual_seed(step)))
        optimizer.step(0.1)
        after.append(torch.cat([weight.flatten() for weight in optimizer.weights().values()]).double().numpy())
    return after


def average_of(optimizer: MasterAdam) -> np.ndarray:
    named = [tensor for name, tensor in optimizer.moments().items() if name.startswith("ema.")]
    return torch.cat([tensor.flatten() for tensor in named]).double().numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_the_recursion_in_float64(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    optimizer = MasterAdam(nn.Linear(5, 3).to(dtype), WITH_AVERAGE)
    expected = torch.cat([weight.flatten() for weight in optimizer.weights().values()]).double().numpy()
    for number, weights in enumerate(learn(optimizer, range(150))):
        decay = min(0.9, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * weights
    np.testing.assert_allclose(average_of(optimizer), expected, rtol=0, atol=1e-5)


def test_training_is_the_same_with_and_without_it() -> None:
    def weights(config: TrainingConfig) -> np.ndarray:
        torch.manual_seed(1)
        return learn(MasterAdam(nn.Linear(5, 3), config), range(9))[-1]

    np.testing.assert_array_equal(weights(WITH_AVERAGE), weights(CONFIG))
    without = MasterAdam(nn.Linear(5, 3), CONFIG)
    assert set(without.moments()) == {"exp_avg", "exp_avg_sq"}


def test_a_run_that_had_none_begins_one_where_it_stands() -> None:
    without = MasterAdam(nn.Linear(5, 3), CONFIG)
    now = learn(without, range(4))[-1]
    again = MasterAdam(nn.Linear(5, 3), WITH_AVERAGE, {name: w.clone() for name, w in without.weights().items()})
    again.load_moments(without.moments(), 4)
    np.testing.assert_array_equal(average_of(again), now)


def test_an_average_of_another_model_is_refused() -> None:
    optimizer = MasterAdam(nn.Linear(5, 3), WITH_AVERAGE)
    moments = optimizer.moments()
    moments["ema.weight"] = torch.zeros(7)
    with pytest.raises(CheckpointError, match="moving average is of another model"):
        optimizer.load_moments(moments, 3)


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_base_and_big_peak_where_the_paper_has_it(d_model: int, peak: float) -> None:
    rates = [learning_rate(step, d_model, 4_000) for step in range(1, 12_001)]
    assert max(rates) == pytest.approx(peak, rel=1e-3)
    assert rates.index(max(rates)) + 1 == 4_000


@pytest.mark.parametrize("step", [1, 2, 399, 400, 401, 1_600, 100_000])
def test_rate_is_the_papers_equation(step: int) -> None:
    expected = 1 / math.sqrt(512) * min(1 / math.sqrt(step), step / 400**1.5)
    assert learning_rate(step, 512, 400) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(step, 512, 400, scale=2.5) == pytest.approx(2.5 * expected, rel=1e-12)
