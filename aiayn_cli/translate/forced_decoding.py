"""Forced decoding: scores of given outputs, token by token, where the models look, and alignments from that."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from aiayn_cli.checkpoint.metrics_log import perplexity
from aiayn_cli.model.layers import EncoderLayer
from aiayn_cli.model.transformer import AttentionMaps, Transformer, attention_maps, cross_attention
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.text.languages import joins_without_blanks
from aiayn_cli.text.vocab import BLANK_MARK
from aiayn_cli.translate.line_translator import LineTranslator, ModelPass, Translation

MOST_LOGITS = 1 << 24  # next-token scores held at once: 64 MB in float32
MOST_WEIGHTS = 1 << 24  # of attention, held at once: 64 MB in float32; a line of 1 MB has 16 times as many

Pair = tuple[Sequence[int], Sequence[int]]  # ids of source and target, without special tokens
Attention = npt.NDArray[np.float32]  # of one pair, [tgt_len + 1, src_len + 1], EOS last on both sides
Links = tuple[tuple[int, int], ...]  # (source word, target word), counted from 0; words are what blanks separate


@dataclass(frozen=True)
class Forced:
    """The scores of one pair."""

    token_log_probs: tuple[float, ...]  # natural log p of each target token, and of EOS at the end
    attention: Attention | None = None  # where the model looks to choose each token, if requested


@dataclass(frozen=True)
class Details:
    """The sub-words of an output as SentencePiece writes them, with natural log p; "</s>" ends each part.

    A word that was copied stands as a whole, with NaN.
    """

    tokens: tuple[tuple[str, float], ...]
    alignment: Links = ()  # one for each target word

    @property
    def log_prob(self) -> float:
        """Natural log of the probability of the whole output; NaN without tokens."""
        return sum(log_prob for _, log_prob in self.tokens) if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """exp(-log p / tokens); NaN without tokens."""
        return perplexity(-self.log_prob / max(len(self.tokens), 1))


def _batches(pairs: Sequence[Pair], batch_tokens: int) -> Iterator[list[int]]:
    longest = [max(map(len, pair)) + 1 for pair in pairs]
    order = sorted(range(len(pairs)), key=lambda number: -longest[number])
    while order:
        size = max(batch_tokens // longest[order[0]], 1)
        yield order[:size]
        del order[:size]


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD_ID] * (width - len(row))] for row in rows])


def _log_probs(model: TranslationModel, hidden: Tensor, tokens: Tensor) -> Tensor:
    """Log p of each token, float32 [tokens], in pieces that fit memory."""
    size = max(MOST_LOGITS // model.output.num_embeddings, 1)
    return torch.cat([
        model.project(part).float().log_softmax(dim=-1).gather(1, ids.unsqueeze(1)).squeeze(1)  # as in the search
        for part, ids in zip(torch.split(hidden, size), torch.split(tokens, size), strict=True)
    ])  # fmt: skip


class ForcedDecoder:
    """Scores outputs with the models of a translator; what concerns attention needs Transformers."""

    def __init__(self, translator: LineTranslator) -> None:
        self._models, self._codec, self._device = translator.models, translator.codec, translator.device
        self._batch_tokens = translator.decoding.batch_tokens

    def force(self, pairs: Sequence[Pair], *, with_attention: bool = False) -> list[Forced]:
        """Score pairs, in order; the probabilities of several models are averaged.

        With attention: also that of Transformers to the source, averaged over the models and the heads of the last but
        one decoder layer (or the only one), which agrees best with word alignments (Garg et al. 2019, "Jointly Learning
        to Align and Translate").
        """
        found: dict[int, Forced] = {}
        with torch.inference_mode():
            for batch in _batches(pairs, self._batch_tokens):
                forced = self._force_batch([pairs[number] for number in batch], with_attention)
                found |= zip(batch, forced, strict=True)
        return [found[number] for number in range(len(pairs))]

    def _force_batch(self, pairs: Sequence[Pair], with_attention: bool) -> Iterator[Forced]:
        src = _padded([[*src, EOS_ID] for src, _ in pairs]).to(self._device)
        tgt_in = _padded([[BOS_ID, *tgt] for _, tgt in pairs]).to(self._device)
        tgt_out = _padded([[*tgt, EOS_ID] for _, tgt in pairs]).to(self._device)
        src_mask, kept = src != PAD_ID, tgt_out != PAD_ID
        memories = [model.encode(src, src_mask) for model in self._models]
        of_each = [
            _log_probs(model, model.decode(tgt_in, memory, src_mask)[kept], tgt_out[kept])
            for model, memory in zip(self._models, memories, strict=True)
        ]
        rows = torch.zeros(tgt_out.shape)
        rows[kept.cpu()] = (torch.stack(of_each).logsumexp(dim=0) - math.log(len(self._models))).cpu()
        maps = None
        if with_attention:
            of_each = [
                cross_attention(model, max(len(model.decoder_layers) - 2, 0), tgt_in, memory, src_mask)
                for model, memory in zip(cast(Sequence[Transformer], self._models), memories, strict=True)
            ]
            maps = torch.stack(of_each).mean(dim=0).cpu().numpy()
        for row, (src_ids, tgt_ids) in enumerate(pairs):
            log_probs = tuple(rows[row, : len(tgt_ids) + 1].tolist())
            yield Forced(log_probs, None if maps is None else maps[row, : len(tgt_ids) + 1, : len(src_ids) + 1])

    def details(self, translations: Sequence[Translation], *, with_alignment: bool = False) -> list[Details]:
        """Score each token of some outputs, and align their words with those of the source."""
        forced = self._forced([part for each in translations for part in each.parts if not part.word], with_alignment)
        found = []
        for each in translations:
            tokens: list[tuple[str, float]] = []
            links: list[tuple[Links, int, int, bool]] = []
            for part in each.parts:
                if part.word:
                    tokens.append((f"{BLANK_MARK}{part.word}", math.nan))
                    n_words = len(part.word.split())
                    links.append((tuple((i, i) for i in range(n_words)), n_words, n_words, False))
                    continue
                result = next(forced)
                tokens += self.tokens(part.tgt, result)
                if result.attention is not None:
                    src, tgt = self._codec.pieces(part.src), self._codec.tgt_pieces(part.tgt)
                    aligned = align_words(result.attention, src, tgt)
                    links.append((aligned, count_words(src), count_words(tgt), part.is_inside_word))
            joined = join_links(links, joins_without_blanks(self._codec.tgt_lang)) if with_alignment else ()
            if given := each.src_words:
                joined = tuple((given[src], tgt) for src, tgt in joined)
            found.append(Details(tuple(tokens), joined))
        return found

    def tokens(self, tgt: Sequence[int], forced: Forced) -> list[tuple[str, float]]:
        """The sub-words of an output with their log p, as in Details."""
        return list(zip([*self._codec.tgt_pieces(tgt), "</s>"], forced.token_log_probs, strict=True))

    def _forced(self, parts: Sequence[ModelPass], with_attention: bool) -> Iterator[Forced]:
        """The scores of some passes; no more attention is held at once than memory has room for."""
        start = 0
        while start < len(parts):
            end, weights = start, 0
            while end < len(parts) and (end == start or weights <= MOST_WEIGHTS):
                weights += (len(parts[end].src) + 1) * (len(parts[end].tgt) + 1) if with_attention else 0
                end += 1
            yield from self.force([(part.src, part.tgt) for part in parts[start:end]], with_attention=with_attention)
            start = end

    def attention_size(self, part: ModelPass) -> int:
        """How many weights attention() gives for a pass."""
        model = cast(Transformer, self._models[0])
        src_len, tgt_len = len(part.src) + 1, len(part.tgt) + 1
        heads = cast(EncoderLayer, model.encoder_layers[0]).attention.n_heads
        decoder = len(model.decoder_layers) * tgt_len * (tgt_len + src_len)
        return heads * (len(model.encoder_layers) * src_len**2 + decoder)

    def attention(self, part: ModelPass) -> tuple[AttentionMaps, list[str], list[str]]:
        """Where the (first) model looks in one pass, and the sub-words of its source and output."""
        with torch.inference_mode():
            src, tgt_in = _padded([[*part.src, EOS_ID]]), _padded([[BOS_ID, *part.tgt]])
            first = cast(Transformer, self._models[0])
            maps = attention_maps(first, src.to(self._device), None, tgt_in.to(self._device))
        return maps, self._codec.pieces(part.src), self._codec.tgt_pieces(part.tgt)


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """The number of each sub-word's word, from 0; blanks separate words, and a mere blank has -1."""
    numbers: list[int] = []
    word, inside = -1, False
    for piece in pieces:
        inside = inside and not piece.startswith(BLANK_MARK)
        if not inside and piece != BLANK_MARK:
            word, inside = word + 1, True
        numbers.append(-1 if piece == BLANK_MARK else word)
    return numbers


def count_words(pieces: Sequence[str]) -> int:
    return max(word_numbers(pieces), default=-1) + 1


def align_words(attention: Attention, src_pieces: Sequence[str], tgt_pieces: Sequence[str]) -> Links:
    """Link each target word with the source word that its sub-words attend to most; EOS is ignored.

    There are no links if either side has no word.
    """
    src_words, tgt_words = (np.array(word_numbers(p), np.int64) for p in (src_pieces, tgt_pieces))
    weights = np.zeros((tgt_words.max(initial=-1) + 2, src_words.max(initial=-1) + 2))  # the last of each: no word
    if weights.shape[0] < 2 or weights.shape[1] < 2:
        return ()
    np.add.at(weights, (tgt_words[:, None], src_words[None, :]), attention[: len(tgt_words), : len(src_words)])
    best = weights[:-1, :-1].argmax(axis=1)
    return tuple((int(src_word), tgt_word) for tgt_word, src_word in enumerate(best))


def join_links(parts: Sequence[tuple[Links, int, int, bool]], without_blanks: bool = False) -> Links:
    """Join the links of the parts of a split line.

    Args:
        parts: of each its links, its numbers of source and target words, and whether it begins inside a source word.
        without_blanks: whether the last target word of a part and the first of the next are one.
    """
    joined: list[tuple[int, int]] = []
    src_start = tgt_start = 0
    for links, n_src, n_tgt, is_inside_word in parts:
        src_start -= is_inside_word and src_start > 0
        tgt_start -= without_blanks and tgt_start > 0
        joined += [(src + src_start, tgt + tgt_start) for src, tgt in links]
        src_start, tgt_start = src_start + n_src, tgt_start + n_tgt
    return tuple(joined)
