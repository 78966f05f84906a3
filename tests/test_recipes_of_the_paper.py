"""Each row of Table 3 has a recipe that says only what differs from base, and has the parameters that are printed."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.build import build_empty
from aiayn_cli.model.translation_model import count_parameters
from aiayn_cli.recipe import load_recipe, recipe_names

FOLDER = Path(__file__).parent.parent / "recipes" / "table3"
ROWS_OF_THE_CODE, TARGET_SPACE_ROWS = 40_960, 32  # see recipes/README.md

# Recipe: millions of parameters printed, base's own where the paper leaves the place blank.
PRINTED = {
    "a-heads-1": 65, "a-heads-4": 65, "a-heads-16": 65, "a-heads-32": 65,
    "b-keys-16": 58, "b-keys-32": 60,
    "c-layers-2": 36, "c-layers-4": 50, "c-layers-8": 80, "c-width-256": 28, "c-width-1024": 168,
    "c-ff-1024": 53, "c-ff-4096": 90,
    "d-dropout-0": 65, "d-dropout-20": 65, "d-smoothing-0": 65, "d-smoothing-20": 65,
    "big": 213,
}  # fmt: skip


def count(config: ModelConfig, rows: int) -> int:
    return count_parameters(build_empty(config, rows))


def count_as_the_code(config: ModelConfig, rows: int) -> float:
    """Millions, as the authors' first code counts: biases in attention, and an embedding of the target space."""
    return (count(replace(config, attention_bias=True), rows) + TARGET_SPACE_ROWS * config.d_model) / 1e6


def test_there_is_a_recipe_for_each_row() -> None:
    names = {name.removeprefix("table3/") for name in recipe_names() if name.startswith("table3/")}
    assert names == {*PRINTED, "e-learned-positions"}


@pytest.mark.parametrize("name", sorted({*PRINTED, "e-learned-positions"}))
def test_a_row_says_only_what_differs_from_base(name: str) -> None:
    base, row = load_recipe("base"), load_recipe(f"table3/{name}")
    written = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert written.pop("extends") == "base"
    for section, values in written.items():
        for key, value in values.items():
            assert getattr(getattr(row, section), key) == value != getattr(getattr(base, section), key)
    assert row != base


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - {"big"}))
def test_a_row_has_the_printed_parameters(name: str) -> None:
    assert round(count_as_the_code(load_recipe(f"table3/{name}").model, ROWS_OF_THE_CODE)) == PRINTED[name]


def test_the_big_row_was_counted_with_another_vocabulary() -> None:
    big = load_recipe("table3/big")
    assert round(count_as_the_code(big.model, ROWS_OF_THE_CODE), 2) == 218.33
    assert round(count_as_the_code(big.model, 36_000)) == PRINTED["big"]
    assert big.model == load_recipe("big").model
    assert big.training.max_updates == load_recipe("big").training.max_updates


def test_learned_positions_have_a_table_on_either_side() -> None:
    base, learned = load_recipe("base").model, load_recipe("table3/e-learned-positions").model
    assert count(learned, 100) - count(base, 100) == 2 * learned.max_positions * learned.d_model


def test_english_french_differs_in_data_and_dropout_alone() -> None:
    base, big = load_recipe("base"), load_recipe("big")
    base_fr, big_fr = load_recipe("base-en-fr"), load_recipe("big-en-fr")
    assert replace(base_fr, data=base.data) == base
    assert replace(big_fr, data=big.data) == replace(big, model=replace(big.model, dropout=0.1))
    for recipe in (base_fr, big_fr):
        assert (recipe.data.corpus, recipe.data.vocab_size) == ("wmt14-en-fr", 32_000)  # Section 5.1
    assert (base.training.max_updates, base.training.average_last) == (100_000, 5)  # Sections 5.2, 6.1
    assert (big.training.max_updates, big.training.average_last) == (300_000, 20)


def test_parsing_is_the_paper_s() -> None:
    recipe, base = load_recipe("parsing"), load_recipe("base")
    assert (recipe.model.n_encoder_layers, recipe.model.n_decoder_layers, recipe.model.d_model) == (4, 4, 1024)
    assert (recipe.data.vocab_size, recipe.data.trees) == (16_000, True)  # Section 6.3
    assert (recipe.decoding.beam_size, recipe.decoding.alpha, recipe.decoding.max_extra) == (21, 0.3, 300)
    assert recipe.model.d_ff == base.model.d_ff  # "all other parameters remained unchanged"
    small = load_recipe("parsing-small")
    assert (small.decoding, replace(small.data, vocab_size=16_000)) == (recipe.decoding, recipe.data)
