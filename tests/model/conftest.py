"""Every test of the model runs on one thread and from one seed, and leaves torch as it was."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread_one_seed() -> Iterator[None]:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    yield
    torch.set_rng_state(state)
    torch.set_num_threads(threads)
