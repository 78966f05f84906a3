"""Forced decoding: scores of given outputs, token by token, where the models look, and alignments from that."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aiayn_cli.errors import AiaynError
from aiayn_cli.model.attention_maps import AttentionMaps, attention_maps, cross_attention
from aiayn_cli.model.layers import EncoderLayer
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import BLANK_MARK
from aiayn_cli.translate.aids.alignment import Links, align_words, join_links, word_numbers
from aiayn_cli.translate.translation import Details, ModelPass, Translation

MOST_LOGITS = 1 << 24  # next-token scores held at once: 64 MB in float32
MOST_WEIGHTS = 1 << 24  # of attention, held at once: 64 MB in float32; a line of 1 MB has 16 times as many

Pair = tuple[Sequence[int], Sequence[int]]  # ids of source and target, without special tokens


@dataclass(frozen=True)
class Forced:
    """One pair, forced."""

    token_log_probs: tuple[float, ...]  # natural log p of each target token, and of EOS at the end
    # [tgt_len + 1, src_len + 1], where the model looks to choose each of them, EOS last on both sides; None if it was
    # not requested
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
        AiaynError: attention of a model that is no Transformer.
    """
    if with_attention:
        _check_shows_attention(models)
    found: list[Forced | None] = [None] * len(pairs)
    with torch.inference_mode():
        for batch in _batches(pairs, batch_tokens):
            chosen = [pairs[number] for number in batch]
            src = _padded([[*src, EOS_ID] for src, _ in chosen]).to(device)
            tgt_in = _padded([[BOS_ID, *tgt] for _, tgt in chosen]).to(device)
            tgt_out = _padded([[*tgt, EOS_ID] for _, tgt in chosen]).to(device)
            log_probs, attention = _force(models, src, tgt_in, tgt_out, with_attention)
            rows = log_probs.cpu().numpy()
            maps = None if attention is None else attention.cpu().numpy()
            for row, (number, (src_ids, tgt_ids)) in enumerate(zip(batch, chosen, strict=True)):
                tokens = tuple(rows[row, : len(tgt_ids) + 1].tolist())
                alignment = None if maps is None else maps[row, : len(tgt_ids) + 1, : len(src_ids) + 1]
                found[number] = Forced(tokens, alignment)
    return [each for each in found if each is not None]


def _check_shows_attention(models: Sequence[TranslationModel]) -> None:
    if not all(isinstance(model, Transformer) for model in models):
        raise AiaynError("the model is no Transformer, and shows no attention", "drop --alignments and --attention")


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
    log_probs[kept] = _mean_log_probs(of_each)
    return log_probs, _cross_attention(models, tgt_in, memories, src_mask) if with_attention else None


def _mean_log_probs(log_probs: Sequence[Tensor]) -> Tensor:
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(dim=0) - math.log(len(log_probs))


def _cross_attention(
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
    longest = [max(len(src), len(tgt)) + 1 for src, tgt in pairs]
    order = sorted(range(len(pairs)), key=lambda number: -longest[number])
    start = 0
    while start < len(order):
        size = max(batch_tokens // longest[order[start]], 1)
        yield order[start : start + size]
        start += size


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows])


class SecondPass:
    """Looks at outputs with the models that made them; see force_decode()."""

    def __init__(
        self, models: Sequence[TranslationModel], codec: Codec, device: torch.device, batch_tokens: int
    ) -> None:
        self._models, self._codec, self._device, self._batch_tokens = models, codec, device, batch_tokens

    def force(self, pairs: Sequence[Pair], *, with_attention: bool = False) -> list[Forced]:
        return force_decode(
            self._models, pairs, device=self._device, batch_tokens=self._batch_tokens, with_attention=with_attention
        )

    def details(self, translations: Sequence[Translation], *, with_alignment: bool = False) -> list[Details]:
        """Score each token of some outputs, and align their words with those of the source.

        Raises:
            AiaynError: alignments of a model that is no Transformer.
        """
        parts = [part for each in translations for part in each.parts if not part.word]
        forced = self._forced(parts, with_attention=with_alignment)
        found = []
        for each in translations:
            tokens: list[tuple[str, float]] = []
            links = []
            for part in each.parts:
                result = None if part.word else next(forced)
                tokens += self._tokens(part, result)
                if with_alignment:
                    links.append(self._links(part, result))
            found.append(Details(tuple(tokens), join_links(links)))
        return found

    def _forced(self, parts: Sequence[ModelPass], *, with_attention: bool) -> Iterator[Forced]:
        """What the models think of some passes; no more attention is held at once than memory has room for."""
        start = 0
        while start < len(parts):
            end, weights = start, 0
            while end < len(parts) and (end == start or weights <= MOST_WEIGHTS):
                weights += (len(parts[end].src) + 1) * (len(parts[end].tgt) + 1) if with_attention else 0
                end += 1
            pairs = [(part.src, part.tgt) for part in parts[start:end]]
            yield from self.force(pairs, with_attention=with_attention)
            start = end

    def attention_size(self, part: ModelPass) -> int:
        """How many weights attention() gives for a pass; 0 where the model is no Transformer."""
        model = self._models[0]
        if not isinstance(model, Transformer):
            return 0
        src_len, tgt_len = len(part.src) + 1, len(part.tgt) + 1
        heads = cast(EncoderLayer, model.encoder_layers[0]).attention.n_heads
        decoder = len(model.decoder_layers) * tgt_len * (tgt_len + src_len)
        return heads * (len(model.encoder_layers) * src_len**2 + decoder)

    def attention(self, part: ModelPass) -> tuple[AttentionMaps, list[str], list[str]]:
        """Where the (first) model looks in one pass, and the sub-words of its source and output.

        Raises:
            AiaynError: the model is no Transformer.
        """
        model = self._models[0]
        if not isinstance(model, Transformer):
            raise AiaynError("the model is no Transformer, and shows no attention", "drop --attention")
        with torch.inference_mode():
            src, tgt_in = (
                torch.tensor([ids], device=self._device) for ids in ([*part.src, EOS_ID], [BOS_ID, *part.tgt])
            )
            maps = attention_maps(model, src, None, tgt_in)
        return maps, self._codec.pieces(part.src), self._codec.tgt_pieces(part.tgt)

    def _tokens(self, part: ModelPass, forced: Forced | None) -> list[tuple[str, float]]:
        if forced is None:
            return [(f"{BLANK_MARK}{part.word}", 0.0)]
        return list(zip([*self._codec.tgt_pieces(part.tgt), "</s>"], forced.token_log_probs, strict=True))

    def _links(self, part: ModelPass, forced: Forced | None) -> tuple[Links, int, int]:
        if forced is None:
            return ((0, 0),), 1, 1
        src, tgt = self._codec.pieces(part.src), self._codec.tgt_pieces(part.tgt)
        assert forced.attention is not None
        n_src, n_tgt = (max(word_numbers(pieces), default=-1) + 1 for pieces in (src, tgt))
        return align_words(forced.attention, src, tgt), n_src, n_tgt
