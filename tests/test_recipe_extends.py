"""`extends`: a recipe says only how it differs from another one, and every complaint names both."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aiayn_cli.config import ModelConfig, Recipe
from aiayn_cli.errors import ConfigError
from aiayn_cli.recipe import load_recipe, run_name

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_what_is_not_named_comes_from_the_extended_recipe(write: Write) -> None:
    big = load_recipe("big")
    path = write("mine.yaml", "extends: big\nmodel:\n  dropout: 0.2\n")
    assert load_recipe(str(path)) == replace(big, model=replace(big.model, dropout=0.2))
    assert load_recipe(str(path), ["model.dropout=0.4"]).model.dropout == 0.4


def test_the_key_may_stand_anywhere_and_alone(write: Write) -> None:
    assert load_recipe(str(write("alone.yaml", "extends: big\n"))) == load_recipe("big")
    path = write("last.yaml", "model:\n  n_heads: 4\nextends: base\n")
    assert load_recipe(str(path)) == Recipe(model=ModelConfig(n_heads=4))


def test_files_extend_files_beside_them_through_any_number_of_steps(write: Write) -> None:
    write("a.yaml", "extends: big\nmodel:\n  n_heads: 2\n  d_ff: 8\n")
    write("sub/b.yaml", "extends: ../a.yaml\nmodel:\n  d_ff: 16\n")
    recipe = load_recipe(str(write("sub/c.yaml", "extends: b.yaml\nmodel:\n  dropout: 0.0\n")))
    assert (recipe.model.n_heads, recipe.model.d_ff, recipe.model.dropout, recipe.model.d_model) == (2, 16, 0.0, 1024)


def test_a_fault_in_the_extended_file_names_both(write: Write) -> None:
    base = write("base-of-mine.yaml", "model:\n  n_heds: 2\n")
    path = write("mine.yaml", "extends: base-of-mine.yaml\n")
    with pytest.raises(ConfigError) as caught:
        load_recipe(str(path))
    assert caught.value.problem == f"{base}:2: unknown setting model.n_heds ({path} extends {base})"
    assert caught.value.hint == "did you mean n_heads?"


def test_a_contradiction_between_the_files_names_both(write: Write) -> None:
    base = write("a.yaml", "training:\n  keep_checkpoints: 6\n")
    path = write("b.yaml", "extends: a.yaml\ntraining:\n  average_last: 7\n")
    with pytest.raises(ConfigError, match=r"keep_checkpoints is 6, fewer than average_last \(7\)") as caught:
        load_recipe(str(path))
    assert caught.value.problem.startswith(f"{base}:2: ")
    assert caught.value.problem.endswith(f"({path} extends {base})")


def test_a_wrong_value_is_found_where_it_stands(write: Write) -> None:
    path = write("a.yaml", "extends: base\nmodel:\n  dropout: 2\n")
    with pytest.raises(ConfigError, match=rf"^{path}:3: model.dropout is 2.0.* \({path} extends .*base.yaml\)$"):
        load_recipe(str(path))
    with pytest.raises(ConfigError, match=r"^--set model.dropot=1: unknown setting model.dropot$"):
        load_recipe(str(write("b.yaml", "extends: base\n")), ["model.dropot=1"])


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("extends: bas\n", r"^{path}:1: extends is bas, but recipe file .*bas does not exist", "did you mean base?"),
        ("extends:\n", r"^{path}:1: extends has no value", "name one of"),
        ("extends: [base, big]\n", r"^{path}:1: extends is a list, but must be a single value", "write"),
        ("extends: mine.yaml\n", r"^{path}:1: extends is mine.yaml, which comes back to {path}", "extend nothing"),
        ("extends: base\nextends: big\n", r"^{path}:2: extends was already given at {path}:1", "keep one"),
        ("extend: base\n", r"^{path}:1: unknown section extend", "did you mean extends?"),
    ],
)
def test_what_cannot_be_extended_is_refused(write: Write, text: str, problem: str, hint: str) -> None:
    path = write("mine.yaml", text)
    with pytest.raises(ConfigError, match=problem.format(path=path)) as caught:
        load_recipe(str(path))
    assert hint in caught.value.hint


def test_a_circle_of_files_is_refused_with_all_of_them(write: Write) -> None:
    a, b = write("a.yaml", "extends: b.yaml\n"), write("b.yaml", "extends: a.yaml\n")
    with pytest.raises(ConfigError, match=rf"which comes back to {a} \({a} extends {b}\)"):
        load_recipe(str(a))


def test_a_run_is_named_after_its_recipe() -> None:
    assert run_name("table3/big") == "table3-big"
    assert run_name("base") == "base"
    assert run_name("my/own.yaml") == "own"


def test_an_unknown_recipe_of_a_folder_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no recipe table3/c-layer-2") as caught:
        load_recipe("table3/c-layer-2")
    assert caught.value.hint == "did you mean table3/c-layers-2?"
