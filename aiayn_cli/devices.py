"""Which device each of several processes takes, for `--gpus N`."""

import torch

from aiayn_cli.errors import AiaynError, UsageError


def check_gpus(processes: int, device: str) -> None:
    """Look whether there is a device for each process.

    Args:
        processes: how many; as many GPUs must be there, unless the device is the CPU.
        device: "auto", "cpu" or "cuda".
    Raises:
        AiaynError: there are fewer GPUs, or a single one is named.
    """
    if device.startswith("cuda:"):
        raise UsageError(f"--gpus {processes} and --device {device} contradict each other", "leave one of them out")
    if device != "cpu" and (found := torch.cuda.device_count()) < processes:
        raise AiaynError(
            f"--gpus {processes} asks for more GPUs than the {found} that are visible",
            f"give --gpus {found}, or check CUDA" if found else "--device cpu takes the CPU, with any --gpus",
        )


def device_of_each(gpus: int | None, device: str) -> list[str]:
    """Name the device of each process.

    Args:
        gpus: processes; None = one, on any device.
        device: as in choose_device().
    Raises:
        AiaynError: as in check_gpus().
    """
    if gpus is None:
        return [device]
    check_gpus(gpus, device)
    return ["cpu"] * gpus if device == "cpu" else [f"cuda:{number}" for number in range(gpus)]
