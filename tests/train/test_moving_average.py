from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from aiayn_cli.config import Recipe, TrainingConfig
from aiayn_cli.errors import CheckpointError
from aiayn_cli.train.optimizer import MasterAdam, MovingAverage

CONFIG = replace(Recipe().training, ema_decay=0.9)


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
    optimizer = MasterAdam(nn.Linear(5, 3).to(dtype), CONFIG)
    expected = torch.cat([weight.flatten() for weight in optimizer.weights().values()]).double().numpy()
    for number, weights in enumerate(learn(optimizer, range(150))):
        decay = min(0.9, (1 + number) / (10 + number))
        expected = decay * expected + (1 - decay) * weights
    np.testing.assert_allclose(average_of(optimizer), expected, rtol=0, atol=1e-5)


def test_the_initial_weights_are_forgotten_from_the_first_updates_on() -> None:
    average = MovingAverage(torch.full((3,), 1000.0), 0.9999)
    for _ in range(30):
        average.update(torch.ones(3))
    [values] = [tensor for name, tensor in average.state({"a": torch.zeros(3)}).items() if name == "ema.a"]
    torch.testing.assert_close(values, torch.ones(3), rtol=1e-2, atol=0)


def test_it_is_named_like_the_weights_and_of_their_shapes() -> None:
    optimizer = MasterAdam(nn.Linear(5, 3), CONFIG)
    average = {name.removeprefix("ema."): t for name, t in optimizer.moments().items() if name.startswith("ema.")}
    assert {name: tensor.shape for name, tensor in average.items()} == {
        name: weight.shape for name, weight in optimizer.weights().items()
    }
    assert {tensor.dtype for tensor in average.values()} == {torch.float32}


def test_training_is_the_same_with_and_without_it() -> None:
    def weights(config: TrainingConfig) -> np.ndarray:
        torch.manual_seed(1)
        return learn(MasterAdam(nn.Linear(5, 3), config), range(9))[-1]

    np.testing.assert_array_equal(weights(CONFIG), weights(replace(CONFIG, ema_decay=0.0)))
    without = MasterAdam(nn.Linear(5, 3), replace(CONFIG, ema_decay=0.0))
    assert set(without.moments()) == {"exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("stop", [0, 1, 7])
def test_going_on_from_moments_changes_no_bit(stop: int) -> None:
    torch.manual_seed(1)
    unbroken, broken = nn.Linear(5, 3), nn.Linear(5, 3)
    broken.load_state_dict(unbroken.state_dict())
    expected, first = MasterAdam(unbroken, CONFIG), MasterAdam(broken, CONFIG)
    learn(expected, range(12))
    learn(first, range(stop))
    again = MasterAdam(nn.Linear(5, 3), CONFIG, {name: w.clone() for name, w in first.weights().items()})
    again.load_moments({name: m.clone() for name, m in first.moments().items()}, stop)
    learn(again, range(stop, 12))
    for name, tensor in expected.moments().items():
        assert torch.equal(tensor, again.moments()[name]), name


def test_a_run_that_had_none_begins_one_where_it_stands() -> None:
    without = MasterAdam(nn.Linear(5, 3), replace(CONFIG, ema_decay=0.0))
    now = learn(without, range(4))[-1]
    again = MasterAdam(nn.Linear(5, 3), CONFIG, {name: w.clone() for name, w in without.weights().items()})
    again.load_moments(without.moments(), 4)
    np.testing.assert_array_equal(average_of(again), now)


def test_an_average_of_another_model_is_refused() -> None:
    optimizer = MasterAdam(nn.Linear(5, 3), CONFIG)
    moments = optimizer.moments()
    moments["ema.weight"] = torch.zeros(7)
    with pytest.raises(CheckpointError, match="moving average is of another model"):
        optimizer.load_moments(moments, 3)
