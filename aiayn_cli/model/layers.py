"""Encoder and decoder layers (paper, Section 3.1): sub-layers, each inside a residual connection with a norm."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.attention import MultiHeadAttention, attend
from aiayn_cli.model.cache import LayerCache, NewSlots, contiguous
from aiayn_cli.model.cpu.dropout import dropout, dropout_add
from aiayn_cli.model.cpu.fused_feed_forward import fused_feed_forward
from aiayn_cli.model.cpu.packed_attention import PackedPattern
from aiayn_cli.model.masks import Mask, SharedMask
from aiayn_cli.recipe_keys import ModelConfig


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, position by position (paper, Section 3.3)."""

    def __init__(self, d_model: int, d_ff: int, activation_dropout: float) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.activation_dropout = activation_dropout
        self.w_1_rectifies = False  # True if use_int8() replaced it by a layer that includes the ReLU

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, d_model] or packed [rows, d_model] -> the same shape."""
        if x.dim() == 2 and x.device.type == "cpu":
            lost = self.activation_dropout if self.training else 0.0
            return fused_feed_forward(x, self.w_1.weight, self.w_1.bias, self.w_2.weight, self.w_2.bias, lost)
        hidden = self.w_1(x)  # [batch, length, d_ff]
        if not self.w_1_rectifies:
            hidden = functional.relu(hidden, inplace=True)
        return self.w_2(dropout(hidden, self.activation_dropout if self.training else 0.0))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """The connection around a sub-layer.

    post: LayerNorm(x + Dropout(sublayer(x))), the paper's. pre: x + Dropout(sublayer(LayerNorm(x))); a stack of these
    needs a norm at its end.
    """

    def __init__(self, d_model: int, dropout: float, norm: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = dropout
        self.norm_first = norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """[batch, length, d_model] or packed [rows, d_model] -> the same shape."""
        y = sublayer(self.norm(x) if self.norm_first else x)
        total = dropout_add(y, x, self.dropout if self.training else 0.0)
        return total if self.norm_first else self.norm(total)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = _attention(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation_dropout)
        self.attention_residual = Residual(config.d_model, config.dropout, config.norm)
        self.feed_forward_residual = Residual(config.d_model, config.dropout, config.norm)

    def forward(self, x: Tensor, mask: Mask | PackedPattern) -> Tensor:
        """[batch, src_len, d_model], or packed [rows, d_model] with a PackedPattern -> the same shape."""
        x = self.attention_residual(x, lambda y: self.attention(y, y, mask))
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, then the feed-forward network."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = _attention(config)
        self.memory_attention = _attention(config)
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation_dropout)
        self.attention_residual = Residual(config.d_model, config.dropout, config.norm)
        self.memory_residual = Residual(config.d_model, config.dropout, config.norm)
        self.feed_forward_residual = Residual(config.d_model, config.dropout, config.norm)
        self.cache_dtype: torch.dtype | None = None  # of the keys and values in step(); None = that of the weights

    def forward(
        self, x: Tensor, mask: Mask | PackedPattern, memory: Tensor, memory_mask: Mask | PackedPattern
    ) -> Tensor:
        """One layer over whole target sequences.

        Args:
            x: [batch, tgt_len, d_model], or packed [rows, d_model].
            mask: of self-attention, which hides later positions; a PackedPattern if x is packed.
            memory: [batch, src_len, d_model], or packed likewise.
            memory_mask: hides padding of the source; None = no padding. A PackedPattern if x is packed.
        Returns:
            The shape of x.
        """
        x = self.attention_residual(x, lambda y: self.attention(y, y, mask))
        x = self.memory_residual(x, lambda y: self.memory_attention(y, memory, memory_mask))
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]

    def start(self, memory: Tensor) -> LayerCache:
        """Project the memory [sentences, src_len, d_model] once for all steps to come."""
        k, v = (x.to(self.cache_dtype or x.dtype).contiguous() for x in self.memory_attention.project_kv(memory))
        return LayerCache(k, v)

    def step(
        self, x: Tensor, cache: LayerCache, slots: NewSlots, mask: SharedMask, memory_mask: SharedMask | None
    ) -> Tensor:
        """One layer over the newest target positions, which are added to the cache.

        Args:
            x: [sentences, new, d_model], the positions of all hypotheses of a sentence.
            cache: of this layer.
            slots, mask: where the new positions go and what they see, from DecoderCache.allocate().
            memory_mask: of the DecoderCache.
        Returns:
            [sentences, new, d_model].
        """
        x = self.attention_residual(x, lambda y: self._attend_to_past(y, mask, cache, slots))
        x = self.memory_residual(x, lambda y: self._attend_to_memory(y, cache, memory_mask))
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]

    def _attend_to_past(self, x: Tensor, mask: SharedMask, cache: LayerCache, slots: NewSlots) -> Tensor:
        q, k, v = self.attention.project_all(x)
        k, v = cache.append(k, v, slots)
        read = attend(contiguous(q, k.dtype), k, v, mask, in_step=True)
        return _combined(self.attention, read, x.dtype)

    def _attend_to_memory(self, x: Tensor, cache: LayerCache, memory_mask: SharedMask | None) -> Tensor:
        # All hypotheses of a sentence are queries of one attention, so that its memory need not be copied.
        q = contiguous(self.memory_attention.project_q(x), cache.memory_k.dtype)
        read = attend(q, cache.memory_k, cache.memory_v, memory_mask, in_step=True)
        return _combined(self.memory_attention, read, x.dtype)


def _attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        config.d_model, config.n_heads, config.d_k, config.d_v,
        bias=config.attention_bias, dropout=config.attention_dropout,
    )  # fmt: skip


def _combined(attention: MultiHeadAttention, heads: Tensor, dtype: torch.dtype) -> Tensor:
    # In the order and the type that combine() needs, in one pass.
    return attention.combine(contiguous(heads.transpose(1, 2), dtype).transpose(1, 2))
