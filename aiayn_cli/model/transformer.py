"""The Transformer (paper, Section 3): embeddings, encoder, decoder, projection to the vocabulary."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.cache import DecoderCache, equal_lengths
from aiayn_cli.model.dropout import dropout
from aiayn_cli.model.initialise import initialise
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer, FeedForward
from aiayn_cli.model.masks import causal_mask, combine, padding_mask, window_mask
from aiayn_cli.model.positions import LearnedPositions, SinusoidalPositions


class Transformer(nn.Module):
    """Encoder and decoder with their embeddings; build_model() makes one from a ModelConfig.

    Token sequences are int64, padded with PAD_ID at the end. A source ends with EOS_ID; what the decoder reads
    begins with BOS_ID.
    """

    def __init__(
        self,
        encoder_layers: list[EncoderLayer],
        decoder_layers: list[DecoderLayer],
        src_embedding: nn.Embedding,
        tgt_embedding: nn.Embedding,
        output: nn.Embedding,
        src_positions: SinusoidalPositions | LearnedPositions,
        tgt_positions: SinusoidalPositions | LearnedPositions,
        *,
        dropout: float,
        final_norm: bool,
        attention_window: int,
    ) -> None:
        super().__init__()
        d_model = src_embedding.embedding_dim
        self.encoder_layers = nn.ModuleList(encoder_layers)
        self.decoder_layers = nn.ModuleList(decoder_layers)
        # Modules given more than once are shared: their weights exist once.
        self.src_embedding, self.tgt_embedding, self.output = src_embedding, tgt_embedding, output
        self.vocab_projection: nn.Module | None = None  # instead of the output matrix, where use_int8() set one
        self.src_positions, self.tgt_positions = src_positions, tgt_positions
        self.encoder_norm = nn.LayerNorm(d_model) if final_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if final_norm else nn.Identity()
        self.dropout = dropout
        self.attention_window = attention_window

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Logits of every next target token, given the ones before (teacher forcing).

        Args:
            src: int64 [batch, src_len].
            src_mask: bool [batch, src_len], True = a real token; None = no padding.
            tgt_in: int64 [batch, tgt_len], the target shifted right: BOS_ID first.
        Returns:
            [batch, tgt_len, vocab].
        """
        return self.project(self.decode(tgt_in, self.encode(src, src_mask), src_mask))

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """int64 [batch, src_len] and bool [batch, src_len] or None -> memory [batch, src_len, d_model]."""
        x = self._embed(src, self.src_embedding, self.src_positions, start=0)
        mask = None if src_mask is None else padding_mask(src_mask)
        if self.attention_window:
            mask = combine(mask, window_mask(src.shape[1], self.attention_window, src.device))
            mask = _let_padding_see_itself(mask)
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        """What the decoder makes of whole target sequences, before the projection.

        Args:
            tgt_in: int64 [batch, tgt_len], BOS_ID first.
            memory: [batch, src_len, d_model] from encode().
            src_mask: bool [batch, src_len], True = a real token; None = no padding.
        Returns:
            [batch, tgt_len, d_model].
        """
        x = self._embed(tgt_in, self.tgt_embedding, self.tgt_positions, start=0)
        # Padding stands at the end, so the causal mask alone hides it from every real position.
        mask = causal_mask(tgt_in.shape[1], tgt_in.device)
        if self.attention_window:
            mask = mask & window_mask(tgt_in.shape[1], self.attention_window, tgt_in.device)
        memory_mask = None if src_mask is None else padding_mask(src_mask)
        for layer in self.decoder_layers:
            x = layer(x, mask, memory, memory_mask)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def project(self, hidden: Tensor) -> Tensor:
        """[..., d_model] -> logits [..., vocab], by the (shared) embedding matrix (Section 3.4)."""
        if self.vocab_projection is not None:
            return self.vocab_projection(hidden)  # type: ignore[no-any-return]
        return functional.linear(hidden, self.output.weight)

    def start(self, memory: Tensor, src_mask: Tensor | None) -> DecoderCache:
        """Prepare incremental decoding: project the memory once per source sentence.

        Args:
            memory: [sentences, src_len, d_model].
            src_mask: bool [sentences, src_len], True = a real token; None = no padding.
        """
        return DecoderCache([layer.start(memory) for layer in self._decoder()], src_mask, self.attention_window)

    def step(self, tokens: Tensor, cache: DecoderCache) -> Tensor:
        """Logits of the token after the given ones, which the cache takes up.

        Args:
            tokens: int64 [rows, new_len]; rows is a multiple of the cache's sentences.
            cache: from start(), with the positions of earlier steps.
        Returns:
            [rows, vocab].
        """
        rows, new_len = tokens.shape
        lengths = cache.lengths
        assert rows % len(lengths) == 0, f"{rows} rows cannot belong to {len(lengths)} sentences"
        start: int | list[int] | None = equal_lengths(lengths)
        if start is None:
            start = [length for length in lengths for _ in range(rows // len(lengths))]
        x = self._embed(tokens, self.tgt_embedding, self.tgt_positions, start)
        x = x.view(len(lengths), -1, x.shape[2])  # [sentences, rows / sentences * new_len, d_model]
        slots, mask = cache.take_up(rows // len(lengths), new_len)
        for layer, layer_cache in zip(self._decoder(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, slots, mask, cache.memory_mask)
        return self.project(self.decoder_norm(x.view(rows, new_len, -1)[:, -1]))

    def _decoder(self) -> list[DecoderLayer]:
        return list(self.decoder_layers)  # type: ignore[arg-type]

    def _embed(
        self,
        tokens: Tensor,
        embedding: nn.Embedding,
        positions: SinusoidalPositions | LearnedPositions,
        start: int | Sequence[int],
    ) -> Tensor:
        """int64 [batch, length] -> [batch, length, d_model], scaled by sqrt(d_model) (Section 3.4).

        The first token stands at position `start`, one for all or one for each.
        """
        x = embedding(tokens) * math.sqrt(embedding.embedding_dim) + positions(start, tokens.shape[1])
        return dropout(x, self.dropout if self.training else 0.0)


def build_model(config: ModelConfig, vocab_size: int) -> Transformer:
    """A Transformer with fresh weights, drawn from torch's default generator.

    Args:
        config: its shape.
        vocab_size: rows of the embedding matrices, special tokens included.
    """

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(
            config.d_model,
            config.n_heads,
            config.d_k,
            config.d_v,
            bias=config.attention_bias,
            dropout=config.attention_dropout,
        )

    def feed_forward() -> FeedForward:
        return FeedForward(config.d_model, config.d_ff, config.activation_dropout)

    def positions() -> SinusoidalPositions | LearnedPositions:
        if config.positions == "learned":
            return LearnedPositions(config.max_positions, config.d_model)
        return SinusoidalPositions(config.d_model)

    src_embedding = nn.Embedding(vocab_size, config.d_model)
    tgt_embedding = src_embedding if config.share_embeddings == "all" else nn.Embedding(vocab_size, config.d_model)
    output = nn.Embedding(vocab_size, config.d_model) if config.share_embeddings == "none" else tgt_embedding
    model = Transformer(
        [
            EncoderLayer(attention(), feed_forward(), config.dropout, config.norm)
            for _ in range(config.n_encoder_layers)
        ],
        [
            DecoderLayer(attention(), attention(), feed_forward(), config.dropout, config.norm)
            for _ in range(config.n_decoder_layers)
        ],
        src_embedding,
        tgt_embedding,
        output,
        positions(),
        positions(),
        dropout=config.dropout,
        final_norm=config.norm == "pre",
        attention_window=config.attention_window,
    )
    initialise(model)
    return model


def count_parameters(model: nn.Module) -> int:
    """Trained numbers, each shared one counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _let_padding_see_itself(mask: Tensor | None) -> Tensor | None:
    """Give every position at least itself, so that no softmax row is empty where a window meets padding."""
    if mask is None or mask.shape[2] == 1:
        return mask
    return mask | torch.eye(mask.shape[3], dtype=torch.bool, device=mask.device)
