"""Held-out pairs: their loss as papers report it, their BLEU, and which checkpoint is the best so far.

The work is divided over all processes; any number of processes gives the same result.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics_log import MetricsLog, perplexity
from aiayn_cli.data.batches import in_order
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import TokenStore
from aiayn_cli.device import Device
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import Recipe, TrainingConfig
from aiayn_cli.score.metrics import bleu
from aiayn_cli.text.sentences import knows_single_sentences
from aiayn_cli.train.compilation import without_graphs
from aiayn_cli.train.distributed import ReceivedSignal, Worker
from aiayn_cli.train.gradient import teacher_forced
from aiayn_cli.train.loss import smoothed_cross_entropy
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.translate.line_translator import Cutting, LineTranslator
from aiayn_cli.translate.search.scorer import Stopped
from aiayn_cli.translate.search.sentence_search import SearchSetup
from aiayn_cli.translate.trust.flags import confidence, confidence_threshold

_AT_ONCE = 64  # sentences that a process translates before it asks the others whether they received a signal
_SAMPLES = 6  # sentences whose translations the report shows
_NO_BLEU = 1.0  # below it, BLEU counts chance matches of single words: the loss says more about a young model
_FEWEST_LINES = 10  # of which most can be the same because the model has collapsed
_LONG_SECONDS = 1.0  # of a validation; shorter ones cost little, even if training between them is shorter still


class Interrupted(Exception):
    """A process received the named signal, and the validation is incomplete."""


@torch.no_grad()
def validation_loss(
    model: TranslationModel,
    store: TokenStore,
    max_tokens: int,
    worker: Worker,
    longest: int = 1 << 30,
    interrupted: ReceivedSignal = lambda: "",
) -> float:
    """Negative log-likelihood in nats per target token, end tokens included, without dropout and label smoothing.

    Pairs with a side of more than `longest` tokens, its end token included, are skipped.
    """
    was_training = model.training
    model.eval()  # and left so after Interrupted
    batches = list(in_order(store, max_tokens, longest))
    sums = torch.zeros(len(batches), 2, dtype=torch.float64)  # of each batch: negative log-likelihood, tokens
    for first in range(0, len(batches), worker.world_size):
        if signal := worker.agree(interrupted()):
            raise Interrupted(signal)
        if (number := first + worker.rank) < len(batches):
            hidden, targets = teacher_forced(model, store, batches[number], model.output.weight.device)
            _, nll = smoothed_cross_entropy(hidden, model.output.weight, targets, 0.0)
            sums[number] = torch.tensor([float(nll), len(targets)], dtype=torch.float64)
    model.train(was_training)
    total = tokens = 0.0
    for batch_nll, batch_tokens in worker.sum(sums).tolist():  # in the same order for any number of processes
        total += batch_nll
        tokens += batch_tokens
    return total / max(tokens, 1)


def longest_validated(data: PreparedData, recipe: Recipe) -> int:
    """Most tokens, with the end token, of a side whose loss is measured: the longest training pair's, or 1,024 or more.

    With learned positions, it is the number of rows of the table.
    """
    longest = 1 + max(data.train.longest)
    return recipe.model.max_positions if recipe.model.positions == "learned" else max(longest, 1_024)


def too_long(store: TokenStore, longest: int) -> int:
    return sum(int(np.count_nonzero(np.maximum(src, tgt) + 1 > longest)) for src, tgt in store.length_chunks())


class ValidationBleu:
    """Translates and scores sentences spread evenly over the validation set."""

    low_confidence: float | None = None  # of the last score(), as in Checkpoint; on rank 0 only
    _commonest: tuple[str, int] = ("", 0)  # translation of the last score(), and of how many lines

    def __init__(
        self, model: TranslationModel, data: PreparedData, device: Device, recipe: Recipe, worker: Worker
    ) -> None:
        sources, references = data.read_text("valid", "src"), data.read_text("valid", "tgt")
        wanted = recipe.training.validation_bleu_pairs
        every = max(1, len(sources) // wanted)
        self._sources, self._references = sources[::every][:wanted], references[::every][:wanted]
        self._model, self._data, self._codec = model, data, data.codec()
        self._cutting = Cutting(data.max_length, knows_single_sentences(data.several_sentences))
        self._device, self._decoding, self._worker = device, recipe.decoding, worker
        self._samples: dict[str, list[str]] = {}
        self._has_warned = False
        # Here, so that a missing package is found before training.
        self.signature = bleu(self._references[:1], [self._references[:1]], tgt_lang=data.tgt_lang).signature

    def score(self, interrupted: ReceivedSignal) -> float:
        """BLEU of the translations, the same on every process; raises Interrupted if a signal comes before."""
        shares = self._worker.gather(self._translate_share(interrupted))
        outputs = [("", math.nan)] * len(self._sources)
        for rank, share in enumerate(shares):
            outputs[rank :: self._worker.world_size] = share
        translations = [text for text, _ in outputs]
        self.low_confidence = confidence_threshold(value for _, value in outputs)
        self._commonest = Counter(translations).most_common(1)[0]
        columns = {"sources": self._sources, "references": self._references, "translations": translations}
        every = max(1, len(self._sources) // _SAMPLES)
        self._samples = {name: lines[::every][:_SAMPLES] for name, lines in columns.items()}
        score = self._worker.from_rank_0(
            lambda: {"bleu": bleu(translations, [self._references], tgt_lang=self._data.tgt_lang).score}
        )
        return float(score["bleu"])

    def _translate_share(self, interrupted: ReceivedSignal) -> list[tuple[str, float]]:
        """This process's translations with their confidence."""
        translator = LineTranslator(
            [self._model], self._codec, self._device, self._decoding,
            setup=SearchSetup(stop=interrupted), cutting=self._cutting,
        )  # fmt: skip
        ranks = self._worker.world_size
        mine = self._sources[self._worker.rank :: ranks]
        longest_share = -(-len(self._sources) // ranks)
        at_once = longest_share if ranks == 1 else _AT_ONCE
        outputs: list[tuple[str, float]] = []
        for start in range(0, longest_share + at_once, at_once):  # one past the end, where all agree once more
            if signal := self._worker.agree(interrupted()):
                raise Interrupted(signal)
            with suppress(Stopped), without_graphs(self._model):
                found = translator.translate_n_best(mine[start : start + at_once])
                outputs += [(best.text, confidence(best)) for best, *_ in found]
        return outputs

    def new_samples(self) -> dict[str, list[str]]:
        """Sources, references and translations of the last score(), once; empty if there was no score() since."""
        samples, self._samples = self._samples, {}
        return samples

    def warn_of_collapse(self) -> None:
        """Warn once if the last score() found one translation for most lines, as it is only before warm-up ends."""
        (text, lines), of = self._commonest, len(self._sources)
        if of >= _FEWEST_LINES and 2 * lines > of and not self._has_warned:
            self._has_warned = True
            logs.warning(
                f"{lines:,} of {of:,} validation lines have the same translation, {text[:60]!r}: the model has learnt "
                "too little or collapsed; train longer, or lower training.learning_rate_scale"
            )


@dataclass
class Validation:
    """Measures loss and BLEU on held-out pairs while a run trains; best_metric decides which is the best so far."""

    model: TranslationModel
    store: TokenStore
    config: TrainingConfig
    worker: Worker
    metrics: MetricsLog
    bleu: Callable[[ReceivedSignal], float] | None  # ValidationBleu.score; None if no BLEU is wanted
    interrupted: ReceivedSignal
    longest: int = 1 << 30  # tokens, with the end token, of a pair whose loss is measured
    trained_seconds: float = 0.0  # at the last validation; infinite once the user knows that validations are slow

    def judge(self, state: TrainingState) -> tuple[TrainingState, bool, str]:
        """Measure the present weights, with the same result on every rank.

        Returns the state with the best so far, whether this is the best, and the signal that stopped the validation.
        """
        started = time.perf_counter()
        max_tokens = state.max_tokens or self.config.max_tokens
        try:
            loss = validation_loss(self.model, self.store, max_tokens, self.worker, self.longest, self.interrupted)
            bleu = None if self.bleu is None else self.bleu(self.interrupted)
        except Interrupted as stopped:
            return state, False, str(stopped)
        finally:
            self.model.train()
        if bleu is None or self.config.best_metric == "loss":
            value, is_better = loss, state.best_value is None or loss < state.best_value
        else:
            value, is_better = bleu, _is_better(bleu, loss, state)
        if best := math.isfinite(value) and is_better:
            kept = loss if math.isfinite(loss) else None
            state = replace(state, best_value=value, best_loss=kept, best_step=state.step, worse_validations=0)
        else:
            state = replace(state, worse_validations=state.worse_validations + 1)
        self._warn_if_slow(time.perf_counter() - started, state.seconds)
        self.metrics.write(
            "validation", step=state.step, loss=loss, perplexity=perplexity(loss), bleu=bleu, best=best,
            validation_seconds=round(time.perf_counter() - started, 2), seconds=round(state.seconds, 2),
        )  # fmt: skip
        score = "" if bleu is None else f", BLEU {bleu:.2f}"
        logs.notice(
            f"update {state.step:,}: validation loss {loss:.3f}, perplexity {perplexity(loss):.2f}{score}"
            f"{', the best so far' if best else ''} ({logs.clock(state.seconds)} of training)"
        )
        return state, best, ""

    def _warn_if_slow(self, seconds: float, trained_seconds: float) -> None:
        """Warn once if a validation takes longer than the training since the last one."""
        trained = trained_seconds - self.trained_seconds
        if seconds > max(trained, _LONG_SECONDS) and trained >= 0:
            logs.warning(
                f"a validation takes {seconds:.1f} s, training since the last one {trained:.1f} s: raise "
                "training.save_every_steps or validate_every_saves, or lower validation_bleu_pairs"
            )
            trained_seconds = math.inf
        self.trained_seconds = max(self.trained_seconds, trained_seconds)


def _is_better(bleu: float, loss: float, state: TrainingState) -> bool:
    """Whether BLEU, as it is printed, is higher than the best so far; if it is the same, whether the loss is lower."""
    if state.best_value is None:
        return True
    now, before = (0.0 if value < _NO_BLEU else round(value, 2) for value in (bleu, state.best_value))
    return now > before or (now == before and loss < (math.inf if state.best_loss is None else state.best_loss))
