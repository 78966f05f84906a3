"""Each row of Table 3 has a recipe that says only what differs from base, and has the parameters that are printed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from aiayn_cli.model.build import build_empty
from aiayn_cli.model.translation_model import count_parameters
from aiayn_cli.recipe import load_recipe, recipe_names
from aiayn_cli.recipe_keys import ModelConfig, Recipe

CHECKOUT = Path(__file__).parent.parent
FOLDER = CHECKOUT / "recipes" / "table3"
PAGE = (CHECKOUT / "recipes" / "README.md").read_text(encoding="utf-8")
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


def test_counts_follow_from_the_equations_of_the_paper() -> None:
    assert count(ModelConfig(), 37_000) == 63_045_632
    assert count(load_recipe("big").model, 37_000) == 214_171_648
    attention = 4 * 512 * 512
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    base = 1_000 * 512 + encoder + decoder
    assert count(ModelConfig(), 1_000) == base
    learned = load_recipe("table3/e-learned-positions").model
    assert count(learned, 1_000) == base + 2 * learned.max_positions * 512  # one table for each stack
    assert count(ModelConfig(norm="pre"), 1_000) == base + 2 * 2 * 512
    assert count(ModelConfig(attention_window=5, dropout=0.3), 1_000) == base


# ---- recipes/README.md names recipes, files and settings that exist, and figures that are the measured ones


def test_every_recipe_it_names_exists() -> None:
    named = set(re.findall(r"--recipe ([a-z0-9/-]+)", PAGE))
    assert {"base", "big", "parsing", "parsing-small", "base-en-fr", "big-en-fr"} <= named <= set(recipe_names())


def test_every_file_it_names_exists() -> None:
    paths = re.findall(r"(?:tests|aiayn_cli)/[a-z0-9_/]+\.[a-z]+", PAGE)
    assert len(paths) > 8
    for path in paths:
        assert (CHECKOUT / path).is_file(), path


def test_every_setting_it_names_exists() -> None:
    for section, key in re.findall(r"\b(data|model|training|decoding)\.([a-z_0-9]+)\b(?!\.py)", PAGE):
        assert hasattr(getattr(Recipe(), section), key), f"{section}.{key}"


@pytest.mark.parametrize(
    "what",
    [
        *("2", "3.1", "3.2", "3.3", "3.4", "3.5", "4", "5.1", "5.2", "5.3", "5.4", "6.1", "6.3"),
        *("Table 1", "Table 2", "Table 3", "Table 4", "Figure 1", "Figure 2", "Figures 3 to 5"),
    ],
)
def test_every_section_table_and_figure_of_the_paper_has_a_row(what: str) -> None:
    assert f"\n| {what}, " in PAGE


def test_the_growth_of_layers_is_what_was_measured() -> None:
    results = (CHECKOUT / "tests" / "benchmarks" / "results" / "layers.txt").read_text(encoding="utf-8")
    growth = results[results.index("growth") :]
    for name, page_name in (
        ("self-attention ", "self-attention |"),
        ("restricted self-attention r=32", "restricted self-attention, r = 32"),
        ("recurrent (LSTM)", "recurrent (LSTM)"),
        ("convolution k=3", "convolution, k = 3"),
        ("separable convolution k=3", "separable convolution, k = 3"),
    ):
        row = next(line for line in growth.split("\n") if line.startswith(name))
        measured = re.findall(r"\d\.\d\d", row)[0]
        page_row = next(line for line in PAGE.split("\n") if line.startswith(f"| {page_name}"))
        assert page_row.endswith(f"| {measured} |")
