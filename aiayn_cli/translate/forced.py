"""Forced decoding: what a model, or several, think of given outputs, token by token, and where they look."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aiayn_cli.errors import AiaynError
from aiayn_cli.model.attention_maps import cross_attention
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID

MOST_LOGITS = 1 << 24  # next-token scores held at once: 64 MB in float32

Pair = tuple[Sequence[int], Sequence[int]]  # ids of source and target, without special tokens


@dataclass(frozen=True)
class Forced:
    """One pair, forced.

    Attributes:
        token_log_probs: natural log p of each target token, and of EOS at the end.
        attention: [tgt_len + 1, src_len + 1], where the model looks to choose each of them, EOS last on both sides;
            None where it was not asked for.
    """

    token_log_probs: tuple[float, ...]
    attention: npt.NDArray[np.float32] | None = None

    @property
    def log_prob(self) -> float:
        """Natural log of the probability of the whole target with EOS."""
        return sum(self.token_log_probs)


def force_decode(
    models: Sequence[TranslationModel],
    pairs: Sequence[Pair],
    *,
    device: torch.device,
    batch_tokens: int,
    with_attention: bool = False,
) -> list[Forced]:
    """Score pairs, in order.

    Args:
        models: in evaluation mode, on the device; the probabilities of several are averaged.
        pairs: of any lengths that the models' positions allow.
        device: theirs.
        batch_tokens: padded tokens of the longer side scored together.
        with_attention: also give the attention over the source, averaged over the heads of the last but one decoder
            layer (of the only one, where there is one) and over the models. Of the layers of a Transformer that one
            agrees best with word alignments (Garg et al. 2019, "Jointly Learning to Align and Translate").
    Raises:
        AiaynError: attention was asked for of a model that is no Transformer.
    """
    if with_attention:
        check_shows_attention(models)
    found: list[Forced | None] = [None] * len(pairs)
    with torch.inference_mode():
        for batch in _batches(pairs, batch_tokens):
            chosen = [pairs[number] for number in batch]
            src = padded([[*src, EOS_ID] for src, _ in chosen]).to(device)
            tgt_in = padded([[BOS_ID, *tgt] for _, tgt in chosen]).to(device)
            tgt_out = padded([[*tgt, EOS_ID] for _, tgt in chosen]).to(device)
            log_probs, attention = _force(models, src, tgt_in, tgt_out, with_attention)
            rows = log_probs.cpu().numpy()
            maps = None if attention is None else attention.cpu().numpy()
            for row, (number, (src_ids, tgt_ids)) in enumerate(zip(batch, chosen, strict=True)):
                tokens = tuple(rows[row, : len(tgt_ids) + 1].tolist())
                alignment = None if maps is None else maps[row, : len(tgt_ids) + 1, : len(src_ids) + 1]
                found[number] = Forced(tokens, alignment)
    return [each for each in found if each is not None]


def check_shows_attention(models: Sequence[TranslationModel]) -> None:
    """Refuse models that are no Transformers.

    Raises:
        AiaynError: one is none.
    """
    if not all(isinstance(model, Transformer) for model in models):
        raise AiaynError("the model is no Transformer, and shows no attention", "leave alignments and pictures away")


def _force(
    models: Sequence[TranslationModel], src: Tensor, tgt_in: Tensor, tgt_out: Tensor, with_attention: bool
) -> tuple[Tensor, Tensor | None]:
    src_mask = src != PAD_ID
    kept = tgt_out != PAD_ID
    memories = [model.encode(src, src_mask) for model in models]
    of_each = [
        _log_probs(model, model.decode(tgt_in, memory, src_mask)[kept], tgt_out[kept])
        for model, memory in zip(models, memories, strict=True)
    ]
    log_probs = torch.zeros(tgt_out.shape, dtype=torch.float32, device=src.device)
    log_probs[kept] = of_mean_probability(of_each)
    return log_probs, mean_cross_attention(models, tgt_in, memories, src_mask) if with_attention else None


def of_mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Log of the mean of the probabilities that several models give, of the same shape."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(dim=0) - math.log(len(log_probs))


def mean_cross_attention(
    models: Sequence[TranslationModel], tgt_in: Tensor, memories: Sequence[Tensor], src_mask: Tensor
) -> Tensor:
    """Where the models look in the source, on average, [batch, tgt_len, src_len]; see force_decode()."""
    maps = []
    for model, memory in zip(models, memories, strict=True):
        assert isinstance(model, Transformer)
        maps.append(cross_attention(model, max(len(model.decoder_layers) - 2, 0), tgt_in, memory, src_mask))
    return torch.stack(maps).mean(dim=0)


def _log_probs(model: TranslationModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Log p of each token, float32 [tokens], in pieces that fit memory."""
    size = max(MOST_LOGITS // model.output.num_embeddings, 1)
    pieces = [
        # In float32, as the search does it.
        model.project(part).float().log_softmax(dim=-1).gather(1, ids.unsqueeze(1)).squeeze(1)
        for part, ids in zip(torch.split(hidden, size), torch.split(tokens, size), strict=True)
    ]
    return torch.cat(pieces)


def _batches(pairs: Sequence[Pair], batch_tokens: int) -> Iterator[list[int]]:
    """Group pairs of similar length, the longest first."""
    longest = [max(len(src), len(tgt)) + 1 for src, tgt in pairs]
    order = sorted(range(len(pairs)), key=lambda number: -longest[number])
    start = 0
    while start < len(order):
        size = max(batch_tokens // longest[order[start]], 1)
        yield order[start : start + size]
        start += size


def padded(rows: Sequence[Sequence[int]], width: int = 0) -> Tensor:
    """Rows of ids, filled up with PAD_ID to the width, or to the longest of them."""
    width = width or max(map(len, rows))
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows])
