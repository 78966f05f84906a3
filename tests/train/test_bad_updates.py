"""Micro-batches shrink where memory runs out; an update without a usable gradient is left out, and ten lead back."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from watched_trainer import CONFIG, Watched

from aiayn_cli.checkpoint.metrics_log import read_metrics
from aiayn_cli.data.batches import Position, plan_updates
from aiayn_cli.errors import AiaynError
from aiayn_cli.train import gradient as gradient_module
from aiayn_cli.train.optimizer import learning_rate
from aiayn_cli.train.resume import TrainingState


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def change_gradients(run: Watched, change: Callable[[int, Tensor], object]) -> None:
    """Change the gradient of each update, which is counted from 1."""
    optimizer, count = run.trainer.optimizer, iter(range(1, 1_000))
    accumulate = optimizer.accumulate

    def changed() -> None:
        accumulate()
        change(next(count), optimizer.gradient)

    optimizer.accumulate = changed  # type: ignore[method-assign]


def spoil(run: Watched, updates: Iterable[int], value: float = math.nan) -> None:
    """Make the gradients of some updates not finite."""
    change_gradients(run, lambda number, gradient: number in updates and gradient[7].fill_(value))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_without_a_finite_gradient_is_left_out_and_counted(
    value: float, watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=3, save_every_steps=3, with_valid=False)
    before = copied(run.weights)
    spoil(run, range(1, 3), value)
    assert run.trainer.train() == "max_updates"
    records = read_metrics(tmp_path / "metrics.jsonl")
    alone = watched(max_updates=3, save_every_steps=3, with_valid=False)  # the same gradients, the third one alone
    step, rates = alone.trainer.optimizer.step, iter([None, None, learning_rate(3, 16, 4)])
    clear = alone.trainer.optimizer.clear
    alone.trainer.optimizer.step = lambda _: clear() if (rate := next(rates)) is None else step(rate)
    alone.trainer.train()
    assert all(torch.equal(weight, alone.weights[name]) for name, weight in run.weights.items())
    assert run.trainer.state.skipped == 2
    assert run.trainer.state.step == 3
    assert not all(torch.equal(weight, before[name]) for name, weight in run.weights.items())
    assert all(weight.isfinite().all() for weight in run.weights.values())
    assert [(r["event"], r["step"]) for r in records] == [
        ("skipped", 1), ("train", 1), ("skipped", 2), ("train", 2), ("train", 3),
    ]  # fmt: skip
    assert [r["loss"] is None for r in records if r["event"] == "train"] == [True, True, False]
    err = capsys.readouterr().err
    assert f"warning: update 2 skipped: its gradient norm is {'nan' if math.isnan(value) else 'inf'}" in err


def test_an_update_whose_gradient_explodes_is_left_out_and_counted(
    watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=6, exploding_norm=50, with_valid=False, save_every_steps=6)
    change_gradients(run, lambda number, gradient: gradient.mul_({3: 400.0, 5: 10.0}.get(number, 1.0)))
    run.trainer.train()
    assert run.trainer.state.skipped == 1
    assert [r["step"] for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "skipped"] == [3]
    assert "times the usual" in capsys.readouterr().err
    with_all = watched(max_updates=6, exploding_norm=0, with_valid=False, save_every_steps=6)
    change_gradients(with_all, lambda number, gradient: gradient.mul_({3: 1e9, 5: 10.0}.get(number, 1.0)))
    with_all.trainer.train()
    assert with_all.trainer.state.skipped == 0


def returning(run: Watched) -> list[int]:
    """Give a trainer a checkpoint of its first weights; returns a list that grows with each return to it."""
    weights = copied(run.weights)
    moments = copied(run.trainer.optimizer.moments())
    returns: list[int] = []

    def go_back() -> TrainingState:
        returns.append(run.trainer.state.step)
        for name, weight in run.weights.items():
            weight.copy_(weights[name])
        run.trainer.optimizer.load_moments(moments, 0)
        return TrainingState()

    run.trainer._hooks = replace(run.trainer._hooks, load_newest=go_back)
    return returns


def test_ten_such_updates_in_a_row_lead_back_to_the_last_checkpoint_and_past_the_pairs(
    watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=6, with_valid=False, save_every_steps=100)
    returns = returning(run)
    spoil(run, range(3, 13))  # after two good updates
    before = copied(run.weights)
    optimizer, seen = run.trainer.optimizer, []
    limit = optimizer.limit_norm
    optimizer.limit_norm = lambda *args: (seen.append(copied(run.weights)), limit(*args))[1]
    run.trainer._config = replace(run.trainer._config, max_updates=15)
    assert run.trainer.train() == "max_updates"
    assert returns == [12]
    assert all(torch.equal(weight, before[name]) for name, weight in seen[12].items())  # the first update after it
    assert (run.trainer.state.step, run.trainer.state.rollbacks, run.trainer.state.skipped) == (15, 1, 0)
    store_updates = plan_updates(run.trainer.store, CONFIG.batch_tokens, CONFIG.seed, Position())
    positions = [update.after for update, _ in zip(store_updates, range(27), strict=False)]
    assert run.trainer.state.position == positions[-1]  # 12 and 15 updates further: no pairs come again
    events = [(r["event"], r["step"]) for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] != "train"]
    assert events == [*(("skipped", step) for step in range(3, 13)), ("rollback", 0)]
    assert "returning to the weights of update 0 and continuing with other pairs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("has_checkpoint", "problem"),
    [
        (False, "10 updates in a row, up to 10, had an infinite or exploding gradient"),
        (True, "and again after 3 returns to update 0"),
    ],
)
def test_ten_such_updates_in_a_row_again_and_again_end_training_with_the_weights_before(
    has_checkpoint: bool, problem: str, watched: Any
) -> None:
    run = watched(max_updates=100, with_valid=False, save_every_steps=1_000)
    before, returns = copied(run.weights), returning(run) if has_checkpoint else [0] * 4
    spoil(run, range(1, 1_000))
    with pytest.raises(AiaynError, match=problem) as error:
        run.trainer.train()
    assert "learning_rate_scale" in error.value.hint
    assert len(returns) == 4
    assert all(torch.equal(weight, before[name]) for name, weight in run.weights.items())


def test_nine_in_a_row_now_and_then_do_not(watched: Any) -> None:
    run = watched(max_updates=20, with_valid=False, save_every_steps=20)
    spoil(run, {*range(1, 10), *range(11, 20)})
    assert run.trainer.train() == "max_updates"
    assert run.trainer.state.skipped == 18


def test_weights_that_are_not_finite_are_never_saved(watched: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = watched(max_updates=8, with_valid=False, save_every_steps=2)
    returns = returning(run)
    step = run.trainer.optimizer.step
    count = iter(range(1, 100))

    def too_far(rate: float) -> None:
        step(rate)
        if next(count) == 3:
            run.trainer.optimizer._master[5] = math.inf

    run.trainer.optimizer.step = too_far
    assert run.trainer.train() == "max_updates"
    assert returns == [4]
    assert [step for step, _, _ in run.saves] == [2, 2, 4, 6, 8]
    assert "the weights are not finite after update 4; returning to the weights of update 0" in capsys.readouterr().err


def short_of_memory(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
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
    tried = short_of_memory(monkeypatch, most=60)
    assert run.trainer.train() == "max_updates"
    longest = 1 + max(run.trainer.store.longest)
    assert tried[0] == max(tried) >= 60 > longest  # nothing larger came after the first
    assert run.trainer.state.max_tokens < 1_000
    assert max(tried[tried.index(min(tried)) :]) <= run.trainer.state.max_tokens * 17 / 16
    for mine, theirs in zip(run.gradients, free.gradients, strict=True):  # no pair was lost or counted twice
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    assert any(r["event"] == "memory" for r in read_metrics(tmp_path / "metrics.jsonl"))
    assert "out of memory with 1,000 tokens per micro-batch" in capsys.readouterr().err


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
    short_of_memory(monkeypatch, most=3)
    with pytest.raises(
        AiaynError, match="out of memory even for a single pair of 10 source and 10 target tokens"
    ) as error:
        run.trainer.train()
    assert "--max-length" in error.value.hint
