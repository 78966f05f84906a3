"""A convolutional encoder-decoder: ConvS2S (Gehring et al. 2017), which the paper compares with.

It is a stack of gated convolutions of a fixed width. Each layer of the decoder has its own attention, whose keys are
the encoder's output, and whose values are that output plus the source embeddings. Unlike the original, each block uses
layer normalisation instead of weight normalisation, so that it trains by the same recipe as the others, and gradients
into the encoder are not scaled.

It uses n_encoder_layers, n_decoder_layers, d_model, kernel_size, dropout, positions, max_positions and share_embeddings
of ModelConfig.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.cache import RowCache, starts
from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.embeddings import embed, longest_sequence, make_embeddings, make_positions
from aiayn_cli.model.translation_model import DecodingCache, TranslationModel
from aiayn_cli.recipe_keys import ModelConfig

_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two


class GatedConvolution(nn.Module):
    """A convolution of which half the outputs gate the other half (GLU)."""

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


class ConvolutionalModel(TranslationModel):
    """Blocks of gated convolutions, with attention in each of the decoder's."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding, self.output = make_embeddings(config, vocab_size)
        self.src_positions, self.tgt_positions = make_positions(config), make_positions(config)
        d_model, self.kernel_size, self.dropout = config.d_model, config.kernel_size, config.dropout

        def convolutions(n: int) -> nn.ModuleList:
            return nn.ModuleList(GatedConvolution(d_model, self.kernel_size, self.dropout) for _ in range(n))

        self.encoder_layers = convolutions(config.n_encoder_layers)
        self.decoder_layers = convolutions(config.n_decoder_layers)
        self.attentions = nn.ModuleList(ConvolutionalAttention(d_model) for _ in range(config.n_decoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

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

    def start(self, memory: Tensor, src_mask: Tensor | None) -> RowCache:
        # Of each layer, the inputs that its next convolution reads again: [rows, kernel_size - 1, d_model].
        nothing = memory.new_zeros(len(memory), self.kernel_size - 1, memory.shape[2] // 2)
        return RowCache([memory], src_mask, [nothing] * len(self.decoder_layers))

    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        assert isinstance(cache, RowCache), "it comes from start()"
        return self.project(self._run(tokens, cache)[:, -1])

    def _run(self, tokens: Tensor, cache: RowCache) -> Tensor:
        """Read tokens [rows, new_len] after those of the cache; return [rows, new_len, d_model]."""
        rows, new_len = tokens.shape
        cache.expand(rows)
        (memory,) = cache.memory
        start = starts(cache.lengths, rows // len(memory))
        embedded = embed(tokens, self.tgt_embedding, self.tgt_positions, start, self._dropout())
        by_sentence = len(memory), -1, embedded.shape[2]  # all hypotheses of a sentence read the same memory
        x = embedded
        for i, (layer, attention) in enumerate(zip(_blocks(self.decoder_layers), self.attentions, strict=True)):
            y = torch.cat((cache.rows[i], layer.norm(x)), dim=1)
            cache.rows[i] = y[:, new_len:]
            y = layer(dropout(y, self._dropout()))
            read = attention(y.reshape(by_sentence), embedded.reshape(by_sentence), memory, cache.src_mask)
            x = ((y + read.view(y.shape)) * _HALF + x) * _HALF
        cache.lengths = [length + new_len for length in cache.lengths]
        return dropout(self.decoder_norm(x), self._dropout())

    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0


def _blocks(layers: nn.ModuleList) -> list[GatedConvolution]:
    return list(layers)  # type: ignore[arg-type]
