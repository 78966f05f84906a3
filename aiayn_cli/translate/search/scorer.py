"""Beam search's view of a model, or of an ensemble: the log-probabilities of the next token."""

import math
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor

from aiayn_cli.model.translation_model import DecodingCache, TranslationModel

Stop = Callable[[], object]  # true when a search should stop


class Stopped(Exception):
    """Raised in a search that was told to stop."""


class ModelScorer:
    """One model, or an ensemble whose probabilities are averaged, as beam search's StepScorer.

    Args:
        models: in evaluation mode, with the same vocabulary, on the device of src.
        src: int64 [batch, src_len], each sentence ended by EOS_ID.
        src_mask: bool [batch, src_len], True = a real token; None = no padding.
        stop: asked before each step.
    """

    def __init__(
        self, models: Sequence[TranslationModel], src: Tensor, src_mask: Tensor | None, stop: Stop | None = None
    ) -> None:
        self._models = models
        self._device = src.device
        self._stop = stop
        self._caches: list[DecodingCache] = [model.start(model.encode(src, src_mask), src_mask) for model in models]

    def step(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> float32 log p of the next token, [rows, vocab]; Stopped if told to stop."""
        if self._stop is not None and self._stop():
            raise Stopped
        new = tokens.to(self._device).unsqueeze(1)
        log_probs = []
        for model, cache in zip(self._models, self._caches, strict=True):
            # In float32: bf16 has too few digits to add up and compare log-probabilities.
            logits = model.step(new, cache).float()
            # In place unless gradients are recorded: allocating another such block takes a quarter of the time.
            out = None if logits.requires_grad else logits
            log_probs.append(torch.log_softmax(logits, dim=-1, out=out))
        if len(log_probs) == 1:
            return log_probs[0]
        return torch.stack(log_probs).logsumexp(dim=0).sub_(math.log(len(log_probs)))

    def reorder(self, rows: Tensor) -> None:
        rows = rows.to(self._device)
        for cache in self._caches:
            cache.reorder(rows)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        for cache in self._caches:
            cache.keep(sentences, rows)

    def take(self, places: Tensor, other: Self, sentences: slice) -> None:
        for cache, new in zip(self._caches, other._caches, strict=True):
            cache.take(places, new, sentences)
