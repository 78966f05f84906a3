"""The check of a GPU is a program that works: here on the CPU, in its smallest form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from made_pairs import read_pair

from aiayn_cli.data.store import TokenStore

CHECK = Path(__file__).with_name("check.sh")


def test_the_check_runs_without_a_gpu_and_writes_its_figures(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    result = subprocess.run(
        ["sh", str(CHECK), "--device", "cpu", "--small", "--seconds", "0.1", "--only", "base,graphs,precision",
         "--out", str(out)],
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    figures = json.loads(out.read_bytes())
    assert figures["passed"]
    assert list(figures["checks"]) == ["base", "graphs", "precision"]
    base, graphs, precision = figures["checks"].values()
    assert base["target_tokens_per_second"] > 0
    assert 0 < base["mfu"] < 1.5  # of a rate that was measured at another moment
    assert base["last_loss"] < base["first_loss"]
    assert 0 < base["padding_share"] < 0.05
    assert (graphs["replayed"], graphs["problem"], graphs["largest_relative_difference"]) == (False, "no GPU", 0)
    assert 0 < precision["largest_relative_difference"] < 0.02
    assert [line[:6] for line in result.stdout.split("\n")[1:4]] == ["ok    "] * 3


def test_what_is_wrong_makes_the_exit_code_1(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    program = (
        "import sys, runpy; sys.argv = ['check.py', '--device', 'cpu', '--only', 'base', '--out', sys.argv[1]]; "
        "import aiayn_cli.recipe; aiayn_cli.recipe.load_recipe = None; "
        f"runpy.run_path({str(CHECK.with_name('check.py'))!r}, run_name='__main__')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECK.parent), *sys.path])}
    result = subprocess.run([sys.executable, "-c", program, str(out)], env=environment, capture_output=True, text=True)
    assert result.returncode == 1, result.stderr
    figures = json.loads(out.read_bytes())
    assert not figures["passed"]
    assert "TypeError" in figures["checks"]["base"]["error"]
    assert "WRONG  base" in result.stdout


def test_made_sentences_have_the_lengths_of_wmt_and_all_their_ids_are_words(tmp_path: Path) -> None:
    sys.path.insert(0, str(CHECK.parent))
    try:
        from made_sentences import sentences_like_wmt
    finally:
        sys.path.pop(0)
    store: TokenStore = sentences_like_wmt(tmp_path / "made", 20_000, 37_000)
    assert len(store) == 20_000
    for lengths in (store.lengths(range(len(store)), "src"), store.lengths(range(len(store)), "tgt")):
        assert 25 < lengths.mean() < 31
        assert lengths.min() >= 1
        assert 150 < lengths.max() <= 250
    assert np.corrcoef(store.lengths(range(len(store)), "src"), store.lengths(range(len(store)), "tgt"))[0, 1] > 0.9
    src, tgt = (np.concatenate([read_pair(store, i)[side] for i in range(0, 20_000, 40)]) for side in (0, 1))
    for ids in (src, tgt):
        assert ids.min() >= 4
        assert ids.max() < 37_000
