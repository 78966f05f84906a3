"""Attention weights, for inspection; computed in addition to the model's own pass."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.masks import Causal, Mask, SharedMask, Window
from aiayn_cli.model.transformer import Transformer


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
