"""The schedule of a run that is shorter or longer than its recipe's: `train --hours`, and comparisons of models.

A recipe's own numbers do not fit a run of a sixth of its length: most of it would be warm-up, and the average of the
last checkpoints would reach back into it, which costs ten points of BLEU and not the same for every model.
"""

from aiayn_cli.config import Recipe

_WARMUP_SHARE = 5  # a fifth of the updates at most
_MOST_TIMES = 3  # as long as the recipe's own schedule; longer only learns the corpus by heart
_UPDATES_SHARE = 0.9  # of the time; the rest is for validation and checkpoints


def short_schedule(recipe: Recipe, updates: int, peak: float | None = None) -> list[str]:
    """Settings for a run of so many updates.

    Checkpoints come as often for its length as in the recipe, so that an average takes the same share of the run. The
    warm-up is a fifth of the run at most, and rises to the same peak.

    Args:
        recipe: with the wanted width of the model, rate and warm-up.
        updates: in all.
        peak: highest learning rate; None = the recipe's.
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
    """Updates that fit into the time with validation and checkpoints, but not many times the recipe's."""
    fitting = int(hours * 3600 * _UPDATES_SHARE / seconds_per_update)
    return min(max(fitting, 1), _MOST_TIMES * recipe.training.max_updates)


def schedule_of(recipe: Recipe) -> list[str]:
    """The settings of short_schedule() as a recipe has them."""
    keys = [setting.partition("=")[0] for setting in short_schedule(recipe, 1)]
    return [f"{key}={getattr(recipe.training, key.removeprefix('training.'))}" for key in keys]
