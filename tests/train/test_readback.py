"""Numbers come back in order; on a CPU at once, on a GPU one update late."""

import pytest
import torch

from aiayn_cli.train.trainer import Readback


def test_on_a_cpu_numbers_are_read_at_once_and_once() -> None:
    readback: Readback = Readback(torch.device("cpu"))
    numbers = torch.tensor([1.5, 2.5])
    readback.put("a", numbers)
    numbers.zero_()  # may change afterwards
    assert list(readback.take()) == [("a", [1.5, 2.5])]
    assert list(readback.take(wait=True)) == []


def test_behind_a_gpu_the_newest_waits_until_all_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    readback: Readback = Readback(torch.device("cuda"))  # nothing is computed on it here
    seen = []
    for number in range(4):
        readback.put(number, torch.tensor([float(number)]))
        seen.append([tag for tag, _ in readback.take()])
    assert seen == [[], [0], [1], [2]]
    assert list(readback.take(wait=True)) == [(3, [3.0])]
