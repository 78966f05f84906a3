"""The processes that train together: torchrun's variables, read once into a frozen Worker.

One process is a world of size 1 and takes the same path.
"""

import os
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Worker:
    """This process among the others.

    Attributes:
        rank: its number, from 0.
        world_size: how many there are.
        local_rank: its number on this machine, which picks its GPU.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @classmethod
    def from_environment(cls) -> "Worker":
        """Read what torchrun sets; without it this is the only process."""
        if "WORLD_SIZE" not in os.environ:
            return cls()
        return cls(*(int(os.environ.get(name, default)) for name, default in _VARIABLES))

    def join(self, device: torch.device) -> None:
        """Meet the other processes; returns when all are there."""
        if self.world_size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")

    def leave(self) -> None:
        """Part from the other processes."""
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def sum(self, tensor: Tensor) -> Tensor:
        """Add a tensor up over all processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def agree(self, signal: str, device: torch.device) -> str:
        """The signal that any process has received, or "".

        All then stop after the same update; one that went on alone would wait for the others for ever.
        """
        if self.world_size == 1:
            return signal
        received = self.sum(torch.tensor([float(signal == name) for name in _SIGNALS], device=device)).tolist()
        return next((name for name, count in zip(_SIGNALS, received, strict=True) if count), "")

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world_size > 1:
            dist.barrier()


_SIGNALS = ("SIGTERM", "SIGINT")
_VARIABLES = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
