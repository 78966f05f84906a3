"""Memory that runs out makes micro-batches smaller, and no pair is lost or counted twice."""

from pathlib import Path
from typing import Any

import pytest
import torch
from watched_trainer import Watched

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.errors import AiaynError
from aiayn_cli.train import gradient as gradient_module


def short_of_memory(run: Watched, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let memory run out in micro-batches of more target tokens; returns a list of the sizes that were tried."""
    forward, tried = gradient_module.teacher_forced, []

    def limited(model: Any, store: Any, pairs: Any, device: Any) -> Any:
        hidden, targets = forward(model, store, pairs, device)
        tried.append(len(targets))
        if len(targets) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return hidden, targets

    monkeypatch.setattr(gradient_module, "teacher_forced", limited)
    return tried


def test_the_largest_batch_runs_first_and_memory_that_runs_out_halves_it(
    watched: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = watched(max_updates=2, with_valid=False)
    free.trainer.train()
    run = watched(max_updates=2, with_valid=False)
    tried = short_of_memory(run, monkeypatch, most=60)
    assert run.trainer.train() == "max_updates"
    longest = 1 + max(
        int(run.trainer.store.lengths(range(len(run.trainer.store)), "tgt").max()),
        int(run.trainer.store.lengths(range(len(run.trainer.store)), "src").max()),
    )
    assert tried[0] == max(tried) >= 60 > longest  # nothing larger came after the first
    assert run.trainer.state.max_tokens < 1_000
    assert max(tried[tried.index(min(tried)) :]) <= run.trainer.state.max_tokens * 17 / 16
    for mine, theirs in zip(run.gradients, free.gradients, strict=True):  # no pair was lost or counted twice
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert any(r["event"] == "memory" for r in read_metrics(tmp_path / "metrics.jsonl"))
    assert "memory ran out with 1,000 tokens in a micro-batch" in capsys.readouterr().err


def test_memory_that_runs_out_in_the_middle_of_an_update_repeats_it(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = watched(max_updates=3, max_tokens=70, with_valid=False)
    free.trainer.train()
    run = watched(max_updates=3, max_tokens=70, with_valid=False)
    forward, count = gradient_module.teacher_forced, iter(range(1_000))

    def limited(*args: Any) -> Any:
        if next(count) == 4:  # not the first micro-batch of its update
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: can't allocate memory: you")
        return forward(*args)

    monkeypatch.setattr(gradient_module, "teacher_forced", limited)
    run.trainer.train()
    assert run.trainer.state.max_tokens == 35
    for mine, theirs in zip(run.gradients, free.gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_a_single_pair_that_does_not_fit_ends_training(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = watched(with_valid=False)
    short_of_memory(run, monkeypatch, most=3)
    with pytest.raises(AiaynError, match="not enough memory for one pair of 10 source and 10 target tokens") as error:
        run.trainer.train()
    assert "--max-length" in error.value.hint
