"""metrics.jsonl: whole lines of valid JSON, whatever happened to the run before; TensorBoard gets its numbers."""

import json
import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from aiayn_cli.checkpoint.metrics_log import (
    MetricsLog,
    TensorBoardLog,
    perplexity,
    progress_facts,
    read_metrics,
    standing,
)


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


def test_a_log_makes_no_file_before_its_first_record_and_none_without_a_name(tmp_path: Path) -> None:
    MetricsLog(None).write("train", step=1)
    MetricsLog(tmp_path / "metrics.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_listeners_hear_each_record_after_it_is_written(tmp_path: Path) -> None:
    path, heard = tmp_path / "metrics.jsonl", []
    log = MetricsLog(path, [lambda record: heard.append((record, read_metrics(path)[-1]))])
    log.write("train", step=1, loss=math.nan)
    ((record, written),) = heard
    assert record == written == log.latest["train"]
    assert record["loss"] is None


@pytest.mark.parametrize("event", ["resume", "rollback"])
def test_what_was_undone_no_longer_stands(event: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step, bleu in ((4, 10.0), (8, 20.0)):
        log.write("validation", step=step, bleu=bleu)
    log.write(event, step=4)
    assert MetricsLog(path).latest["validation"]["bleu"] == 10.0
    assert [(r["event"], r["step"]) for r in standing(read_metrics(path))] == [("validation", 4), (event, 4)]
    MetricsLog(path).write("validation", step=8, bleu=30.0)
    assert [r.get("bleu") for r in standing(read_metrics(path))] == [10.0, None, 30.0]


def test_of_an_update_that_was_validated_twice_the_last_validation_stands(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step, bleu in ((4, 10.0), (8, 20.0), (8, 20.0)):
        log.write("validation", step=step, bleu=bleu)
        log.write("resume", step=step)  # after a kill between the validation and its checkpoint
    records = standing(read_metrics(tmp_path / "metrics.jsonl"))
    assert [(r["step"], r["bleu"]) for r in records if r["event"] == "validation"] == [(4, 10.0), (8, 20.0)]


TRAIN = {"loss": 2.0, "perplexity": 7.389, "learning_rate": 7e-4, "tokens_per_second": 12345.6, "mfu": 0.413}


def test_the_progress_line_says_what_is_known() -> None:
    facts = ["epoch 3", "loss 2.000", "perplexity 7.389", "rate 0.0007", "12,346 target tokens/s", "MFU 41 %"]
    assert progress_facts(2, TRAIN, {"bleu": 31.27, "step": 1500}) == [*facts, "BLEU 31.3 at 1,500"]
    assert progress_facts(2, TRAIN, {"bleu": None, "step": 1500}) == facts
    assert progress_facts(2, {**TRAIN, "mfu": math.nan}, None) == facts[:-1]


@pytest.mark.parametrize(
    ("loss", "expected"), [(0.0, 1.0), (2.0, math.exp(2)), (701.0, math.inf), (math.inf, math.inf)]
)
def test_perplexity_never_overflows(loss: float, expected: float) -> None:
    assert perplexity(loss) == expected
    assert math.isnan(perplexity(math.nan))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
def test_a_full_disk_is_told_with_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        MetricsLog(Path("/dev/full")).write("train", step=1)


@pytest.mark.parametrize(
    "line",
    [
        '{"event": ["train"], "step": 2}', '{"event": "train", "step": "x"}', '{"event": "train", "step": true}',
        '{"event": "train", "step": 2, "loss": [1]}', '{"event": "train", "step": -1}', '{"event": "resume"}',
        '{"event": "rollback", "step": null}', '{"event": "samples", "step": 2, "sources": 5}', "[" * 100_000,
        '{"event": "validation", "step": 2, "best": 5}', '{"event": "train", "step": 2, "loss": 1e400}', "5",
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_of_ours_is_left_out(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    MetricsLog(path).write("train", step=1)
    with path.open("a") as file:
        file.write(line + "\n")
    log = MetricsLog(path)
    log.write("resume", step=1)
    assert [record["event"] for record in standing(read_metrics(path))] == ["train", "resume"]


def drawn(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_numbers_of_training_and_validation_are_drawn_at_their_updates(tmp_path: Path) -> None:
    board = TensorBoardLog(tmp_path / "board", 0)
    log = MetricsLog(tmp_path / "metrics.jsonl", [board.write])
    log.write("train", step=5, loss=2.5, mfu=None, epoch=1)
    log.write("validation", step=10, loss=3.5, bleu=12.5, best=True)
    log.write("samples", step=10, sources=["a"], references=["b"], translations=["*c*"])
    log.write("checkpoint", step=10, path="step-00000010")
    events = drawn(tmp_path / "board")
    assert set(events.Tags()["scalars"]) == {"train/loss", "validation/loss", "validation/bleu"}
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(5, 2.5)]
    assert [(e.step, e.value) for e in events.Scalars("validation/bleu")] == [(10, 12.5)]
    (text,) = events.Tensors("sample 1/text_summary")
    assert b"*c*" in text.tensor_proto.string_val[0]


def test_a_continued_run_takes_back_what_was_drawn_of_lost_updates(tmp_path: Path) -> None:
    for after_step, steps in ((0, (5, 10)), (5, (8,))):
        board = TensorBoardLog(tmp_path, after_step)
        for step in steps:
            board.write({"event": "train", "time": 1.0 + step, "step": step, "loss": float(step)})
        board.write({"event": "checkpoint", "time": 99.0, "step": steps[-1]})
    assert [e.step for e in drawn(tmp_path).Scalars("train/loss")] == [5, 8]
