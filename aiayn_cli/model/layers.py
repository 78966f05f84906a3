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


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, position by position (paper, Section 3.3)."""

    def __init__(self, d_model: int, d_ff: int, activation_dropout: float) -> None:
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.activation_dropout = activation_dropout
        self.w_1_rectifies = False  # True where use_int8() put a layer in its place that does both

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

    post: LayerNorm(x + Dropout(sublayer(x))), the paper's; pre: x + Dropout(sublayer(LayerNorm(x))), which leaves
    the sum without a norm, so that a stack needs one at its end.
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

    def __init__(self, attention: MultiHeadAttention, feed_forward: FeedForward, dropout: float, norm: str) -> None:
        super().__init__()
        d_model = feed_forward.w_1.in_features
        self.attention = attention
        self.feed_forward = feed_forward
        self.attention_residual = Residual(d_model, dropout, norm)
        self.feed_forward_residual = Residual(d_model, dropout, norm)

    def forward(self, x: Tensor, mask: Mask | PackedPattern) -> Tensor:
        """[batch, src_len, d_model], or packed [rows, d_model] with a PackedPattern -> the same shape."""
        x = self.attention_residual(x, lambda y: self.attention(y, y, mask))
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the memory, then the feed-forward network."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        memory_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        dropout: float,
        norm: str,
    ) -> None:
        super().__init__()
        d_model = feed_forward.w_1.in_features
        self.attention = attention
        self.memory_attention = memory_attention
        self.feed_forward = feed_forward
        self.attention_residual = Residual(d_model, dropout, norm)
        self.memory_residual = Residual(d_model, dropout, norm)
        self.cache_dtype: torch.dtype | None = None  # of the keys and values in step(); None = that of the weights
        self.feed_forward_residual = Residual(d_model, dropout, norm)

    def forward(
        self, x: Tensor, mask: Mask | PackedPattern, memory: Tensor, memory_mask: Mask | PackedPattern
    ) -> Tensor:
        """One layer over whole target sequences.

        Args:
            x: [batch, tgt_len, d_model], or packed [rows, d_model].
            mask: of self-attention, which hides what comes later; a PackedPattern if x is packed.
            memory: [batch, src_len, d_model], or packed likewise.
            memory_mask: bool [batch, 1, 1, src_len], True = a real source token; None = no padding. Packed likewise.
        Returns:
            As x.
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
        """One layer over the newest target positions; they are added to the cache.

        Args:
            x: [sentences, new, d_model], those of all hypotheses of a sentence together.
            cache: of this layer.
            slots, mask: where the new positions go and what they see, from DecoderCache.take_up().
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
        return self._combined(self.attention, read, x.dtype)

    def _attend_to_memory(self, x: Tensor, cache: LayerCache, memory_mask: SharedMask | None) -> Tensor:
        # All hypotheses of a sentence are queries of one attention, so that its memory is read, not copied.
        q = contiguous(self.memory_attention.project_q(x), cache.memory_k.dtype)
        read = attend(q, cache.memory_k, cache.memory_v, memory_mask, in_step=True)
        return self._combined(self.memory_attention, read, x.dtype)

    @staticmethod
    def _combined(attention: MultiHeadAttention, heads: Tensor, dtype: torch.dtype) -> Tensor:
        # In order as combine() needs them, and in their type, in one pass.
        return attention.combine(contiguous(heads.transpose(1, 2), dtype).transpose(1, 2))
