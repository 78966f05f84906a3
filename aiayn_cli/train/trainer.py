"""The training loop: updates from the plan, and records, validation and checkpoints when they are due."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics import MetricsLog, progress_facts
from aiayn_cli.config import TrainingConfig
from aiayn_cli.data.batches import Update, plan_updates, pool_pairs_for
from aiayn_cli.data.store import SIDES, TokenStore
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.processes import read_ahead
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.gradient import Agreement, GradientOfUpdates
from aiayn_cli.train.meter import Done, Meter
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.readback import Readback
from aiayn_cli.train.rollback import Rollback
from aiayn_cli.train.save_policy import due
from aiayn_cli.train.schedule import learning_rate
from aiayn_cli.train.state import TrainingState
from aiayn_cli.train.validation import Bleu, Validation

_PLANNED_AHEAD = 16  # updates, where the device is not the host: they take longer than planning the next pool


@dataclass(frozen=True)
class Hooks:
    """What the loop asks of its surroundings.

    Attributes:
        save: write a checkpoint of the present weights, called as save(state, best, regular): `best` says that it is
            the best so far; `regular` is False where the step is not one of the run's checkpoints (an interruption).
        bleu: translate validation pairs with the present weights and score them, called by every process with what
            gives the name of a signal; it raises Interrupted where there is one. None where no BLEU is wanted.
        interrupted: name of the signal that asks for an end, or "".
        go_back: put weights and moments of the newest checkpoint into the optimizer, and return its state; None where
            there is no checkpoint.
        cost: counts operations; None counts none.
        matmul_rate: FLOP/s of large matrix products on one device, which MFU is the share of; NaN where unknown.
    """

    save: Callable[[TrainingState, bool, bool], None]
    bleu: Bleu | None
    interrupted: Callable[[], str]
    go_back: Callable[[], TrainingState | None] = lambda: None
    cost: TrainingCost | None = None
    matmul_rate: float = math.nan


class Trainer:
    """Trains one model on one store.

    Args:
        model: on its device, in its dtype.
        optimizer: holds the model's weights.
        train_store, valid_store: the pairs; validation may be None.
        config: the recipe's training section, with max_tokens already chosen.
        d_model: for the schedule.
        device: the model's.
        worker: this process among others.
        metrics: where records go.
        hooks: saving, BLEU, interruption.
        state: where to go on from.
        longest_validated: most tokens, with the end token, of a validation pair whose loss is measured.
    """

    def __init__(
        self,
        model: TranslationModel,
        optimizer: MasterAdam,
        train_store: TokenStore,
        valid_store: TokenStore | None,
        config: TrainingConfig,
        *,
        d_model: int,
        device: torch.device,
        worker: Worker,
        metrics: MetricsLog,
        hooks: Hooks,
        state: TrainingState,
        longest_validated: int = 1 << 30,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.state = state if state.pool_pairs else replace(state, pool_pairs=pool_pairs_for(config.batch_tokens))
        self._train = train_store
        self._config, self._d_model, self._device = config, d_model, device
        self._worker, self._metrics, self._hooks = worker, metrics, hooks
        self._gradient = GradientOfUpdates(model, optimizer, train_store, config, device, worker)
        self._readback: Readback[Done] = Readback(device)
        self._rollback = Rollback(hooks.go_back)
        self._validation = (
            None
            if valid_store is None
            else Validation(
                model, valid_store, config, worker, metrics, hooks.bleu, hooks.interrupted, longest_validated
            )
        )

    def train(self, progress: logs.Progress = logs.SILENT) -> str:
        """Train until max_updates, patience or a signal.

        Args:
            progress: is told of each update.
        Returns:
            Why it stopped: "max_updates", "patience" or the signal's name; in each case a checkpoint was written.
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
            what = due(
                config,
                step,
                self.state.saves,
                time_is_up=agreement.time_is_up,
                signal=agreement.signal,
                has_valid=self._validation is not None,
            )
            self._take_up_results(meter, all_of_them=what.save or what.log)
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
                if ended := self._save(validate=what.validate, regular=what.regular, signal=agreement.signal):
                    return ended
                meter.restart_clock()
            if agreement.signal and not last:
                return agreement.signal
        return "max_updates"

    def _plan(self) -> Iterator[Update]:
        """The updates from here on."""
        config, state = self._config, self.state
        updates = plan_updates(self._train, config.batch_tokens, config.seed, state.position, state.pool_pairs)
        # A GPU works while the host plans; a CPU's cores are busy with the update itself.
        return updates if self._device.type == "cpu" else read_ahead(updates, _PLANNED_AHEAD)

    @property
    def _max_tokens(self) -> int:
        return self.state.max_tokens or self._config.max_tokens

    def _make_room(self) -> None:
        """Run the largest batch that may come before anything is learnt, with smaller micro-batches until it fits."""
        while not self._gradient.fits(self._max_tokens):
            pairs, src, tgt = self.largest_batch()
            self._halve(min(self._max_tokens, pairs * max(src, tgt)), hopeless=pairs == 1)

    def largest_batch(self) -> tuple[int, int, int]:
        """The largest micro-batch that may come: its pairs, and the longest source and target in tokens."""
        return self._gradient.largest(self._max_tokens)

    def _halve(self, tokens: int, *, hopeless: bool) -> None:
        """Make micro-batches half as large, after memory ran out.

        Args:
            tokens: that were too many.
            hopeless: whether it was in a single pair.
        Raises:
            AiaynError: it was.
        """
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
            agreement, nll = self._gradient.of(
                update, step, self._max_tokens, self.state.division, self._hooks.interrupted, time_is_up
            )
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
            src, tgt = (self._train.lengths(update.pairs, side) for side in SIDES)
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

    def _take_up_results(self, meter: Meter, *, all_of_them: bool) -> None:
        """Take up what updates gave, as far as it is known, or wait for all of it."""
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
        """Return to the newest checkpoint's weights; what the updates since then gave counts no more."""
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
        """Validate if it is time to, then write the checkpoint.

        Args:
            validate: whether it is time to.
            regular: whether the checkpoint is one of the run's.
            signal: that asks for an end, or "".
        Returns:
            Why training ends here: "patience", or the signal that left no time for the validation; "" if it does not.
        """
        best, ended = False, ""
        state = replace(self.state, validation_due=False)
        if validate and self._validation is not None:
            if not signal:
                verdict = self._validation.judge(state, self._max_tokens)
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
