"""A setting that changed between two calls of `train` is applied or refused, and none is passed over."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from aiayn_cli.config import DataConfig, DecodingConfig, ModelConfig, Recipe, TrainingConfig
from aiayn_cli.errors import CheckpointError
from aiayn_cli.train.resume import changed_settings, continued_recipe

OLD, RUN = Recipe(), Path("runs/base")
OTHERS: dict[str, Any] = {
    "kind": "recurrent", "n_heads": 4, "norm": "pre", "positions": "learned", "share_embeddings": "none",
    "best_metric": "loss", "precision": "fp32", "compile": "off", "on_bad_bytes": "drop", "corpus": "demo",
    "d_model": 1024, "dropout": 0.3, "attention_dropout": 0.1, "activation_dropout": 0.1, "label_smoothing": 0.2,
    "adam_beta1": 0.8, "ema_decay": 0.999,
    "adam_beta2": 0.9, "average_last": 4, "case_copies": 0.1, "vocab_type": "unigram",
}  # fmt: skip


def with_another(section: str, name: str) -> tuple[Recipe, Any]:
    """The old recipe with one setting changed, and its new value."""
    before = getattr(getattr(OLD, section), name)
    value = OTHERS[name] if name in OTHERS else not before if isinstance(before, bool) else before + 1
    with_it = {"case_copies": 0.0} if name == "trees" else {}  # trees have no copies in other case
    return replace(OLD, **{section: replace(getattr(OLD, section), **{name: value, **with_it})}), value


EVERY_SETTING = [
    (section, field.name)
    for section, kind in (("model", ModelConfig), ("training", TrainingConfig), ("decoding", DecodingConfig))
    for field in fields(kind)
]
# What the weights or the pairs of an update depend on.
REFUSED = {f"model.{field.name}" for field in fields(ModelConfig) if "dropout" not in field.name}
REFUSED |= {"training.batch_tokens", "training.seed"}


@pytest.mark.parametrize(("section", "name"), EVERY_SETTING)
def test_each_setting_is_applied_or_refused_by_name(section: str, name: str) -> None:
    new, value = with_another(section, name)
    key, before = f"{section}.{name}", getattr(getattr(OLD, section), name)
    assert changed_settings(OLD, new) == {key: (before, value)}
    if key in REFUSED:
        with pytest.raises(CheckpointError) as error:
            continued_recipe(OLD, new, RUN)
        assert error.value.problem == f"runs/base cannot go on with {key} {before} -> {value}"
    else:
        assert continued_recipe(OLD, new, RUN) == (new, [f"{key} {before} -> {value}"])


@pytest.mark.parametrize("name", [field.name for field in fields(DataConfig)])
def test_what_prepare_did_stays_as_it_was(name: str) -> None:
    new, _ = with_another("data", name)
    assert continued_recipe(OLD, new, RUN) == (OLD, [])


def test_without_a_change_nothing_is_said() -> None:
    assert continued_recipe(OLD, Recipe(), RUN) == (OLD, [])
