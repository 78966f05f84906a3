"""Numbers on their way from the device to the host, so that the host never waits for the newest update."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor

Tag = TypeVar("Tag")


class Readback(Generic[Tag]):
    """A queue of numbers that a device has been asked to compute.

    A GPU works through a queue of its own; a host that asked for the loss of the update that it has just put there
    would leave the GPU idle until the next one is there. So on a GPU numbers are read one update late, when they are
    ready; on a CPU, which computes at once, they are read at once.

    Args:
        device: that computes them.
    """

    def __init__(self, device: torch.device) -> None:
        self._lag = 1 if device.type == "cuda" else 0
        self._waiting: deque[tuple[Tag, Tensor, torch.cuda.Event | None]] = deque()

    def put(self, tag: Tag, numbers: Tensor) -> None:
        """Ask for numbers; they may change afterwards.

        Args:
            tag: what comes back with them.
            numbers: [n], on the device.
        """
        if numbers.is_cuda:
            host = torch.empty_like(numbers, device="cpu", pin_memory=True)
            host.copy_(numbers, non_blocking=True)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record()
            self._waiting.append((tag, host, copied))
        else:
            self._waiting.append((tag, numbers.clone(), None))

    def take(self, *, all_of_them: bool = False) -> Iterator[tuple[Tag, list[float]]]:
        """What is due, in the order in which it was asked for; with all_of_them also the newest."""
        while len(self._waiting) > (0 if all_of_them else self._lag):
            tag, numbers, copied = self._waiting.popleft()
            if copied is not None:
                copied.synchronize()
            yield tag, numbers.tolist()
