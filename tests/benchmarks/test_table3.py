"""`make table3`: the rows of the paper's Table 3 at the size of a smaller recipe, resumable."""

import json
from pathlib import Path

import pytest
import table3

from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import AiaynError, Terminated
from aiayn_cli.recipe import load_recipe, recipe_names


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("a-heads-1", "model.n_heads=1 model.d_k=128 model.d_v=128"),
        ("a-heads-16", "model.n_heads=8 model.d_k=16 model.d_v=16"),
        ("b-keys-16", "model.d_k=8"),
        ("c-layers-2", "model.n_encoder_layers=1 model.n_decoder_layers=1"),
        ("c-width-1024", "model.d_model=256 model.d_k=64 model.d_v=64"),
        ("d-dropout-0", "model.dropout=0.0"),
        ("d-dropout-20", "model.dropout=0.3"),
        ("d-smoothing-20", "training.label_smoothing=0.2"),
        ("e-learned-positions", "model.positions=learned"),
        ("big", "model.d_model=256 model.d_ff=512 model.n_heads=8 model.dropout=0.45 training.max_updates=28800"),
    ],
)
def test_a_row_keeps_its_ratio_to_base(row: str, expected: str) -> None:
    assert table3.at_size_of(load_recipe("multi30k"), table3.row_recipe(row)) == expected.split()


def test_at_base_s_own_size_each_row_is_its_recipe() -> None:
    for row in table3.PAPER:
        settings = table3.at_size_of(load_recipe("base"), table3.row_recipe(row))
        assert load_recipe("base", settings) == table3.row_recipe(row)


def test_all_recipes_of_the_table_are_in_the_table() -> None:
    rows = {f"table3/{row}" for row in table3.PAPER} - {"table3/base"}
    assert rows == {name for name in recipe_names() if name.startswith("table3/")}


def test_rows_are_trained_scored_and_kept(
    small_data: PreparedData, small_recipe: Path, tmp_path: Path, no_flush: None, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert table3.main([str(small_recipe), *others, "--rows", "base"]) == 2
    assert "give another --out" in capsys.readouterr().err
    (out / "base" / "result.json").unlink()  # as if it had been stopped before its end
    others = [*files, "--set", "model.dropout=0.3"]
    assert table3.main([str(small_recipe), *others, "--rows", "base"]) == 2
    assert "was begun with model.dropout" in capsys.readouterr().err


def result(bleu: float) -> dict[str, object]:
    return {"settings": [], "data": "", "perplexity": 7.0, "bleu": bleu, "parameters": 1, "seconds": 60.0}


@pytest.mark.parametrize(
    ("trouble", "code"),
    [(KeyboardInterrupt(), 130), (Terminated("ended"), 143), (AiaynError("no memory", "take less"), 1)],
)
def test_what_is_done_is_printed_even_where_a_later_row_is_not(
    small_data: PreparedData,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    trouble: BaseException,
    code: int,
) -> None:
    def run_row(row: str, *_: object) -> object:
        if row == "a-heads-1":
            raise trouble
        return table3.RowResult(**result(12.5))

    monkeypatch.setattr(table3, "run_row", run_row)
    rows = ["base", "a-heads-1", "a-heads-4"]
    assert table3.main(["multi30k", "--data", str(small_data.folder), "--rows", *rows]) == code
    captured = capsys.readouterr()
    shown = [line.split()[0] for line in captured.out.rstrip().split("\n")[1:]]
    assert shown == (["base", "a-heads-4"] if code == 1 else ["base"])  # one that failed does not stop the others
    assert ("error: no memory\nhint: take less" in captured.err) == (code == 1)


def test_a_short_run_keeps_the_paper_s_ratio_of_updates(
    small_data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[str]] = {}

    def run_row(row: str, scale: str, overrides: list[str], *_: object) -> object:
        asked[row] = [*overrides, *table3.at_size_of(load_recipe(scale, overrides), table3.row_recipe(row))]
        return table3.RowResult(**result(1.0))

    monkeypatch.setattr(table3, "run_row", run_row)
    rows = ["--rows", "base", "big"]
    assert table3.main(["multi30k", "--data", str(small_data.folder), "--updates", "500", *rows]) == 0
    base, big = (load_recipe("multi30k", asked[row]).training for row in ("base", "big"))
    assert (base.max_updates, big.max_updates) == (500, 1500)
    assert base.warmup_steps == big.warmup_steps == 100


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["multi31k"], "did you mean multi30k?"),
        (["parsing-small"], "Table 3 about translation"),
        (["multi30k", "--data", "nowhere"], "nowhere"),
        (["multi30k", "--updates", "0"], "max_updates"),
        (["multi30k", "--set", "model.d_modell=8"], "did you mean"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_trained(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert table3.main(words) in (1, 2)
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("error:") == 1
    assert not captured.out


def test_without_a_scale_the_parameters_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert table3.main([]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[1].split() == ["base", "65", "65.13", "63.05"]
    assert lines[-2].split() == ["big", "213", "218.33", "214.17"]
