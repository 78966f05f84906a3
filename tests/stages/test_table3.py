"""`make table3`: the rows of the paper's Table 3 at the size of a smaller recipe, resumable."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.recipe import load_recipe, recipe_names

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "table3.py"


@pytest.fixture(scope="module")
def table3() -> ModuleType:
    spec = importlib.util.spec_from_file_location("table3", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("a-heads-1", ["model.n_heads=1", "model.d_k=128", "model.d_v=128"]),
        ("a-heads-16", ["model.n_heads=8", "model.d_k=16", "model.d_v=16"]),
        ("b-keys-16", ["model.d_k=8"]),
        ("c-layers-2", ["model.n_encoder_layers=1", "model.n_decoder_layers=1"]),
        ("c-width-1024", ["model.d_model=256", "model.d_k=64", "model.d_v=64"]),
        ("d-dropout-0", ["model.dropout=0.0"]),
        ("d-dropout-20", ["model.dropout=0.3"]),
        ("d-smoothing-20", ["training.label_smoothing=0.2"]),
        ("e-learned-positions", ["model.positions=learned"]),
        (
            "big",
            [
                "model.d_model=256",
                "model.d_ff=512",
                "model.n_heads=8",
                "model.dropout=0.45",
                "training.max_updates=28800",
            ],
        ),
    ],
)
def test_a_row_keeps_its_ratio_to_base(table3: ModuleType, row: str, expected: list[str]) -> None:
    assert table3.at_size_of(load_recipe("multi30k"), table3.row_recipe(row)) == expected


def test_at_base_s_own_size_each_row_is_its_recipe(table3: ModuleType) -> None:
    for row in table3.PAPER:
        settings = table3.at_size_of(load_recipe("base"), table3.row_recipe(row))
        assert load_recipe("base", settings) == table3.row_recipe(row)


def test_all_recipes_of_the_table_are_in_the_table(table3: ModuleType) -> None:
    rows = {f"table3/{row}" for row in table3.PAPER} - {"table3/base"}
    assert rows == {name for name in recipe_names() if name.startswith("table3/")}


def test_rows_are_trained_scored_and_kept(
    table3: ModuleType,
    small_data: PreparedData,
    small_recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    out = tmp_path / "out"
    files = ["--data", str(small_data.folder), "--out", str(out), "--set", "training.max_updates=8"]
    rows = ["base", "c-width-256", "e-learned-positions"]
    assert table3.main([str(small_recipe), *files, "--rows", *rows[:2]]) == 0
    capsys.readouterr()
    before = (out / "base" / "result.json").stat().st_mtime_ns
    assert table3.main([str(small_recipe), *files, "--rows", *rows]) == 0
    assert (out / "base" / "result.json").stat().st_mtime_ns == before
    table = capsys.readouterr().out.split("\n")
    assert [line.split()[0] for line in table[1:4]] == rows
    results = [json.loads((out / row / "result.json").read_text(encoding="utf-8")) for row in rows]
    assert all(result["perplexity"] > 1 and 0 <= result["bleu"] <= 100 for result in results)
    assert results[1]["parameters"] < results[0]["parameters"] < results[2]["parameters"]
    assert f"{results[1]['perplexity']:.2f}" in table[2]
    assert table[2].split()[1:4] == ["8", "4", "4"]  # d_model, d_k, d_v; what is as in base stays blank
    assert table[2].split()[-3:] == ["5.75", "24.5", "28"]

    others = [*files[:-1], "training.max_updates=9"]
    assert table3.main([str(small_recipe), *others, "--rows", "base"]) == 1
    assert "give another --out" in capsys.readouterr().out


def test_without_a_scale_the_parameters_are_printed(table3: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert table3.main([]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[1].split() == ["base", "65", "65.13", "63.05"]
    assert lines[-2].split() == ["big", "213", "218.33", "214.17"]
