"""A convolutional encoder-decoder: ConvS2S (Gehring et al. 2017), which the paper compares itself with.

Gated convolutions of a fixed width read text, one upon the other; each layer of the decoder has an attention of its
own, which asks the encoder's last layer and reads that layer together with the embeddings below it. Unlike the first
ConvS2S, each block normalises what it reads by its mean and deviation instead of the norm of its weights, so that it
trains by the same recipe as the others; and gradients into the encoder are not scaled.

Of ModelConfig it takes n_encoder_layers, n_decoder_layers, d_model, kernel_size, dropout, positions, max_positions
and share_embeddings.
"""

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.cache import put, put_mask, rows_of, starts
from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.embeddings import (
    Embeddings,
    PositionTable,
    embed,
    longest_sequence,
    make_embeddings,
    make_positions,
)
from aiayn_cli.model.initialise import initialise
from aiayn_cli.model.translation_model import DecodingCache, TranslationModel

_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two


class GatedConvolution(nn.Module):
    """A convolution whose one half of outputs says how much of the other half comes through (GLU)."""

    def __init__(self, d_model: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.convolution = nn.Conv1d(d_model, 2 * d_model, kernel_size)
        # Gehring et al., Appendix A.3: the gate takes three quarters of the variance away.
        nn.init.normal_(self.convolution.weight, std=math.sqrt(4 * (1 - dropout) / (kernel_size * d_model)))
        nn.init.zeros_(self.convolution.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """[rows, length + kernel_size - 1, d_model], normalised and padded -> [rows, length, d_model]."""
        return functional.glu(self.convolution(x.transpose(1, 2)), dim=1).transpose(1, 2)


class ConvolutionalAttention(nn.Module):
    """What a layer of the decoder reads from the encoder (Gehring et al., Section 3.3)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w_query = nn.Linear(d_model, d_model)
        self.w_out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, embedded: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        """Let each position read from its sentence's memory.

        Args:
            x: [sentences, n_queries, d_model], what the layer's convolution made.
            embedded: [sentences, n_queries, d_model], the embeddings of the same target positions.
            memory: [sentences, src_len, 2 * d_model], encoder outputs, and these with the embeddings added.
            src_mask: bool [sentences, src_len], True = a real token; None = no padding.
        Returns:
            [sentences, n_queries, d_model].
        """
        keys, values = memory.chunk(2, dim=2)
        scores = (self.w_query(x) + embedded) * _HALF @ keys.transpose(1, 2)
        if src_mask is None:
            n_tokens: Tensor | float = float(memory.shape[1])
        else:
            scores = scores.masked_fill(~src_mask[:, None], -torch.inf)
            n_tokens = src_mask.sum(dim=1)[:, None, None].to(x.dtype)
        context = scores.softmax(dim=-1) @ values
        return self.w_out(context * n_tokens**0.5)  # type: ignore[no-any-return]


class ConvolutionalCache:
    """What the convolutional decoder keeps between two steps.

    Args:
        memory: [sentences, src_len, 2 * d_model].
        src_mask: bool [sentences, src_len] or None.
        n_layers: of the decoder.

    Attributes:
        recent: of each layer the last kernel_size - 1 inputs of its convolution, [rows, kernel_size - 1, d_model];
            None before the first step.
        lengths: target positions that each sentence's hypotheses have read.
    """

    def __init__(self, memory: Tensor, src_mask: Tensor | None, n_layers: int) -> None:
        self.memory, self.src_mask = memory, src_mask
        self.recent: list[Tensor | None] = [None] * n_layers
        self.lengths = [0] * len(memory)

    def reorder(self, rows: Tensor) -> None:
        self.recent = [None if recent is None else recent[rows] for recent in self.recent]

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        self.reorder(rows)
        self.memory = self.memory[sentences]
        self.src_mask = None if self.src_mask is None else self.src_mask[sentences]
        self.lengths = [self.lengths[sentence] for sentence in sentences.tolist()]

    def take(self, places: Tensor, other: Self, chosen: slice) -> None:
        for recent, another in zip(self.recent, other.recent, strict=True):
            assert recent is not None, "both have taken a step"
            assert another is not None, "both have taken a step"
            n_beams = len(recent) // len(self.memory)
            recent[rows_of(places, n_beams)] = another[chosen.start * n_beams : chosen.stop * n_beams]
        mask = None if other.src_mask is None else other.src_mask[chosen]
        self.src_mask = put_mask(self.memory, self.src_mask, places, other.memory[chosen], mask)
        self.memory = put(self.memory, places, other.memory[chosen])
        for place, length in zip(places.tolist(), other.lengths[chosen], strict=True):
            self.lengths[place] = length


class ConvolutionalModel(TranslationModel):
    """Blocks of gated convolutions, with attention in each one of the decoder; build_convolutional() makes one."""

    def __init__(
        self,
        embeddings: Embeddings,
        src_positions: PositionTable,
        tgt_positions: PositionTable,
        *,
        d_model: int,
        kernel_size: int,
        n_encoder_layers: int,
        n_decoder_layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding, self.output = embeddings.src, embeddings.tgt, embeddings.output
        self.src_positions, self.tgt_positions = src_positions, tgt_positions

        def convolutions(n: int) -> nn.ModuleList:
            return nn.ModuleList(GatedConvolution(d_model, kernel_size, dropout) for _ in range(n))

        self.encoder_layers, self.decoder_layers = convolutions(n_encoder_layers), convolutions(n_decoder_layers)
        self.attentions = nn.ModuleList(ConvolutionalAttention(d_model) for _ in range(n_decoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.kernel_size, self.dropout = kernel_size, dropout

    @property
    def max_positions(self) -> int:
        return longest_sequence(self.src_positions, self.tgt_positions)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """See TranslationModel; the width is 2 * d_model: outputs, and outputs with embeddings added."""
        embedded = embed(src, self.src_embedding, self.src_positions, 0, self._dropout())
        before = (self.kernel_size - 1) // 2
        x = embedded
        for layer in _blocks(self.encoder_layers):
            y = layer.norm(x)
            if src_mask is not None:
                y = y.masked_fill(~src_mask[:, :, None], 0)  # so that padding reads like the end of the text
            y = functional.pad(y, (0, 0, before, self.kernel_size - 1 - before))
            x = (layer(dropout(y, self._dropout())) + x) * _HALF
        x = self.encoder_norm(x)
        return torch.cat((x, (x + embedded) * _HALF), dim=2)

    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        return self._run(tgt_in, self.start(memory, src_mask))

    def start(self, memory: Tensor, src_mask: Tensor | None) -> ConvolutionalCache:
        return ConvolutionalCache(memory, src_mask, len(self.decoder_layers))

    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        assert isinstance(cache, ConvolutionalCache), "it comes from start()"
        return self.project(self._run(tokens, cache)[:, -1])

    def _run(self, tokens: Tensor, cache: ConvolutionalCache) -> Tensor:
        """Read tokens [rows, new_len] after what the cache has; give [rows, new_len, d_model]."""
        start = starts(cache.lengths, len(tokens) // len(cache.memory))
        embedded = embed(tokens, self.tgt_embedding, self.tgt_positions, start, self._dropout())
        rows, new_len, d_model = embedded.shape
        by_sentence = len(cache.memory), -1, d_model  # all hypotheses of a sentence read the same memory
        x = embedded
        for i, (layer, attention) in enumerate(zip(_blocks(self.decoder_layers), self.attentions, strict=True)):
            y = layer.norm(x)
            recent = cache.recent[i]
            if recent is None:
                recent = y.new_zeros(rows, self.kernel_size - 1, d_model)
            y = torch.cat((recent, y), dim=1)
            cache.recent[i] = y[:, new_len:]
            y = layer(dropout(y, self._dropout()))
            read = attention(y.reshape(by_sentence), embedded.reshape(by_sentence), cache.memory, cache.src_mask)
            x = ((y + read.view(y.shape)) * _HALF + x) * _HALF
        cache.lengths = [length + new_len for length in cache.lengths]
        return dropout(self.decoder_norm(x), self._dropout())

    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0


def _blocks(layers: nn.ModuleList) -> list[GatedConvolution]:
    return list(layers)  # type: ignore[arg-type]


def build_convolutional(config: ModelConfig, vocab_size: int) -> ConvolutionalModel:
    """Make a ConvolutionalModel with fresh weights; see `build_model`."""
    model = ConvolutionalModel(
        make_embeddings(config, vocab_size),
        make_positions(config),
        make_positions(config),
        d_model=config.d_model,
        kernel_size=config.kernel_size,
        n_encoder_layers=config.n_encoder_layers,
        n_decoder_layers=config.n_decoder_layers,
        dropout=config.dropout,
    )
    initialise(model)
    return model
