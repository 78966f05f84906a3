"""What lets beam search ask a model, or several, for the next token."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from aiayn_cli.model.translation_model import DecodingCache, TranslationModel


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
        log_probs = [
            # In float32: bf16 has too few digits to add up and compare log-probabilities.
            model.step(new, cache).float().log_softmax(dim=-1)
            for model, cache in zip(self._models, self._caches, strict=True)
        ]
        if len(log_probs) == 1:
            return log_probs[0]
        return torch.stack(log_probs).logsumexp(dim=0).sub_(math.log(len(log_probs)))

    def reorder(self, rows: Tensor) -> None:
        """Let new row i continue row rows[i]."""
        for cache in self._caches:
            cache.reorder(rows)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all sentences but these, with their rows."""
        for cache in self._caches:
            cache.keep(sentences, rows)
