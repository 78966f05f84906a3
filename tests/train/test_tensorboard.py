"""TensorBoard gets the numbers of each record; without its package one line says how to get it."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from aiayn_cli.checkpoint.metrics_log import MetricsLog, TensorBoardLog


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
