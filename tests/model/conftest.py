"""Every test of the model begins with one seed, and leaves torch's as it was."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(17)
        yield
