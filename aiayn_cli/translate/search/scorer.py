"""What lets beam search ask a model, or several, for the next token."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from aiayn_cli.model.translation_model import DecodingCache, TranslationModel
from aiayn_cli.translate.search.workers import Stop, Stopped


class ModelScorer:
    """One model, or an ensemble whose probabilities are averaged, as beam search's StepScorer.

    Args:
        models: in evaluation mode, with the same vocabulary, on the device of src.
        src: int64 [batch, src_len], each sentence ended by EOS_ID.
        src_mask: bool [batch, src_len], True = a real token; None = no padding.
    """

    def __init__(self, models: Sequence[TranslationModel], src: Tensor, src_mask: Tensor | None) -> None:
        self._models = models
        self._device = src.device
        self._caches: list[DecodingCache] = [model.start(model.encode(src, src_mask), src_mask) for model in models]

    def step(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> float32 log p of the next token, [rows, vocab]."""
        new = tokens.to(self._device).unsqueeze(1)
        log_probs = []
        for model, cache in zip(self._models, self._caches, strict=True):
            # In float32: bf16 has too few digits to add up and compare log-probabilities.
            logits = model.step(new, cache).float()
            # In place where nothing is recorded: a quarter of the time goes to fetching another such block of memory.
            out = None if logits.requires_grad else logits
            log_probs.append(torch.log_softmax(logits, dim=-1, out=out))
        if len(log_probs) == 1:
            return log_probs[0]
        return torch.stack(log_probs).logsumexp(dim=0).sub_(math.log(len(log_probs)))

    def reorder(self, rows: Tensor) -> None:
        """Let new row i continue row rows[i]."""
        rows = rows.to(self._device)
        for cache in self._caches:
            cache.reorder(rows)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all sentences but these, with their rows."""
        for cache in self._caches:
            cache.keep(sentences, rows)

    def take(self, places: Tensor, other: Self, sentences: slice) -> None:
        """Go on with some sentences of another scorer of the same models in the places of these."""
        for cache, new in zip(self._caches, other._caches, strict=True):
            cache.take(places, new, sentences)


class StoppableScorer(ModelScorer):
    """One that ends its search where the result is no longer wanted.

    Args:
        stop: set where nobody wants it any more.
        models, src, src_mask: see ModelScorer.
    """

    def __init__(self, stop: Stop, models: Sequence[TranslationModel], src: Tensor, src_mask: Tensor | None) -> None:
        super().__init__(models, src, src_mask)
        self._stop = stop

    def step(self, tokens: Tensor) -> Tensor:
        """See ModelScorer.

        Raises:
            Stopped: the event is set.
        """
        if self._stop.is_set():
            raise Stopped
        return super().step(tokens)
