"""The Transformer (paper, Section 3): embeddings, encoder, decoder, projection to the vocabulary.

At the end, attention weights for inspection, which are computed in addition to the model's own pass.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.cache import DecoderCache, starts
from aiayn_cli.model.cpu.packed_attention import PackedPattern, Packing
from aiayn_cli.model.embeddings import embed, embed_packed, longest_sequence, make_embeddings, make_positions
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer
from aiayn_cli.model.masks import Causal, Mask, SharedMask, Window, padding_mask
from aiayn_cli.model.translation_model import DecodingCache, TranslationModel
from aiayn_cli.recipe_keys import ModelConfig


class Transformer(TranslationModel):
    """The paper's model."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.n_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.n_decoder_layers))
        self.src_embedding, self.tgt_embedding, self.output = make_embeddings(config, vocab_size)
        self.src_positions, self.tgt_positions = make_positions(config), make_positions(config)
        is_pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if is_pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if is_pre else nn.Identity()
        self.dropout, self.attention_window = config.dropout, config.attention_window

    @property
    def max_positions(self) -> int:
        return longest_sequence(self.src_positions, self.tgt_positions)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        x = embed(src, self.src_embedding, self.src_positions, 0, self._dropout())
        padding = None if src_mask is None else padding_mask(src_mask)
        mask = Window(self.attention_window, False, src_mask) if self.attention_window else padding
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x)  # type: ignore[no-any-return]

    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        x = embed(tgt_in, self.tgt_embedding, self.tgt_positions, 0, self._dropout())
        mask = self._causal()  # also hides padding from real positions: it is at the end
        memory_mask = None if src_mask is None else padding_mask(src_mask)
        for layer in self.decoder_layers:
            x = layer(x, mask, memory, memory_mask)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    @property
    def reads_packed(self) -> bool:
        return all(m.d_k == m.d_v for m in self.modules() if isinstance(m, MultiHeadAttention))

    def decode_packed(self, src: Tensor, src_packing: Packing, tgt_in: Tensor, tgt_packing: Packing) -> Tensor:
        padding = src_mask = SharedMask(padding_mask(src_packing.is_token))
        if self.attention_window:
            window = Window(self.attention_window, False, src_packing.is_token)
            src_mask = SharedMask(window.mask(src_packing.length, src.device))
        tgt_mask = SharedMask(self._causal().mask(tgt_packing.length, src.device))
        pattern = PackedPattern(src_packing, src_packing, src_mask)
        memory = embed_packed(src, src_packing, self.src_embedding, self.src_positions, self._dropout())
        for layer in self.encoder_layers:
            memory = layer(memory, pattern)
        memory = self.encoder_norm(memory)
        tgt_pattern = PackedPattern(tgt_packing, tgt_packing, tgt_mask)
        memory_pattern = PackedPattern(tgt_packing, src_packing, padding)
        x = embed_packed(tgt_in, tgt_packing, self.tgt_embedding, self.tgt_positions, self._dropout())
        for layer in self.decoder_layers:
            x = layer(x, tgt_pattern, memory, memory_pattern)
        return self.decoder_norm(x)  # type: ignore[no-any-return]

    def start(self, memory: Tensor, src_mask: Tensor | None) -> DecoderCache:
        return DecoderCache([layer.start(memory) for layer in self._decoder()], src_mask, self.attention_window)

    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        assert isinstance(cache, DecoderCache), "it comes from start()"
        rows, new_len = tokens.shape
        n_beams = rows // len(cache.lengths)
        assert rows == n_beams * len(cache.lengths), f"{rows} rows cannot belong to {len(cache.lengths)} sentences"
        start = starts(cache.lengths, n_beams)
        x = embed(tokens, self.tgt_embedding, self.tgt_positions, start, self._dropout())
        x = x.view(len(cache.lengths), -1, x.shape[2])  # [sentences, beams * new_len, d_model]
        slots, mask = cache.allocate(n_beams, new_len)
        for layer, layer_cache in zip(self._decoder(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, slots, mask, cache.memory_mask)
        return self.project(self.decoder_norm(x.view(rows, new_len, -1)[:, -1]))

    def _decoder(self) -> list[DecoderLayer]:
        return list(self.decoder_layers)  # type: ignore[arg-type]

    def _causal(self) -> Causal | Window:
        return Window(self.attention_window, True) if self.attention_window else Causal()

    def _dropout(self) -> float:
        return self.dropout if self.training else 0.0


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights, float32; each row of the last axis sums to 1, and is 0 where the mask hides something.

    Row i of the decoder's attentions chooses output i; column j of its self-attention is the token read at step j, BOS
    first.
    """

    encoder: Tensor  # [layers, batch, heads, src_len, src_len], self-attention
    decoder: Tensor  # [layers, batch, heads, tgt_len, tgt_len], masked self-attention
    cross: Tensor  # [layers, batch, heads, tgt_len, src_len], attention over the memory


def attention_weights(attention: MultiHeadAttention, queries: Tensor, memory: Tensor, mask: Mask) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) of one attention (paper, Equation 1), [batch, heads, tgt_len, src_len] in float32."""
    q, (k, _) = attention.project_q(queries), attention.project_kv(memory)
    scores = (q.float() @ k.float().transpose(2, 3)) / math.sqrt(attention.d_k)
    if isinstance(mask, Causal | Window):
        mask = mask.mask(queries.shape[1], queries.device)
    elif isinstance(mask, SharedMask):
        mask = mask.shown
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(dim=-1)


def attention_maps(model: Transformer, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> AttentionMaps:
    """All weights of one pass over whole sentences; arguments as in the model's forward pass."""
    groups = [
        [layer.attention for layer in model.encoder_layers],
        [layer.attention for layer in model.decoder_layers],
        [layer.memory_attention for layer in model.decoder_layers],
    ]
    modules = cast(list[list[MultiHeadAttention]], groups)
    with _recorded(module for group in modules for module in group) as weights:
        model.decode(tgt_in, model.encode(src, src_mask), src_mask)
    encoder, decoder, cross = (torch.stack([weights[module] for module in group]) for group in modules)
    return AttentionMaps(encoder, decoder, cross)


def cross_attention(model: Transformer, layer: int, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
    """Weights of one decoder layer over the memory, averaged over its heads: [batch, tgt_len, src_len]."""
    attention = cast(MultiHeadAttention, model.decoder_layers[layer].memory_attention)
    with _recorded([attention]) as weights:
        model.decode(tgt_in, memory, src_mask)
    return weights[attention].mean(dim=1)


@contextmanager
def _recorded(modules: Iterable[MultiHeadAttention]) -> Iterator[dict[nn.Module, Tensor]]:
    """Collects the weights of some attentions while the model runs."""
    found: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, arguments: tuple[Tensor, Tensor, Mask]) -> None:
        found[module] = attention_weights(cast(MultiHeadAttention, module), *arguments)

    hooks = [module.register_forward_pre_hook(record) for module in modules]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
