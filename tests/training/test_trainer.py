"""One update is the same however it is divided; what goes wrong is counted, and what is best is kept."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.config import ModelConfig, TrainingConfig
from aiayn_cli.data.batches import Position, plan_updates
from aiayn_cli.data.store import TokenStore
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.training import gradient as gradient_module
from aiayn_cli.training import trainer as trainer_module
from aiayn_cli.training import validation as validation_module
from aiayn_cli.training.distributed import Worker
from aiayn_cli.training.metrics import MetricsLog, read_metrics
from aiayn_cli.training.optimizer import MasterAdam
from aiayn_cli.training.rollback import Rollback
from aiayn_cli.training.schedule import learning_rate
from aiayn_cli.training.state import TrainingState
from aiayn_cli.training.trainer import Hooks, Trainer
from aiayn_cli.training.validation import ValidationLoss

CONFIG = TrainingConfig(
    batch_tokens=120, max_tokens=1_000, max_updates=6, warmup_steps=4, save_every_steps=2, log_every_steps=1, seed=5
)

SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7)  # model_of's
VOCAB_SIZE = 31


@dataclass
class Watched:
    """A trainer, and what it asked of its surroundings."""

    trainer: Trainer
    saves: list[tuple[int, bool, bool]] = field(default_factory=list)  # step, best, regular
    gradients: list[Tensor] = field(default_factory=list)  # as they were applied
    rates: list[float] = field(default_factory=list)

    @property
    def weights(self) -> dict[str, Tensor]:
        return self.trainer.optimizer.weights()


@pytest.fixture
def watched(tmp_path: Path, store_of: Callable[..., TokenStore], model_of: Callable[..., TranslationModel]) -> Any:
    def make(
        *,
        state: TrainingState | None = None,
        bleu: Iterable[float] | None = None,
        signals: Callable[[], str] = lambda: "",
        with_valid: bool = True,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> Watched:
        config = replace(CONFIG, **settings)
        model = model_of(dtype, dropout=dropout)
        optimizer = MasterAdam(model, config)
        found: Watched
        hooks = Hooks(
            save=lambda state, best, regular: found.saves.append((state.step, best, regular)),
            bleu=None if bleu is None else iter(bleu).__next__,
            interrupted=signals,
            cost=TrainingCost(SHAPE, VOCAB_SIZE),
            matmul_rate=2e9,
        )
        step = optimizer.step

        def watched_step(learning_rate: float) -> None:
            found.gradients.append(optimizer.gradient.clone())
            found.rates.append(learning_rate)
            step(learning_rate)

        optimizer.step = watched_step  # type: ignore[method-assign]
        found = Watched(
            Trainer(
                model,
                optimizer,
                store_of(90),
                store_of(11, split="valid", seed=1) if with_valid else None,
                config,
                d_model=16,
                device=torch.device("cpu"),
                worker=Worker(),
                metrics=MetricsLog(tmp_path / "metrics.jsonl"),
                hooks=hooks,
                state=state or TrainingState(),
            )
        )
        return found

    return make


def naive_gradient(model: TranslationModel, store: TokenStore, pairs: list[int], smoothing: float) -> Tensor:
    """The gradient of the mean smoothed loss over all target tokens, a pair at a time, by torch's own loss."""
    total, tokens = torch.zeros(()), 0
    for pair in pairs:
        src, tgt = (ids.tolist() for ids in store.pair(pair))
        logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
        targets = torch.tensor([*tgt, EOS_ID])
        total = total + functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        tokens += len(targets)
    return torch.cat([g.flatten() for g in torch.autograd.grad(total / tokens, list(model.parameters()))])


@pytest.mark.parametrize("max_tokens", [1_000, 60, 17, 1])  # one micro-batch; several; one for each pair
def test_an_update_is_the_mean_over_its_target_tokens_however_it_is_divided(
    max_tokens: int,
    watched: Any,
    model_of: Callable[..., TranslationModel],
    store_of: Callable[..., TokenStore],
) -> None:
    run = watched(max_tokens=max_tokens, max_updates=1, label_smoothing=0.2, with_valid=False)
    run.trainer.train()
    store = store_of(90)
    update = next(plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position()))
    expected = naive_gradient(model_of(), store, update.pairs.tolist(), 0.2)
    torch.testing.assert_close(run.gradients[0], expected, rtol=1e-4, atol=1e-6)


def test_dropout_depends_on_the_place_in_the_run_alone(watched: Any) -> None:
    runs = [watched(dropout=0.3, max_updates=n, max_tokens=40) for n in (2, 3)]
    for run in runs:
        torch.manual_seed(len(run.saves) + id(run) % 100)  # whatever was drawn before
        run.trainer.train()
    assert torch.equal(runs[0].gradients[0], runs[1].gradients[0])
    assert torch.equal(runs[0].gradients[1], runs[1].gradients[1])
    other_seed = watched(dropout=0.3, max_updates=1, max_tokens=40, seed=6)
    other_seed.trainer.train()
    assert not torch.equal(runs[0].gradients[0], other_seed.gradients[0])


def test_no_two_micro_batches_of_a_run_have_the_same_dropout(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: dict[int, list[int]] = {5: [], 6: []}
    for seed, drawn in seeds.items():
        run = watched(dropout=0.3, max_updates=6, max_tokens=40, seed=seed, with_valid=False)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "manual_seed", drawn.append)
            run.trainer.train()
        assert len(set(drawn)) == len(drawn) > 12  # several for each update
    assert not set(seeds[5]) & set(seeds[6])


def test_bf16_learns_what_float32_learns(watched: Any) -> None:
    single, half = watched(max_updates=1, max_tokens=50), watched(max_updates=1, max_tokens=50, dtype=torch.bfloat16)
    single.trainer.train()
    half.trainer.train()
    difference = float((single.gradients[0] - half.gradients[0]).norm() / single.gradients[0].norm())
    assert difference < 0.06  # of a network 16 wide; two roundings to 8 bits are 0.004 each


def test_rates_follow_the_schedule(watched: Any) -> None:
    run = watched(learning_rate_scale=0.5)
    run.trainer.train()
    assert run.rates == [learning_rate(step, 16, 4, 0.5) for step in range(1, 7)]


def test_training_learns(watched: Any, tmp_path: Path) -> None:
    run = watched(max_updates=150, batch_tokens=400, learning_rate_scale=0.2, warmup_steps=30, save_every_steps=150)
    run.trainer.train()
    losses = [record["loss"] for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "train"]
    assert losses[0] == pytest.approx(math.log(31), abs=0.8)  # as good as guessing
    assert losses[-1] < 0.7 * losses[0]


def test_going_on_from_any_update_is_exact(watched: Any) -> None:
    whole = watched(dropout=0.2, max_tokens=40)
    whole.trainer.train()
    for stop in range(1, 6):
        calls: Iterator[str] = iter([""] * (stop - 1) + ["SIGTERM"])
        first = watched(dropout=0.2, max_tokens=40, signals=calls.__next__)
        assert first.trainer.train() == "SIGTERM"
        state = TrainingState.from_json(json.loads(json.dumps(first.trainer.state.to_json())), Path())
        assert state == first.trainer.state
        second = watched(dropout=0.2, max_tokens=40, state=state)
        weights = {name: weight.clone() for name, weight in first.weights.items()}
        second.trainer.optimizer.__init__(second.trainer.model, CONFIG, weights)
        second.trainer.optimizer.load_moments(first.trainer.optimizer.moments(), state.step)
        assert second.trainer.train() == "max_updates"
        assert all(torch.equal(weight, whole.weights[name]) for name, weight in second.weights.items())
        times = {"seconds": 0.0, "saved_seconds": 0.0}
        assert replace(second.trainer.state, **times) == replace(whole.trainer.state, **times)


@pytest.mark.parametrize(("stop", "saved"), [(3, (3, False, False)), (4, (4, False, True))])
def test_a_signal_saves_the_place_once(stop: int, saved: tuple[int, bool, bool], watched: Any) -> None:
    calls = iter([""] * (stop - 1) + ["SIGINT"])
    run = watched(signals=calls.__next__, with_valid=False)
    assert run.trainer.train() == "SIGINT"
    assert run.saves == [(2, False, True), saved]
    assert run.trainer.state.step == stop


def test_a_signal_during_the_last_update_changes_nothing(watched: Any) -> None:
    run = watched(signals=lambda: "SIGTERM", max_updates=1)
    assert run.trainer.train() == "max_updates"
    assert run.saves == [(1, True, True)]


def spoil(run: Watched, updates: Iterable[int], value: float = math.nan) -> None:
    """Make the gradients of some updates, counted from 1, not finite."""
    optimizer, count = run.trainer.optimizer, iter(range(1, 1_000))
    accumulate = optimizer.accumulate

    def spoilt() -> None:
        accumulate()
        if next(count) in updates:
            optimizer.gradient[7] = value

    optimizer.accumulate = spoilt  # type: ignore[method-assign]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_without_a_finite_gradient_is_left_out_and_counted(
    value: float, watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=3, save_every_steps=3, with_valid=False)
    before = {name: weight.clone() for name, weight in run.weights.items()}
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
    assert f"warning: update 2 is skipped: its gradient norm is {'nan' if math.isnan(value) else 'inf'}" in err


def test_ten_such_updates_in_a_row_end_training_and_weights_are_those_before(watched: Any) -> None:
    run = watched(max_updates=40, with_valid=False, save_every_steps=100)
    before = {name: weight.clone() for name, weight in run.weights.items()}
    spoil(run, range(1, 100))
    with pytest.raises(AiaynError, match="10 updates in a row up to 10 had no finite gradient") as error:
        run.trainer.train()
    assert "learning_rate_scale" in error.value.hint
    assert all(torch.equal(weight, before[name]) for name, weight in run.weights.items())


def test_an_update_whose_gradient_explodes_is_left_out_and_counted(
    watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=6, exploding_norm=50, with_valid=False, save_every_steps=6)
    optimizer, sizes, accumulate = run.trainer.optimizer, iter([1.0, 1.0, 400.0, 1.0, 10.0, 1.0]), None
    accumulate = optimizer.accumulate

    def blown_up() -> None:
        accumulate()
        optimizer.gradient.mul_(next(sizes))

    optimizer.accumulate = blown_up
    run.trainer.train()
    assert run.trainer.state.skipped == 1
    assert [r["step"] for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "skipped"] == [3]
    assert "times the usual" in capsys.readouterr().err
    with_all = watched(max_updates=6, exploding_norm=0, with_valid=False, save_every_steps=6)
    sizes, accumulate = iter([1.0, 1.0, 1e9, 1.0, 10.0, 1.0]), with_all.trainer.optimizer.accumulate
    optimizer = with_all.trainer.optimizer
    optimizer.accumulate = blown_up
    with_all.trainer.train()
    assert with_all.trainer.state.skipped == 0


def returning(run: Watched, state: TrainingState) -> list[int]:
    """Give a trainer a checkpoint of its present weights; returns a list that grows with each return to it."""
    weights = {name: weight.clone() for name, weight in run.weights.items()}
    moments = {name: moment.clone() for name, moment in run.trainer.optimizer.moments().items()}
    returns: list[int] = []

    def go_back() -> TrainingState:
        returns.append(run.trainer.state.step)
        run.trainer.optimizer.load_weights(weights)
        run.trainer.optimizer.load_moments(moments, state.step)
        return state

    run.trainer._rollback = Rollback(go_back)
    return returns


def test_ten_such_updates_in_a_row_lead_back_to_the_last_checkpoint_and_past_the_pairs(
    watched: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = watched(max_updates=6, with_valid=False, save_every_steps=100)
    returns = returning(run, TrainingState())
    spoil(run, range(3, 13))  # after two good updates
    before = {name: weight.clone() for name, weight in run.weights.items()}
    optimizer, seen = run.trainer.optimizer, []
    limit = optimizer.limit_norm
    optimizer.limit_norm = lambda *args: (seen.append({n: w.clone() for n, w in run.weights.items()}), limit(*args))[1]
    run.trainer._config = replace(run.trainer._config, max_updates=15)
    assert run.trainer.train() == "max_updates"
    assert returns == [12]
    assert all(torch.equal(weight, before[name]) for name, weight in seen[12].items())  # the first update after it
    assert (run.trainer.state.step, run.trainer.state.rollbacks, run.trainer.state.skipped) == (15, 1, 0)
    store_updates = plan_updates(run.trainer._train, CONFIG.batch_tokens, CONFIG.seed, Position())
    positions = [update.after for update, _ in zip(store_updates, range(27), strict=False)]
    assert run.trainer.state.position == positions[-1]  # 12 and 15 updates further: no pairs come again
    events = [(r["event"], r["step"]) for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] != "train"]
    assert events == [*(("skipped", step) for step in range(3, 13)), ("rollback", 0)]
    assert "back to the weights of update 0, and on with other pairs" in capsys.readouterr().err


def test_training_that_explodes_again_and_again_ends(watched: Any) -> None:
    run = watched(max_updates=100, with_valid=False, save_every_steps=1_000)
    returns = returning(run, TrainingState())
    spoil(run, range(1, 1_000))
    with pytest.raises(AiaynError, match="and again after 3 returns to update 0") as error:
        run.trainer.train()
    assert "learning_rate_scale" in error.value.hint
    assert len(returns) == 4


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
    longest = 1 + max(int(run.trainer._train.tgt_lengths.max()), int(run.trainer._train.src_lengths.max()))
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


def test_other_errors_of_torch_are_no_lack_of_memory(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(gradient_module, "teacher_forced", fail)
    with pytest.raises(RuntimeError, match="shapes"):
        watched(with_valid=False).trainer.train()


def test_by_time_a_checkpoint_comes_after_so_much_training(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1_000_000, 30))  # each look at the clock takes half a minute
    monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: float(next(now)))
    run = watched(max_updates=10, save_every_minutes=2, save_every_steps=1, with_valid=False)
    run.trainer.train()
    steps = [step for step, _, regular in run.saves if regular]
    assert 3 <= len(steps) <= 6
    assert steps[-1] == 10
    assert len(set(b - a for a, b in zip(steps[:-1], steps[1:-1], strict=False))) == 1  # noqa: C401, RUF007
    assert run.trainer.state.saves == len(steps)


def test_nine_in_a_row_now_and_then_do_not(watched: Any) -> None:
    run = watched(max_updates=20, with_valid=False, save_every_steps=20)
    spoil(run, {*range(1, 10), *range(11, 20)})
    assert run.trainer.train() == "max_updates"
    assert run.trainer.state.skipped == 18


def test_a_gradient_is_cut_to_the_norm_and_a_smaller_one_is_left_alone(watched: Any, tmp_path: Path) -> None:
    free = watched(max_updates=1)
    free.trainer.train()
    norm = float(free.gradients[0].norm())
    for clip_norm, expected in ((norm / 3, free.gradients[0] / 3), (norm * 1.01, free.gradients[0])):
        run = watched(max_updates=1, clip_norm=clip_norm)
        run.trainer.train()
        torch.testing.assert_close(run.gradients[0], expected)
        record = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "train"][-1]
        assert record["gradient_norm"] == pytest.approx(norm)  # the log has the norm before cutting


def test_the_best_bleu_is_the_highest(watched: Any) -> None:
    run = watched(bleu=[10.0, 12.0, 12.0], best_metric="bleu")
    run.trainer.train()
    assert run.saves == [(2, True, True), (4, True, True), (6, False, True)]  # an equal one is no better
    state = run.trainer.state
    assert (state.best_value, state.best_step, state.worse_validations) == (12.0, 4, 1)


def scripted_losses(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    results = iter(ValidationLoss(loss, 10) for loss in losses)
    monkeypatch.setattr(validation_module, "validation_loss", lambda *_: next(results))


@pytest.mark.parametrize("bleu", [None, [1.0, 2.0, 3.0]])
def test_the_best_loss_is_the_lowest(bleu: list[float] | None, watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_losses(monkeypatch, [3.0, 2.5, 2.75])
    run = watched(bleu=bleu, best_metric="loss")
    run.trainer.train()
    assert [best for _, best, _ in run.saves] == [True, True, False]
    assert (run.trainer.state.best_value, run.trainer.state.best_step) == (2.5, 4)


def test_a_loss_that_is_not_a_number_is_never_the_best(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_losses(monkeypatch, [math.nan, 2.5, math.nan])
    run = watched(best_metric="loss")
    run.trainer.train()
    assert [best for _, best, _ in run.saves] == [False, True, False]
    assert (run.trainer.state.best_value, run.trainer.state.worse_validations) == (2.5, 1)


def test_patience_counts_validations_in_a_row_without_a_better_one(watched: Any) -> None:
    run = watched(bleu=[5.0, 4.0, 6.0, 6.0, 5.0, 9.0], max_updates=12, patience=2)
    assert run.trainer.train() == "patience"
    assert run.trainer.state.step == 10
    assert run.saves[-1] == (10, False, True)


def test_validation_comes_every_so_many_checkpoints_and_after_the_last(watched: Any, tmp_path: Path) -> None:
    run = watched(max_updates=9, validate_every_saves=2, bleu=[1.0, 2.0, 3.0])
    run.trainer.train()
    assert [step for step, _, _ in run.saves] == [2, 4, 6, 8, 9]
    validations = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "validation"]
    assert [record["step"] for record in validations] == [4, 8, 9]
    assert [record["bleu"] for record in validations] == [1.0, 2.0, 3.0]


def test_records_are_complete_and_finite(watched: Any, tmp_path: Path) -> None:
    run = watched(max_updates=5, log_every_steps=2)
    run.trainer.train()
    records = read_metrics(tmp_path / "metrics.jsonl")
    train = [record for record in records if record["event"] == "train"]
    assert [record["step"] for record in train] == [2, 4, 5]
    fields = {
        "event", "time", "step", "epoch", "seconds", "loss", "perplexity", "learning_rate", "gradient_norm",
        "tokens_per_second", "mfu", "pairs", "flops", "skipped",
    }  # fmt: skip
    for record in train:
        assert record.keys() == fields
        assert all(math.isfinite(value) for name, value in record.items() if name != "event")
        assert record["perplexity"] == pytest.approx(math.exp(record["loss"]))
    validations = [record for record in records if record["event"] == "validation"]
    assert [record["step"] for record in validations] == [2, 4, 5]
    assert all(math.isfinite(record[name]) for record in validations for name in ("loss", "perplexity", "seconds"))
    assert all(record["bleu"] is None for record in validations)


def test_operations_are_counted_over_the_whole_run_and_mfu_is_their_share_of_the_rate(
    watched: Any, tmp_path: Path, store_of: Callable[..., TokenStore]
) -> None:
    run = watched(max_updates=4, log_every_steps=2, save_every_steps=4, with_valid=False)
    run.trainer.train()
    store, plan = store_of(90), plan_updates(store_of(90), CONFIG.batch_tokens, CONFIG.seed, Position())
    cost = TrainingCost(SHAPE, VOCAB_SIZE)
    flops = [cost.update_flops(store.src_lengths[u.pairs], store.tgt_lengths[u.pairs]) for u in islice(plan, 4)]
    first, second = (r for r in read_metrics(tmp_path / "metrics.jsonl") if r["event"] == "train")
    assert (first["flops"], second["flops"]) == (sum(flops[:2]), sum(flops))
    assert run.trainer.state.flops == sum(flops)
    per_second = second["mfu"] * 2e9 / sum(flops[2:])  # 1 / seconds of the last two updates
    assert per_second * _tokens_of_updates(store, 2, 4) == pytest.approx(second["tokens_per_second"])


def _tokens_of_updates(store: TokenStore, first: int, last: int) -> int:
    plan = plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position())
    return sum(update.tgt_tokens for update in islice(plan, first, last))


def test_the_logged_loss_is_per_target_token_and_without_smoothing(
    watched: Any, tmp_path: Path, model_of: Callable[..., TranslationModel], store_of: Callable[..., TokenStore]
) -> None:
    watched(max_updates=1, max_tokens=30, label_smoothing=0.4).trainer.train()
    logged = next(record for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "train")
    store, model = store_of(90), model_of()
    update = next(plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position()))
    total, tokens = 0.0, 0
    with torch.no_grad():
        for pair in update.pairs.tolist():
            src, tgt = (ids.tolist() for ids in store.pair(pair))
            logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
            total += float(functional.cross_entropy(logits, torch.tensor([*tgt, EOS_ID]), reduction="sum"))
            tokens += len(tgt) + 1
    assert logged["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert logged["pairs"] == len(update.pairs)


def test_the_position_moves_through_the_data_and_over_its_end(
    watched: Any, store_of: Callable[..., TokenStore]
) -> None:
    run = watched(max_updates=7, with_valid=False)
    run.trainer.train()
    store, state = store_of(90), run.trainer.state
    updates = [
        u for u, _ in zip(plan_updates(store, CONFIG.batch_tokens, CONFIG.seed, Position()), range(7), strict=False)
    ]
    assert state.position == updates[-1].after
    assert state.position.epoch >= 1
    assert state.tgt_tokens == sum(update.tgt_tokens for update in updates)
