"""The training loop: updates from the plan; records, validations and checkpoints when due; returns to a checkpoint."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics_log import MetricsLog, perplexity, progress_facts
from aiayn_cli.data.batches import Update, largest_batch, plan_updates, pool_pairs_for
from aiayn_cli.data.store import SIDES, TokenStore
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.processes import read_ahead
from aiayn_cli.recipe_keys import TrainingConfig
from aiayn_cli.train.distributed import ReceivedSignal, Worker
from aiayn_cli.train.gradient import Agreement, GradientOfUpdates
from aiayn_cli.train.optimizer import MasterAdam, learning_rate
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.validation import Validation

_PLANNED_AHEAD = 16  # updates, if the device is not the host: they take longer than planning the next pool
_MOST_SKIPPED_IN_A_ROW = 10  # updates before training goes back to a checkpoint
_MOST_RETURNS = 3  # to one checkpoint, before training stops


@dataclass(frozen=True)
class Due:
    """What to do after an update."""

    log: bool  # write a record of the updates since the last one
    validate: bool  # measure loss and BLEU before saving
    save: bool
    regular: bool  # the checkpoint counts for averages; otherwise it only keeps the place of a stopped run


def due(config: TrainingConfig, state: TrainingState, agreement: Agreement, *, has_valid: bool) -> Due:
    """What is due after the update of a state; a signal between two regular checkpoints saves the place only."""
    step, last = state.step, state.step >= config.max_updates
    is_time, number = step % config.save_every_steps == 0, -(-step // config.save_every_steps)
    if config.save_every_minutes:
        is_time, number = agreement.time_is_up, state.saves + 1
    regular = last or is_time
    return Due(
        log=last or step % config.log_every_steps == 0,
        validate=regular and has_valid and (last or number % config.validate_every_saves == 0),
        save=regular or bool(agreement.signal),
        regular=regular,
    )


@dataclass(frozen=True)
class Done:
    """What the host knows of an update without asking the device."""

    step: int
    tgt_tokens: int  # with end tokens, without padding
    pairs: int
    flops: int  # as model/cost.py counts them
    rate: float


class Meter:
    """Sums over the updates since the last record."""

    def __init__(self, matmul_rate: float) -> None:
        self._matmul_rate = matmul_rate  # FLOP/s of large matrix products on all devices together; NaN if unknown
        self._nll, self._tokens, self._pairs, self._flops = 0.0, 0, 0, 0
        self._norm, self._rate = math.nan, math.nan
        self._seconds, self.clock = 0.0, time.perf_counter()  # of updates; when the last one ended

    def add(self, done: Done, nll: float, norm: float) -> None:
        self._nll += nll
        self._tokens += done.tgt_tokens
        self._pairs += done.pairs
        self._flops += done.flops
        self._norm, self._rate = norm, done.rate
        now = time.perf_counter()
        self._seconds, self.clock = self._seconds + now - self.clock, now

    def record(self) -> dict[str, float]:
        """The values of metrics.jsonl; MFU (Chowdhery et al. 2022, Appendix B) relates to large matrix products."""
        loss = self._nll / self._tokens if self._tokens else math.nan
        seconds = self._seconds or math.nan
        return {
            "loss": loss, "perplexity": perplexity(loss), "learning_rate": self._rate, "gradient_norm": self._norm,
            "tokens_per_second": self._tokens / seconds, "mfu": self._flops / seconds / self._matmul_rate,
            "pairs": self._pairs,
        }  # fmt: skip


class Readback:
    """A queue of numbers that a device is computing, read one update late on a GPU so that it never idles."""

    def __init__(self, device: torch.device) -> None:
        self._lag = 1 if device.type == "cuda" else 0
        self._waiting: deque[tuple[Done, Tensor, torch.cuda.Event | None]] = deque()

    def put(self, done: Done, numbers: Tensor) -> None:
        """Queue numbers, [n] on the device, which can change afterwards; take() returns them with `done`."""
        copied = None
        if numbers.is_cuda:
            host = torch.empty_like(numbers, device="cpu", pin_memory=True).copy_(numbers, non_blocking=True)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record()
        else:
            host = numbers.clone()
        self._waiting.append((done, host, copied))

    def take(self, *, wait: bool = False) -> Iterator[tuple[Done, list[float]]]:
        """Numbers that are ready, in order; with `wait` also the newest."""
        while len(self._waiting) > (0 if wait else self._lag):
            done, numbers, copied = self._waiting.popleft()
            if copied is not None:
                copied.synchronize()
            yield done, numbers.tolist()


@dataclass(frozen=True)
class Hooks:
    """What connects the loop to its surroundings."""

    # Writes a checkpoint of the present weights: save(state, best so far, regular); see Due.regular.
    save: Callable[[TrainingState, bool, bool], None]
    interrupted: ReceivedSignal
    # Puts weights and moments of the newest checkpoint into the optimizer; gives its state, None without checkpoint.
    load_newest: Callable[[], TrainingState | None] = lambda: None
    validation: Validation | None = None
    cost: TrainingCost | None = None  # counts operations
    matmul_rate: float = math.nan  # FLOP/s of large matrix products on one device, the base of MFU; NaN if unknown


class Trainer:
    """Trains one model on one store from a state on; max_tokens of the config is chosen already."""

    def __init__(
        self, model: TranslationModel, optimizer: MasterAdam, store: TokenStore, config: TrainingConfig,
        worker: Worker, metrics: MetricsLog, hooks: Hooks, state: TrainingState,
    ) -> None:  # fmt: skip
        self.model, self.optimizer = model, optimizer
        self.state = state if state.pool_pairs else replace(state, pool_pairs=pool_pairs_for(config.batch_tokens))
        self.store, self._config = store, config
        self.device, self._d_model = model.output.weight.device, model.output.weight.shape[1]
        self._worker, self._metrics, self._hooks = worker, metrics, hooks
        self._gradient = GradientOfUpdates(model, optimizer, store, config, worker)
        self._readback = Readback(self.device)
        self._returns: Counter[int] = Counter()  # to the checkpoint of each update

    def train(self, progress: logs.Progress = logs.SILENT) -> str:
        """Train until "max_updates", "patience" or a signal, and return which; a checkpoint was written.

        Raises AiaynError if update after update must be skipped, or if not even one pair fits into memory.
        """
        config = self._config
        self.model.train()
        self.optimizer.usual_norm.fill_(self.state.usual_norm)
        self._make_room()
        meter = self._new_meter()
        if self.state.validation_due and (ended := self._save(validate=True, regular=True)):
            return ended
        updates = self._plan()
        while self.state.step < config.max_updates:
            agreement = self._update(next(updates))
            progress.advance(1)
            step, signal = self.state.step, agreement.signal
            what = due(config, self.state, agreement, has_valid=self._hooks.validation is not None)
            self._record_results(meter, wait=what.save or what.log)
            is_finite = not what.save or self.optimizer.is_finite()  # a checkpoint to return to must be
            if not is_finite or self.state.skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW:
                self._go_back(weights_are_finite=is_finite)
                updates = self._plan()
                meter = self._new_meter()
                progress.advance(self.state.step - step)
                continue
            if what.log:
                progress.show(self._log(meter))
                meter = self._new_meter()
            if what.save:
                if ended := self._save(validate=what.validate, regular=what.regular, signal=signal):
                    return ended
                meter.clock = time.perf_counter()  # exclude validation and the checkpoint
            if signal and step < config.max_updates:
                return signal
        return "max_updates"

    def _plan(self) -> Iterator[Update]:
        config, state = self._config, self.state
        updates = plan_updates(self.store, config.batch_tokens, config.seed, state.position, state.pool_pairs)
        # A GPU works while the host plans; a CPU's cores are busy with the update itself.
        return updates if self.device.type == "cpu" else read_ahead(updates, _PLANNED_AHEAD)

    @property
    def max_tokens(self) -> int:
        """Most padded tokens of a micro-batch, on one side."""
        return self.state.max_tokens or self._config.max_tokens

    def _make_room(self) -> None:
        """Run the largest batch before training starts, with smaller micro-batches until it fits."""
        while not self._gradient.fits(self.max_tokens):
            pairs, src, tgt = self.largest_batch()
            self._halve(min(self.max_tokens, pairs * max(src, tgt)), hopeless=pairs == 1)

    def largest_batch(self) -> tuple[int, int, int]:
        """The largest possible micro-batch: pairs, and tokens of the longest source and target, with end tokens."""
        pairs = largest_batch(self.store, self.max_tokens)
        src, tgt = (int(self.store.lengths(pairs, side).max()) + 1 for side in SIDES)
        return len(pairs), src, tgt

    def _halve(self, tokens: int, *, hopeless: bool) -> None:
        """Make micro-batches half as large as `tokens`, for which memory ran out; hopeless for a single pair."""
        before = self.max_tokens
        if hopeless:
            _, src, tgt = self.largest_batch()
            hint = "prepare the data with a lower --max-length, or use a smaller model or a device with more memory"
            problem = f"out of memory even for a single pair of {src:,} source and {tgt:,} target tokens"
            raise AiaynError(problem, hint)
        self.state = replace(self.state, max_tokens=max(1, tokens // 2))
        self._metrics.write("memory", step=self.state.step, max_tokens=self.state.max_tokens)
        logs.warning(
            f"out of memory with {before:,} tokens per micro-batch: continuing with {self.state.max_tokens:,} and more "
            "micro-batches per update"
        )

    def _update(self, update: Update) -> Agreement:
        """Learn from one update, without waiting for a GPU, which can still be working on the update before."""
        started = time.perf_counter()
        config, step = self._config, self.state.step + 1
        time_is_up = self.state.seconds - self.state.saved_seconds >= 60 * config.save_every_minutes
        while True:
            agreement, nll = self._gradient.of(update, self.state, self._hooks.interrupted, time_is_up)
            if not agreement.out_of_memory:
                break
            self.optimizer.clear()
            longest = max(self.largest_batch()[1:])
            self._halve(self.max_tokens, hopeless=self.max_tokens <= longest)
        self._worker.sum(self.optimizer.gradient)
        norm, skipped = self.optimizer.limit_norm(config.clip_norm, config.exploding_norm)
        rate = learning_rate(step, self._d_model, config.warmup_steps, config.learning_rate_scale)
        self.optimizer.step(rate)
        flops = 0
        if self._hooks.cost is not None:
            src, tgt = (self.store.lengths(update.pairs, side) for side in SIDES)
            flops = self._hooks.cost.update_flops(src, tgt)
        done = Done(step, update.tgt_tokens, len(update.pairs), flops, rate)
        self._readback.put(done, torch.stack((self._worker.sum(nll), norm, skipped, self.optimizer.usual_norm)))
        self.state = replace(
            self.state, step=step, position=update.after, tgt_tokens=self.state.tgt_tokens + update.tgt_tokens,
            seconds=self.state.seconds + time.perf_counter() - started, flops=self.state.flops + flops,
        )  # fmt: skip
        return agreement

    def _record_results(self, meter: Meter, *, wait: bool) -> None:
        """Record the results of the updates that are ready; with `wait`, of all updates."""
        started = time.perf_counter()
        for done, (nll, norm, skipped, usual_norm) in self._readback.take(wait=wait):
            if skipped:
                in_a_row = self.state.skipped_in_a_row + 1
                self.state = replace(self.state, skipped=self.state.skipped + 1, skipped_in_a_row=in_a_row)
                self._metrics.write("skipped", step=done.step, gradient_norm=norm)
                usual = f", {norm / usual_norm:,.0f} times the usual" if math.isfinite(norm) else ""
                logs.warning(f"update {done.step:,} skipped: its gradient norm is {norm:.4g}{usual}")
            else:
                self.state = replace(self.state, skipped_in_a_row=0, usual_norm=usual_norm)
                meter.add(done, nll, norm)
        self.state = replace(self.state, seconds=self.state.seconds + time.perf_counter() - started)

    def _go_back(self, *, weights_are_finite: bool) -> None:
        """Return to the newest checkpoint's weights and continue with the next pairs; costs keep counting."""
        now = self.state
        problem = f"the weights are not finite after update {now.step:,}"
        if weights_are_finite:
            count, step = now.skipped_in_a_row, now.step
            problem = f"{count} updates in a row, up to {step:,}, had an infinite or exploding gradient"
        hint = "lower training.learning_rate_scale or raise training.warmup_steps; earlier checkpoints are intact"
        earlier = self._hooks.load_newest()
        if earlier is None:
            raise AiaynError(problem, hint)
        self._returns[earlier.step] += 1
        if self._returns[earlier.step] > _MOST_RETURNS:
            raise AiaynError(f"{problem}, and again after {_MOST_RETURNS} returns to update {earlier.step}", hint)
        logs.warning(f"{problem}; returning to the weights of update {earlier.step:,} and continuing with other pairs")
        kept = ("position", "max_tokens", "division", "pool_pairs", "tgt_tokens", "seconds", "flops")
        self.state = replace(earlier, rollbacks=now.rollbacks + 1, **{name: getattr(now, name) for name in kept})
        list(self._readback.take(wait=True))
        self.optimizer.usual_norm.fill_(self.state.usual_norm)
        self._metrics.write("rollback", step=self.state.step, undone=now.step)

    def _new_meter(self) -> Meter:
        return Meter(self._hooks.matmul_rate * self._worker.world_size)

    def _log(self, meter: Meter) -> list[str]:
        """Record the updates since the last record, and return what the progress line shows."""
        record = meter.record()
        self._metrics.write(
            "train", step=self.state.step, epoch=self.state.position.epoch, seconds=round(self.state.seconds, 2),
            **record, flops=self.state.flops, skipped=self.state.skipped,
        )  # fmt: skip
        logs.detail(
            f"update {self.state.step:,}: loss {record['loss']:.3f}, rate {record['learning_rate']:.3g}, "
            f"{record['tokens_per_second']:,.0f} target tokens/s"
        )
        return progress_facts(self.state.position.epoch, record, self._metrics.latest.get("validation"))

    def _save(self, *, validate: bool, regular: bool, signal: str = "") -> str:
        """Validate if `validate`, write the checkpoint, and return why training ends: "patience", a signal, or ""."""
        best, ended = False, ""
        state = replace(self.state, validation_due=False)
        if validate and (validation := self._hooks.validation) is not None:
            if not signal:
                state, best, signal = validation.judge(state)
                patience = self._config.patience
                ended = "patience" if patience and state.worse_validations >= patience else ""
            if signal:  # the checkpoint keeps the place, and becomes one of the run's when it is validated
                state, regular, ended = replace(state, validation_due=True), False, signal
        if regular:
            state = replace(state, saves=state.saves + 1, saved_seconds=state.seconds)
        self.state = state
        self._hooks.save(state, best, regular)
        return ended
