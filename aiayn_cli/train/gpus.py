"""`aiayn train --gpus N`: the same command in N processes, after a look at what would fail in all of them."""

import os
from collections.abc import Sequence
from pathlib import Path

from aiayn_cli.data.prepared import PreparedData, find_prepared
from aiayn_cli.devices import check_gpus
from aiayn_cli.errors import UsageError
from aiayn_cli.recipe import load_recipe
from aiayn_cli.train.launch import launch


def run_launch(
    arguments: Sequence[str],
    recipe_name: str,
    overrides: Sequence[str],
    *,
    data: Path | None,
    device_name: str,
    processes: int,
    max_restarts: int,
) -> None:
    """Train in several processes of this machine.

    Args:
        arguments: of each process, from the command's name on.
        recipe_name, overrides, data, device_name: as in run_train.
        processes: how many; as many GPUs must be there, unless the device is the CPU.
        max_restarts: times that all are started again when one has failed.
    Raises:
        AiaynError: the recipe, the data or the devices are not there, or a process failed.
    """
    if "WORLD_SIZE" in os.environ:
        raise UsageError(
            "--gpus starts processes, but torchrun has started this one already", "leave --gpus out under torchrun"
        )
    recipe = load_recipe(recipe_name, overrides)
    PreparedData.load(find_prepared(data if data is not None else recipe.data.corpus))
    check_gpus(processes, device_name)
    launch(arguments, processes, max_restarts)
