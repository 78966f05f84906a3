"""recipes/README.md names recipes, files and settings that exist, and figures that are the measured ones."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from aiayn_cli.config import DataConfig, DecodingConfig, ModelConfig, TrainingConfig
from aiayn_cli.recipe import recipe_names

CHECKOUT = Path(__file__).parent.parent
PAGE = (CHECKOUT / "recipes" / "README.md").read_text(encoding="utf-8")
SECTIONS = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig, "decoding": DecodingConfig}


def test_every_recipe_it_names_exists() -> None:
    named = set(re.findall(r"--recipe ([a-z0-9/-]+)", PAGE))
    assert {"base", "big", "parsing", "parsing-small", "base-en-fr", "big-en-fr"} <= named <= set(recipe_names())


def test_every_file_it_names_exists() -> None:
    paths = re.findall(r"(?:tests|aiayn_cli)/[a-z0-9_/]+\.[a-z]+", PAGE)
    assert len(paths) > 8
    for path in paths:
        assert (CHECKOUT / path).is_file(), path
    for link in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (CHECKOUT / "recipes" / link).exists(), link


def test_every_setting_it_names_exists() -> None:
    for section, key in re.findall(r"\b(data|model|training|decoding)\.([a-z_0-9]+)\b(?!\.py)", PAGE):
        assert key in {field.name for field in fields(SECTIONS[section])}, f"{section}.{key}"


@pytest.mark.parametrize(
    "section", ["2", "3.1", "3.2", "3.3", "3.4", "3.5", "4", "5.1", "5.2", "5.3", "5.4", "6.1", "6.3"]
)
def test_every_section_of_the_paper_has_a_row(section: str) -> None:
    assert f"\n| {section}, " in PAGE


@pytest.mark.parametrize("what", ["Table 1", "Table 2", "Table 3", "Table 4", "Figure 1", "Figure 2", "Figures 3 to 5"])
def test_every_table_and_figure_has_a_row(what: str) -> None:
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
