"""metrics.jsonl: whole lines of valid JSON, whatever happened to the run before."""

import json
import math
from pathlib import Path

from aiayn_cli.training.metrics import MetricsLog, read_metrics


def test_records_are_appended_over_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).write("train", step=1, loss=2.5)
    MetricsLog(path).write("train", step=2, note="Größe\n2")
    first, second = read_metrics(path)
    assert (first["event"], first["step"], first["loss"]) == ("train", 1, 2.5)
    assert second["note"] == "Größe\n2"
    assert first["time"] <= second["time"]


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).write("train", loss=math.nan, perplexity=math.inf, rate=1e-4)
    record = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda name: f"not JSON: {name}")
    assert (record["loss"], record["perplexity"], record["rate"]) == (None, None, 1e-4)


def test_a_line_cut_short_by_a_crash_takes_no_later_record_with_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).write("train", step=1)
    with path.open("ab") as file:
        file.write(b'{"event": "train", "st')
    log = MetricsLog(path)
    log.write("resume", step=2)
    log.write("train", step=3)
    assert [record["step"] for record in read_metrics(path)] == [1, 2, 3]


def test_without_a_file_nothing_is_written(tmp_path: Path) -> None:
    MetricsLog(None).write("train", step=1)
    assert list(tmp_path.iterdir()) == []


def test_a_log_makes_no_file_before_its_first_record(tmp_path: Path) -> None:
    MetricsLog(tmp_path / "metrics.jsonl")
    assert list(tmp_path.iterdir()) == []
