"""The training loop: updates from the plan, validation and checkpoints at their steps, an exact place to go on from."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from aiayn_cli import logs
from aiayn_cli.config import TrainingConfig
from aiayn_cli.data.batches import Position, Update, mixed_seed, plan_updates, split_update
from aiayn_cli.data.store import TokenStore
from aiayn_cli.errors import AiaynError, CheckpointError
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.training.distributed import Worker
from aiayn_cli.training.forward import teacher_forced
from aiayn_cli.training.loss import smoothed_cross_entropy
from aiayn_cli.training.meter import Done, Meter
from aiayn_cli.training.metrics import MetricsLog, progress_facts
from aiayn_cli.training.optimizer import MasterAdam
from aiayn_cli.training.readback import Readback
from aiayn_cli.training.schedule import learning_rate
from aiayn_cli.training.validation import validation_loss

_MOST_SKIPPED_IN_A_ROW = 10  # updates with a gradient that is not finite before training stops


@dataclass(frozen=True)
class TrainingState:
    """Where a run stands; with weights and moments all that an exact continuation needs.

    Attributes:
        step: updates done.
        position: in the data.
        best_value, best_step: best validation so far by the recipe's metric; None before the first.
        worse_validations: in a row, for patience.
        tgt_tokens: target tokens learnt from, with end tokens, without padding.
        seconds: spent in updates, without validation and checkpoints.
        skipped: updates left out because their gradient was not finite.
        flops: operations that learning took so far, counted as model/cost.py does.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    best_value: float | None = None
    best_step: int | None = None
    worse_validations: int = 0
    tgt_tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    flops: int = 0

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: Path) -> "TrainingState":
        """The reverse of to_json().

        Args:
            content: JSON values.
            source: where they were read, for the message.
        Raises:
            CheckpointError: they are no training state.
        """
        try:
            return cls(**{**content, "position": Position(**content["position"])})
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{source} is no training state: {error}", "use another checkpoint") from error


@dataclass(frozen=True)
class Hooks:
    """What the loop asks of its surroundings.

    Attributes:
        save: write a checkpoint of the present weights, called as save(state, best, regular): `best` says that it is
            the best so far; `regular` is False where the step is not one of the run's checkpoints (an interruption).
        bleu: translate validation pairs with the present weights and score them; None where none is wanted.
        interrupted: name of the signal that asks for an end, or "".
        cost: counts operations; None counts none.
        matmul_rate: FLOP/s of large matrix products on one device, which MFU is the share of; NaN where unknown.
    """

    save: Callable[[TrainingState, bool, bool], None]
    bleu: Callable[[], float] | None
    interrupted: Callable[[], str]
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
    ) -> None:
        self.model, self.optimizer, self.state = model, optimizer, state
        self._train, self._valid = train_store, valid_store
        self._config, self._d_model, self._device = config, d_model, device
        self._worker, self._metrics, self._hooks = worker, metrics, hooks
        self._skipped_in_a_row = 0
        self._readback: Readback[Done] = Readback(device)

    def train(self) -> str:
        """Train until max_updates, patience or a signal.

        Returns:
            Why it stopped: "max_updates", "patience" or the signal's name; in each case a checkpoint was written.
        Raises:
            AiaynError: the gradient is not finite again and again.
        """
        config = self._config
        meter = self._new_meter()
        updates = plan_updates(self._train, config.batch_tokens, config.seed, self.state.position)
        self.model.train()
        with logs.progress("training", config.max_updates, "updates", done=self.state.step) as progress:
            while self.state.step < config.max_updates:
                self._update(next(updates))
                progress.advance(1)
                step, last = self.state.step, self.state.step == config.max_updates
                regular, logged = (
                    last or step % config.save_every_steps == 0,
                    step % config.log_every_steps == 0 or last,
                )
                self._take_up_results(meter, all_of_them=regular or logged)
                if logged:
                    progress.show(self._log(meter))
                    meter = self._new_meter()
                if regular:
                    self._save(last)
                    meter.restart_clock()
                    if config.patience and self.state.worse_validations >= config.patience:
                        return "patience"
                signal = self._worker.agree(self._hooks.interrupted())
                if signal and not last:
                    self._take_up_results(meter, all_of_them=True)
                    if not logged:
                        self._log(meter)
                    if not regular:
                        self._hooks.save(self.state, False, False)
                    return signal
        return "max_updates"

    def _update(self, update: Update) -> None:
        """Learn from one update; nothing in here waits for a GPU, which may still be at the update before."""
        started = time.perf_counter()
        config, step = self._config, self.state.step + 1
        nll = torch.zeros((), device=self._device)
        # Every rank knows the whole update, so the token count that the loss is divided by needs no message.
        parts = split_update(self._train, update.pairs, config.max_tokens, self._worker.world_size)[self._worker.rank]
        for number, pairs in enumerate(parts):
            if len(pairs) == 0:
                continue
            # Dropout depends on the place in the run alone, so that a continued run draws the same.
            torch.manual_seed(mixed_seed(config.seed, step, self._worker.rank, number))
            hidden, targets = teacher_forced(self.model, self._train, pairs, self._device)
            loss, batch_nll = smoothed_cross_entropy(hidden, self.model.output.weight, targets, config.label_smoothing)
            (loss / update.tgt_tokens).backward()  # type: ignore[no-untyped-call]
            self.optimizer.accumulate()
            nll += batch_nll
        self._worker.sum(self.optimizer.gradient)
        norm = self.optimizer.limit_norm(config.clip_norm)
        rate = learning_rate(step, self._d_model, config.warmup_steps, config.learning_rate_scale)
        self.optimizer.step(rate)
        flops = 0
        if self._hooks.cost is not None:
            src_lengths, tgt_lengths = self._train.src_lengths[update.pairs], self._train.tgt_lengths[update.pairs]
            flops = self._hooks.cost.update_flops(src_lengths, tgt_lengths)
        done = Done(step, update.tgt_tokens, len(update.pairs), flops, rate)
        self._readback.put(done, torch.stack((self._worker.sum(nll), norm)))
        self.state = replace(
            self.state,
            step=step,
            position=update.after,
            tgt_tokens=self.state.tgt_tokens + update.tgt_tokens,
            seconds=self.state.seconds + time.perf_counter() - started,
            flops=self.state.flops + flops,
        )

    def _take_up_results(self, meter: Meter, *, all_of_them: bool) -> None:
        """Take up what updates gave, as far as it is known, or wait for all of it."""
        started = time.perf_counter()
        for done, (nll, norm) in self._readback.take(all_of_them=all_of_them):
            if math.isfinite(norm):
                self._skipped_in_a_row = 0
                meter.add(done, nll, norm)
            else:
                self.state = replace(self.state, skipped=self.state.skipped + 1)
                self._note_skipped(done.step, norm)
        self.state = replace(self.state, seconds=self.state.seconds + time.perf_counter() - started)

    def _note_skipped(self, step: int, norm: float) -> None:
        self._skipped_in_a_row += 1
        self._metrics.write("skipped", step=step, gradient_norm=norm)
        logs.warning(f"update {step} is skipped: its gradient norm is {norm}")
        if self._skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW:
            raise AiaynError(
                f"{self._skipped_in_a_row} updates in a row up to {step} had no finite gradient",
                "lower training.learning_rate_scale or raise warmup_steps; the checkpoints so far are whole",
            )

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

    def _save(self, last: bool) -> None:
        """Validate if it is time to, then write the checkpoint."""
        config = self._config
        number = -(-self.state.step // config.save_every_steps)
        best = False
        if self._valid is not None and (last or number % config.validate_every_saves == 0):
            best = self._validate(self._valid)
        self._hooks.save(self.state, best, True)

    def _validate(self, store: TokenStore) -> bool:
        """Measure loss and BLEU on held-out pairs; return whether this is the best so far."""
        started = time.perf_counter()
        result = validation_loss(self.model, store, self._config.max_tokens, self._device)
        bleu = self._hooks.bleu() if self._hooks.bleu is not None else None
        self.model.train()
        higher_is_better = self._config.best_metric == "bleu" and bleu is not None
        value = bleu if higher_is_better and bleu is not None else result.loss
        before = self.state.best_value
        is_better = before is None or (value > before if higher_is_better else value < before)
        best = math.isfinite(value) and is_better
        self.state = replace(
            self.state,
            best_value=value if best else before,
            best_step=self.state.step if best else self.state.best_step,
            worse_validations=0 if best else self.state.worse_validations + 1,
        )
        seconds = round(time.perf_counter() - started, 2)
        self._metrics.write(
            "validation",
            step=self.state.step,
            loss=result.loss,
            perplexity=result.perplexity,
            bleu=bleu,
            best=best,
            validation_seconds=seconds,
            seconds=round(self.state.seconds, 2),
        )
        score = "" if bleu is None else f", BLEU {bleu:.2f}"
        logs.notice(
            f"update {self.state.step:,}: validation loss {result.loss:.3f}, perplexity {result.perplexity:.2f}{score}"
            f"{', the best so far' if best else ''} ({logs.clock(self.state.seconds)} of training)"
        )
        return best
