"""The training loop: updates from the plan, and records, validation and checkpoints when they are due."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics_log import MetricsLog, perplexity, progress_facts
from aiayn_cli.config import TrainingConfig
from aiayn_cli.data.batches import Update, plan_updates, pool_pairs_for
from aiayn_cli.data.store import SIDES, TokenStore
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.processes import read_ahead
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.gradient import Agreement, GradientOfUpdates
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.schedule import Rollback, due, learning_rate
from aiayn_cli.train.validation import Validation

_PLANNED_AHEAD = 16  # updates, if the device is not the host: they take longer than planning the next pool


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
        self._seconds, self._clock = 0.0, time.perf_counter()

    def add(self, done: Done, nll: float, norm: float) -> None:
        self._nll += nll
        self._tokens += done.tgt_tokens
        self._pairs += done.pairs
        self._flops += done.flops
        self._norm, self._rate = norm, done.rate
        now = time.perf_counter()
        self._seconds, self._clock = self._seconds + now - self._clock, now

    def restart_clock(self) -> None:
        """Leave out the time since the last update, which went into validation or a checkpoint."""
        self._clock = time.perf_counter()

    def record(self) -> dict[str, float]:
        """Loss and perplexity per target token (nats, without smoothing), speed without padding, the last rate.

        MFU (model FLOPs utilisation; Chowdhery et al. 2022, Appendix B) is the share of the devices' rate in large
        matrix products that went into counted operations.
        """
        loss = self._nll / self._tokens if self._tokens else math.nan
        flops_per_second = self._flops / self._seconds if self._seconds else math.nan
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "learning_rate": self._rate,
            "gradient_norm": self._norm,
            "tokens_per_second": self._tokens / self._seconds if self._seconds else math.nan,
            "mfu": flops_per_second / self._matmul_rate,
            "pairs": self._pairs,
        }


class Readback:
    """A queue of numbers that a device is computing.

    A GPU works through a queue of its own; a host that asked for the loss of the update that it has just put there
    would leave the GPU idle until the next one is there. So on a GPU numbers are read one update late, when they are
    ready; on a CPU, which computes at once, they are read at once.
    """

    def __init__(self, device: torch.device) -> None:
        self._lag = 1 if device.type == "cuda" else 0
        self._waiting: deque[tuple[Done, Tensor, torch.cuda.Event | None]] = deque()

    def put(self, done: Done, numbers: Tensor) -> None:
        """Ask for numbers, [n] on the device, which may change afterwards; take() gives them back with `done`."""
        if numbers.is_cuda:
            host = torch.empty_like(numbers, device="cpu", pin_memory=True)
            host.copy_(numbers, non_blocking=True)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record()
            self._waiting.append((done, host, copied))
        else:
            self._waiting.append((done, numbers.clone(), None))

    def take(self, *, all_of_them: bool = False) -> Iterator[tuple[Done, list[float]]]:
        """Numbers that are ready, in order; with all_of_them also the newest, which are waited for."""
        while len(self._waiting) > (0 if all_of_them else self._lag):
            done, numbers, copied = self._waiting.popleft()
            if copied is not None:
                copied.synchronize()
            yield done, numbers.tolist()


@dataclass(frozen=True)
class Hooks:
    """What connects the loop to its surroundings.

    Attributes:
        save: write a checkpoint of the present weights, called as save(state, best, regular): `best` says that it is
            the best so far; `regular` is False if the step is not one of the run's checkpoints (an interruption).
        interrupted: name of the signal that this process has received, or "".
        load_newest: put weights and moments of the newest checkpoint into the optimizer, and return its state; None if
            there is no checkpoint.
        validation: None without validation pairs.
        cost: counts operations; None counts none.
        matmul_rate: FLOP/s of large matrix products on one device, the base of MFU; NaN if unknown.
    """

    save: Callable[[TrainingState, bool, bool], None]
    interrupted: Callable[[], str]
    load_newest: Callable[[], TrainingState | None] = lambda: None
    validation: Validation | None = None
    cost: TrainingCost | None = None
    matmul_rate: float = math.nan


class Trainer:
    """Trains one model on one store from a state on; max_tokens of the config is chosen already."""

    def __init__(
        self,
        model: TranslationModel,
        optimizer: MasterAdam,
        store: TokenStore,
        config: TrainingConfig,
        worker: Worker,
        metrics: MetricsLog,
        hooks: Hooks,
        state: TrainingState,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.state = state if state.pool_pairs else replace(state, pool_pairs=pool_pairs_for(config.batch_tokens))
        self.store, self._config = store, config
        self.device, self._d_model = model.output.weight.device, model.output.weight.shape[1]
        self._worker, self._metrics, self._hooks = worker, metrics, hooks
        self._gradient = GradientOfUpdates(model, optimizer, store, config, worker)
        self._readback = Readback(self.device)
        self._rollback = Rollback(hooks.load_newest)

    def train(self, progress: logs.Progress = logs.SILENT) -> str:
        """Train until "max_updates", "patience" or a signal, and return which; in each case a checkpoint was written.

        Raises:
            AiaynError: update after update must be skipped, or not even a single pair fits into memory.
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
            step, last = self.state.step, self.state.step == config.max_updates
            signal, time_is_up, has_valid = agreement.signal, agreement.time_is_up, self._hooks.validation is not None
            what = due(config, step, self.state.saves, time_is_up=time_is_up, signal=signal, has_valid=has_valid)
            self._record_results(meter, all_of_them=what.save or what.log)
            is_finite = not what.save or self.optimizer.is_finite()  # a checkpoint to return to must be
            if not is_finite or self._rollback.is_due(self.state):
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
                meter.restart_clock()
            if signal and not last:
                return signal
        return "max_updates"

    def _plan(self) -> Iterator[Update]:
        config, state = self._config, self.state
        updates = plan_updates(self.store, config.batch_tokens, config.seed, state.position, state.pool_pairs)
        # A GPU works while the host plans; a CPU's cores are busy with the update itself.
        return updates if self.device.type == "cpu" else read_ahead(updates, _PLANNED_AHEAD)

    @property
    def _max_tokens(self) -> int:
        return self._gradient.max_tokens(self.state)

    def _make_room(self) -> None:
        """Run the largest possible batch before anything is learnt, with smaller micro-batches until it fits."""
        while not self._gradient.fits(self._max_tokens):
            pairs, src, tgt = self.largest_batch()
            self._halve(min(self._max_tokens, pairs * max(src, tgt)), hopeless=pairs == 1)

    def largest_batch(self) -> tuple[int, int, int]:
        """The largest possible micro-batch: its pairs, and the longest source and target in tokens."""
        return self._gradient.largest(self._max_tokens)

    def _halve(self, tokens: int, *, hopeless: bool) -> None:
        """Make micro-batches half as large as `tokens`, for which memory ran out; hopeless for a single pair."""
        before = self._max_tokens
        if hopeless:
            _, src, tgt = self.largest_batch()
            raise AiaynError(
                f"there is not enough memory for one pair of {src:,} source and {tgt:,} target tokens",
                "prepare the data with a lower --max-length, or take a smaller model or a larger device",
            )
        self.state = replace(self.state, max_tokens=max(1, tokens // 2))
        self._metrics.write("memory", step=self.state.step, max_tokens=self.state.max_tokens)
        logs.warning(
            f"memory ran out with {before:,} tokens in a micro-batch; it goes on with {self.state.max_tokens:,}, "
            "and as many more micro-batches in each update"
        )

    def _update(self, update: Update) -> Agreement:
        """Learn from one update; nothing in here waits for a GPU, which may still be at the update before."""
        started = time.perf_counter()
        config, step = self._config, self.state.step + 1
        time_is_up = self.state.seconds - self.state.saved_seconds >= 60 * config.save_every_minutes
        while True:
            agreement, nll = self._gradient.of(update, self.state, self._hooks.interrupted, time_is_up)
            if not agreement.out_of_memory:
                break
            self.optimizer.clear()
            longest = max(self.largest_batch()[1:])
            self._halve(self._max_tokens, hopeless=self._max_tokens <= longest)
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
            self.state,
            step=step,
            position=update.after,
            tgt_tokens=self.state.tgt_tokens + update.tgt_tokens,
            seconds=self.state.seconds + time.perf_counter() - started,
            flops=self.state.flops + flops,
        )
        return agreement

    def _record_results(self, meter: Meter, *, all_of_them: bool) -> None:
        """Record the results of updates, as far as they are known, or wait for all of them."""
        started = time.perf_counter()
        for done, (nll, norm, skipped, usual_norm) in self._readback.take(all_of_them=all_of_them):
            if skipped:
                in_a_row = self.state.skipped_in_a_row + 1
                self.state = replace(self.state, skipped=self.state.skipped + 1, skipped_in_a_row=in_a_row)
                self._metrics.write("skipped", step=done.step, gradient_norm=norm)
                usual = f", {norm / usual_norm:,.0f} times the usual" if math.isfinite(norm) else ""
                logs.warning(f"update {done.step} is skipped: its gradient norm is {norm:.4g}{usual}")
            else:
                self.state = replace(self.state, skipped_in_a_row=0, usual_norm=usual_norm)
                meter.add(done, nll, norm)
        self.state = replace(self.state, seconds=self.state.seconds + time.perf_counter() - started)

    def _go_back(self, *, weights_are_finite: bool) -> None:
        """Return to the newest checkpoint's weights; the results of the updates since then count no more."""
        undone = self.state.step
        self.state = self._rollback.from_state(self.state, weights_are_finite=weights_are_finite)
        list(self._readback.take(all_of_them=True))
        self.optimizer.usual_norm.fill_(self.state.usual_norm)
        self._metrics.write("rollback", step=self.state.step, undone=undone)

    def _new_meter(self) -> Meter:
        return Meter(self._hooks.matmul_rate * self._worker.world_size)

    def _log(self, meter: Meter) -> list[str]:
        """Write a record of the updates since the last one; return it as short texts."""
        record = meter.record()
        self._metrics.write(
            "train",
            step=self.state.step,
            epoch=self.state.position.epoch,
            seconds=round(self.state.seconds, 2),
            **record,
            flops=self.state.flops,
            skipped=self.state.skipped,
        )
        logs.detail(
            f"update {self.state.step:,}: loss {record['loss']:.3f}, rate {record['learning_rate']:.3g}, "
            f"{record['tokens_per_second']:,.0f} target tokens/s"
        )
        return progress_facts(self.state.position.epoch, record, self._metrics.latest.get("validation"))

    def _save(self, *, validate: bool, regular: bool, signal: str = "") -> str:
        """Validate if that is due, then write the checkpoint.

        Returns:
            Why training ends here: "patience", or the signal that left no time for the validation; "" if it does not.
        """
        best, ended = False, ""
        state = replace(self.state, validation_due=False)
        if validate and (validation := self._hooks.validation) is not None:
            if not signal:
                verdict = validation.judge(state)
                state, best, signal = verdict.state, verdict.best, verdict.signal
                patience = self._config.patience
                ended = "patience" if patience and state.worse_validations >= patience else ""
            if signal:  # the checkpoint keeps the place, and becomes one of the run's when it is validated
                state, regular, ended = replace(state, validation_due=True), False, signal
        if regular:
            state = replace(state, saves=state.saves + 1, saved_seconds=state.seconds)
        self.state = state
        self._hooks.save(state, best, regular)
        return ended
