"""The options of `aiayn train`, how missing ones are chosen, and schedules that fit a time."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aiayn_cli import logs
from aiayn_cli.data.prepared import PreparedData, find_only_prepared, find_prepared
from aiayn_cli.data.recipe_choice import AUTO, choose_recipe
from aiayn_cli.errors import DataError
from aiayn_cli.recipe import load_recipe, run_name
from aiayn_cli.recipe_keys import Recipe

RUNS = Path("runs")
_WARMUP_SHARE = 5  # a fifth of the updates at most
_MOST_TIMES = 3  # as long as the recipe's own schedule; longer only learns the corpus by heart
_UPDATES_SHARE = 0.9  # of the time; the rest is for validation and checkpoints


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of `aiayn train`."""

    recipe: str = "base"  # a bundled recipe's name or a file
    overrides: Sequence[str] = ()  # "section.field=value"
    data: Path | None = None  # prepared data; None = prepared/CORPUS of the recipe
    out: Path | None = None  # the run's folder; None = runs/RECIPE
    resume: bool = True  # continue an existing run; False sets it aside and starts anew
    device: str = "auto"
    tensorboard: bool = False
    dry_run: bool = False
    hours: float | None = None  # fit a new run's schedule to this time; None = the recipe's schedule

    @property
    def run(self) -> Path:
        return self.out if self.out is not None else Path("runs") / run_name(self.recipe)

    def load(self) -> tuple[Recipe, PreparedData]:
        recipe = load_recipe(self.recipe, self.overrides)
        return recipe, PreparedData.load(find_prepared(self.data if self.data is not None else recipe.data.corpus))


def settle(options: TrainOptions) -> TrainOptions:
    """Choose the recipe, data and run that are not named, and say which; a run that is resumed keeps its own.

    Raises DataError if there is no prepared data, or more than one and none is named.
    """
    recipe, out, named = options.recipe, options.out, options.data
    if recipe == AUTO and out is not None and options.resume:
        named = named or _data_of(out)
    data = _choose_data(replace(options, data=named))
    if recipe == AUTO:
        out = out or RUNS / data.name
        if options.resume and (out / "recipe.yaml").is_file():
            recipe, why = str(out / "recipe.yaml"), "that of the run"
        else:
            prepared = PreparedData.load(data)
            choice = choose_recipe(
                len(prepared.train), corpus=prepared.manifest.get("corpus") or "", trees=prepared.text.trees,
                has_gpu=options.device != "cpu" and torch.cuda.is_available(),
            )  # fmt: skip
            recipe, why = choice.name, choice.reason
        logs.notice(f"recipe: {recipe} ({why})")
    out = out or RUNS / run_name(recipe)
    if options.data is None:
        logs.notice(f"data: {data}")
    return replace(options, recipe=recipe, data=data, out=out)


def _choose_data(options: TrainOptions) -> Path:
    """The data that is named, else that of the recipe's corpus, else the only prepared corpus."""
    if options.data is not None:
        return find_prepared(options.data)
    if options.recipe == AUTO:
        if found := find_only_prepared():
            return found
        raise DataError("nothing has been prepared yet", "run `aiayn prepare demo` first, or prepare your own text")
    try:
        return find_prepared(load_recipe(options.recipe, options.overrides).data.corpus)
    except DataError:
        if found := find_only_prepared():
            return found
        raise


def _data_of(run: Path) -> Path | None:
    """The data that a run was trained on, if it still exists."""
    try:
        data = Path(json.loads((run / "manifest.json").read_text(encoding="utf-8"))["data"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return data if (data / "manifest.json").is_file() else None


def short_schedule(recipe: Recipe, updates: int, peak: float | None = None) -> list[str]:
    """Settings for a run of so many updates: checkpoints in proportion, and a warm-up of a fifth of it at most.

    With the recipe's own numbers, most of a short run would be warm-up, and averaging would reach back into it: ten
    points of BLEU. The warm-up rises to `peak`, by default the recipe's.
    """
    training, d_model = recipe.training, recipe.model.d_model
    warmup = min(training.warmup_steps, max(updates // _WARMUP_SHARE, 1))
    peak = peak_rate(recipe) if peak is None else peak
    return [
        f"training.max_updates={updates}",
        f"training.warmup_steps={warmup}",
        f"training.learning_rate_scale={peak * (d_model * warmup) ** 0.5:.6g}",
        f"training.save_every_steps={max(training.save_every_steps * updates // training.max_updates, 1)}",
    ]


def peak_rate(recipe: Recipe) -> float:
    """The highest learning rate of a recipe's schedule (paper, Section 5.3), at the end of the warm-up."""
    width: float = (recipe.model.d_model * recipe.training.warmup_steps) ** -0.5
    return recipe.training.learning_rate_scale * width


def updates_within(hours: float, seconds_per_update: float, recipe: Recipe) -> int:
    """Updates that fit into the time with validation and checkpoints, from one to three times the recipe's."""
    fitting = int(hours * 3600 * _UPDATES_SHARE / seconds_per_update)
    return min(max(fitting, 1), _MOST_TIMES * recipe.training.max_updates)


def schedule_of(recipe: Recipe) -> list[str]:
    """The settings of short_schedule() as a recipe has them."""
    keys = [setting.partition("=")[0] for setting in short_schedule(recipe, 1)]
    return [f"{key}={getattr(recipe.training, key.removeprefix('training.'))}" for key in keys]
