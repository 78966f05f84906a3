"""Held-out pairs: their loss in the terms that papers report, their BLEU, and which checkpoint is the best so far."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics import MetricsLog, perplexity
from aiayn_cli.config import TrainingConfig
from aiayn_cli.data.batches import in_order
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.forward import teacher_forced
from aiayn_cli.train.loss import smoothed_cross_entropy
from aiayn_cli.train.state import TrainingState

Bleu = Callable[[Callable[[], str]], float]  # of the present weights, on every process; gets what tells of signals


class Interrupted(Exception):
    """A signal asks for an end, and a validation will not be completed.

    Args:
        signal: its name.
    """

    def __init__(self, signal: str) -> None:
        super().__init__(signal)
        self.signal = signal


@dataclass(frozen=True)
class ValidationLoss:
    """Negative log-likelihood in nats per target token, end tokens included, without label smoothing."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss), infinite where that is too large for a float."""
        return perplexity(self.loss)


@torch.no_grad()
def validation_loss(
    model: TranslationModel,
    store: TokenStore,
    max_tokens: int,
    worker: Worker,
    longest: int = 1 << 30,
    interrupted: Callable[[], str] = lambda: "",
) -> ValidationLoss:
    """Loss of a model, with dropout off, on all pairs of a store; each process computes its share of the batches.

    The sum over batches has one order, so that the loss does not depend on the number of processes.

    Args:
        model: left in the mode it was in.
        store: the held-out pairs.
        max_tokens: padded tokens of one side in a batch.
        worker: this process among others.
        longest: most tokens of a side with its end token; longer pairs are left out.
        interrupted: gives the name of a signal that this process has received, or "".
    Raises:
        Interrupted: any process received one before the last batch; the model is in evaluation mode.
    """
    was_training = model.training
    model.eval()
    device = model.output.weight.device
    batches = list(in_order(store, max_tokens, longest))
    sums = torch.zeros(len(batches), 2, dtype=torch.float64)  # of each batch: negative log-likelihood, tokens
    for first in range(0, len(batches), worker.world_size):
        if signal := worker.agree(interrupted()):
            raise Interrupted(signal)
        if (number := first + worker.rank) < len(batches):
            hidden, targets = teacher_forced(model, store, batches[number], device)
            _, nll = smoothed_cross_entropy(hidden, model.output.weight, targets, 0.0)
            sums[number] = torch.tensor([float(nll), len(targets)], dtype=torch.float64)
    model.train(was_training)
    total, tokens = 0.0, 0
    for batch_nll, batch_tokens in worker.sum(sums).tolist():
        total += batch_nll
        tokens += int(batch_tokens)
    return ValidationLoss(total / max(tokens, 1), tokens)


@dataclass(frozen=True)
class Verdict:
    """What comes of a validation.

    Attributes:
        state: with the best so far.
        best: whether that is this one.
        signal: that stopped the validation, with the state as it was; "" where none did.
    """

    state: TrainingState
    best: bool = False
    signal: str = ""


class Validation:
    """Measures loss and BLEU on held-out pairs while a run trains, and counts for patience.

    Args:
        model: on its device.
        store: the held-out pairs.
        config: the recipe's training section; its best_metric decides.
        worker: this process among others.
        metrics: where records go.
        bleu: see Hooks.
        interrupted: see Hooks.
        longest: most tokens, with the end token, of a pair whose loss is measured.
    """

    def __init__(
        self,
        model: TranslationModel,
        store: TokenStore,
        config: TrainingConfig,
        worker: Worker,
        metrics: MetricsLog,
        bleu: Bleu | None,
        interrupted: Callable[[], str],
        longest: int,
    ) -> None:
        self._model, self._store, self._config = model, store, config
        self._worker, self._metrics, self._bleu, self._longest = worker, metrics, bleu, longest
        self._interrupted = interrupted

    def judge(self, state: TrainingState, max_tokens: int) -> Verdict:
        """Measure the present weights.

        Args:
            state: where the run stands.
            max_tokens: padded tokens of one side in a batch.
        Returns:
            What comes of it, the same on every rank.
        """
        started = time.perf_counter()
        try:
            loss = validation_loss(
                self._model, self._store, max_tokens, self._worker, self._longest, self._interrupted
            ).loss
            bleu = None if self._bleu is None else self._bleu(self._interrupted)
        except Interrupted as stopped:
            return Verdict(state, signal=stopped.signal)
        finally:
            self._model.train()
        higher_is_better = self._config.best_metric == "bleu" and bleu is not None
        value = bleu if higher_is_better and bleu is not None else loss
        before = state.best_value
        is_better = before is None or (value > before if higher_is_better else value < before)
        best = math.isfinite(value) and is_better
        state = replace(
            state,
            best_value=value if best else before,
            best_step=state.step if best else state.best_step,
            worse_validations=0 if best else state.worse_validations + 1,
        )
        self._metrics.write(
            "validation",
            step=state.step,
            loss=loss,
            perplexity=perplexity(loss),
            bleu=bleu,
            best=best,
            validation_seconds=round(time.perf_counter() - started, 2),
            seconds=round(state.seconds, 2),
        )
        score = "" if bleu is None else f", BLEU {bleu:.2f}"
        logs.notice(
            f"update {state.step:,}: validation loss {loss:.3f}, perplexity {perplexity(loss):.2f}{score}"
            f"{', the best so far' if best else ''} ({logs.clock(state.seconds)} of training)"
        )
        return Verdict(state, best=best)
