"""What `aiayn train` takes where the command line leaves it open: the data, the recipe that fits, the run's folder."""

import json
from dataclasses import replace
from pathlib import Path

import torch

from aiayn_cli import logs
from aiayn_cli.data.prepared import find_only_prepared, find_prepared, read_manifest
from aiayn_cli.data.recipe_choice import AUTO, choose_recipe
from aiayn_cli.errors import DataError
from aiayn_cli.recipe import load_recipe, run_name
from aiayn_cli.train.session import TrainOptions

RUNS = Path("runs")


def settle(options: TrainOptions) -> TrainOptions:
    """Choose what is open, and say what was chosen.

    A run that exists and is resumed keeps its own recipe and data.

    Raises:
        DataError: no prepared data, or several, and none is named.
    """
    if options.recipe == AUTO and options.out is not None and options.resume:
        written = options.out / "recipe.yaml"
        if written.is_file():
            data = options.data or _data_of(options.out)
            return replace(options, recipe=str(written), data=data)
    data = _choose_data(options)
    recipe, out = options.recipe, options.out
    if recipe == AUTO:
        manifest, _ = read_manifest(data)
        choice = choose_recipe(
            manifest["splits"]["train"]["pairs_kept"],
            corpus=manifest.get("corpus") or "",
            trees=bool(manifest["settings"].get("trees")),
            has_gpu=options.device != "cpu" and torch.cuda.is_available(),
        )
        recipe = choice.name
        logs.notice(f"recipe: {choice.name} ({choice.reason})")
        out = out or RUNS / data.name
    out = out or RUNS / run_name(recipe)
    if options.data is None:
        logs.notice(f"data: {data}")
    return replace(options, recipe=recipe, data=data, out=out)


def _choose_data(options: TrainOptions) -> Path:
    """The data that is named, else that of the recipe's corpus, else the only one there is."""
    if options.data is not None:
        return find_prepared(options.data)
    if options.recipe == AUTO:
        if found := find_only_prepared():
            return found
        raise DataError("no prepared data", "run `aiayn prepare demo` first, or prepare text of your own")
    try:
        return find_prepared(load_recipe(options.recipe, options.overrides).data.corpus)
    except DataError:
        if found := find_only_prepared():
            return found
        raise


def _data_of(run: Path) -> Path | None:
    """The data that a run was trained on, if it is still there."""
    try:
        data = Path(json.loads((run / "manifest.json").read_text(encoding="utf-8"))["data"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return data if (data / "manifest.json").is_file() else None
