"""The schedule of a run much shorter than its recipe's, for the benchmarks that compare models with each other.

A recipe's own numbers do not fit a run of a sixth of its length: most of it would be warm-up, and the average of the
last checkpoints would reach back into it, which costs ten points of BLEU and not the same for every model.
"""

from aiayn_cli.config import Recipe

WARMUP_SHARE = 5  # a fifth of the updates at most


def short_schedule(recipe: Recipe, updates: int, peak: float | None = None) -> list[str]:
    """Settings for a run of so many updates.

    Checkpoints come as often for its length as in the recipe, so that an average takes the same share of the run. The
    warm-up is a fifth of the run at most, and rises to the same peak.

    Args:
        recipe: with what is set otherwise, as far as it is about the width of the model, the rate and the warm-up.
        updates: in all.
        peak: highest learning rate; None = the recipe's.
    """
    training, d_model = recipe.training, recipe.model.d_model
    warmup = min(training.warmup_steps, max(updates // WARMUP_SHARE, 1))
    peak = peak_rate(recipe) if peak is None else peak
    return [
        f"training.max_updates={updates}",
        f"training.warmup_steps={warmup}",
        f"training.learning_rate_scale={peak * (d_model * warmup) ** 0.5:.6g}",
        f"training.save_every_steps={max(training.save_every_steps * updates // training.max_updates, 1)}",
    ]


def peak_rate(recipe: Recipe) -> float:
    """The highest learning rate of a recipe's schedule (paper, Section 5.3), at the end of the warm-up."""
    return recipe.training.learning_rate_scale * (recipe.model.d_model * recipe.training.warmup_steps) ** -0.5
