"""The state of a run is read back exactly, and a changed setting is applied or refused."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from aiayn_cli.config import DataConfig, DecodingConfig, ModelConfig, Recipe, TrainingConfig
from aiayn_cli.data.batches import Position
from aiayn_cli.errors import CheckpointError
from aiayn_cli.train.resume import TrainingState, changed_settings, continued_recipe

STATE = TrainingState(step=3, position=Position(1, 70), best_value=2.5, best_step=2, pool_pairs=131_072)


def test_a_state_comes_back_as_it_was_saved() -> None:
    assert TrainingState.from_json(STATE.to_json(), Path("state.json")) == STATE


def test_as_many_operations_as_the_papers_big_model_takes_are_no_damage() -> None:
    state = replace(STATE, flops=23 * 10**18)
    assert TrainingState.from_json(state.to_json(), Path("state.json")) == state


def test_a_run_from_before_pools_had_sizes_keeps_its_order_of_pairs() -> None:
    content = STATE.to_json()
    del content["pool_pairs"]
    assert TrainingState.from_json(content, Path("state.json")) == replace(STATE, pool_pairs=65_536)


@pytest.mark.parametrize(
    "change",
    [
        {"pool_pairs": -1}, {"step": -1}, {"division": 0}, {"step": "3"}, {"steps": 4}, {"division": 10**9},
        {"saves": -3}, {"seconds": float("nan")}, {"usual_norm": -1.0}, {"best_step": 10**40},
        {"best_value": float("nan")},
        {"best_step": 4}, {"saves": 4}, {"skipped": 4}, {"skipped_in_a_row": 4}, {"worse_validations": 4},
        {"position": {"epoch": -1, "pairs": 0}}, {"position": {"epoch": 0, "pairs": 10**40}},
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"state\.json is not a training state"):
        TrainingState.from_json({**STATE.to_json(), **change}, Path("state.json"))


def test_a_new_run_takes_the_pool_of_its_updates_and_one_that_goes_on_keeps_its_own(watched: Any) -> None:
    assert watched(batch_tokens=120).trainer.state.pool_pairs == 65_536
    assert watched(batch_tokens=25_000).trainer.state.pool_pairs == 524_288
    assert watched(batch_tokens=25_000, state=STATE).trainer.state.pool_pairs == 131_072


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
        assert error.value.problem == f"runs/base cannot continue with {key} {before} -> {value}"
    else:
        assert continued_recipe(OLD, new, RUN) == (new, [f"{key} {before} -> {value}"])


@pytest.mark.parametrize("name", [field.name for field in fields(DataConfig)])
def test_what_prepare_did_stays_as_it_was(name: str) -> None:
    new, _ = with_another("data", name)
    assert continued_recipe(OLD, new, RUN) == (OLD, [])


def test_without_a_change_nothing_is_said() -> None:
    assert continued_recipe(OLD, Recipe(), RUN) == (OLD, [])
