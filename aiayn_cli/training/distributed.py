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
        rank, world_size, local_rank = (int(os.environ.get(name, default)) for name, default in _VARIABLES)
        return cls(rank, world_size, local_rank)

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

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world_size > 1:
            dist.barrier()


_VARIABLES = (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
