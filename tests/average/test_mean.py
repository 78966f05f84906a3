"""The mean is of float32 sums, of weights that belong together, and has no number that spoils it in silence."""

from pathlib import Path

import pytest
import torch
from checkpoints import described
from torch import Tensor

from aiayn_cli.average.session import WeightSum
from aiayn_cli.checkpoint.checkpoint import Checkpoint
from aiayn_cli.errors import CheckpointError


@pytest.fixture
def total(monkeypatch: pytest.MonkeyPatch) -> "Total":
    return Total(monkeypatch)


class Total:
    """A sum of weights that are in no file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sum = WeightSum()
        self._monkeypatch = monkeypatch

    def add(self, step: int, **weights: Tensor) -> None:
        self._monkeypatch.setattr(Checkpoint, "weights", lambda _: weights)
        self._sum.add(described(Path(f"step-{step}"), step))

    def mean(self) -> dict[str, Tensor]:
        self._monkeypatch.undo()
        return self._sum.mean()


def test_sums_are_float32_whatever_the_weights_are(total: Total) -> None:
    # In bf16 256 + 1 is 256: a sum of it would lose every checkpoint after the first.
    total.add(1, a=torch.tensor([256.0], dtype=torch.bfloat16))
    for step in range(2, 10):
        total.add(step, a=torch.ones(1).bfloat16())
    found = total.mean()["a"]
    assert found.dtype is torch.float32
    assert found.item() == pytest.approx(264 / 9)


def test_weights_that_differ_in_name_are_refused(total: Total) -> None:
    total.add(9, a=torch.zeros(3))
    with pytest.raises(CheckpointError, match="step-10 differs from the others in b"):
        total.add(10, a=torch.zeros(3), b=torch.zeros(2))


def test_weights_of_another_shape_are_refused_by_name(total: Total) -> None:
    total.add(9, a=torch.zeros(3))
    with pytest.raises(CheckpointError, match=r"step-10: a has shape \[1\], not \[3\]"):
        total.add(10, a=torch.zeros(1))  # which would broadcast
