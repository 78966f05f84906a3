"""Scaled dot-product attention and multi-head attention (paper, Section 3.2)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.cpu.packed_attention import PackedPattern, packed_attention, project_apart
from aiayn_cli.model.masks import Causal, Mask, SharedMask, Window, from_blocks

# Queries x keys of one head below which a CPU is faster with the written-out form: up to ten times at lengths of
# sentences, since the backward pass of torch's fused kernel is slow there (tests/benchmarks/attention.py, with the
# products that device.py chooses). Beyond, the weights that are kept for the backward pass would take too much memory.
_WRITTEN_OUT_BELOW = 512 * 512
# Heads of all sentences up to which the fused kernel is faster in a step of incremental decoding, in float32: to start
# one operation instead of ten is most of the time then.
_FUSED_UP_TO = 32


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout_probability: float = 0.0, *, in_step: bool = False
) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v: the one place that chooses how it is computed.

    Args:
        q: [batch, heads, tgt_len, d_k].
        k: [batch, heads, src_len, d_k].
        v: [batch, heads, src_len, d_v].
        mask: who may attend to whom (masks.py); Causal and Window for self-attention only.
        dropout_probability: of losing an attention weight.
        in_step: this is a step of incremental decoding, whose rounding may depend on the number of sentences.
            Otherwise the choice looks at their lengths alone, so that a pair's score does not depend on its batch.
    Returns:
        [batch, heads, tgt_len, d_v].
    """
    if isinstance(mask, Window):
        if mask.pays(q.shape[2]):
            blocks = attend(*mask.to_blocks(q, k, v), dropout_probability)
            return from_blocks(blocks, len(q), q.shape[2])
        mask = mask.mask(q.shape[2], q.device)
    on_cpu = q.device.type == "cpu"
    starts_soon = in_step and on_cpu and q.dtype is torch.float32 and len(q) * q.shape[1] <= _FUSED_UP_TO
    if on_cpu and not starts_soon and q.shape[2] * k.shape[2] < _WRITTEN_OUT_BELOW:
        seen = mask.mask(q.shape[2], q.device) if isinstance(mask, Causal) else mask
        return written_out_attention(q, k, v, seen, dropout_probability)
    if isinstance(mask, Causal):  # flash attention, which takes no mask
        return functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout_probability, is_causal=True)
    added = mask.added(0, q.dtype) if isinstance(mask, SharedMask) else mask
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropout_probability)


def written_out_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | SharedMask | None, dropout_probability: float
) -> Tensor:
    """The equation itself, in three operations; arguments and result as in attend()."""
    batch, heads, tgt_len, d_k = q.shape
    q, k, v = (x.reshape(batch * heads, x.shape[2], x.shape[3]) for x in (q, k, v))
    scale = 1 / math.sqrt(d_k)
    if mask is None:
        # beta=0 ignores what would be added, so that scaling costs no pass of its own.
        scores = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=scale)
    else:
        # Hidden places get -inf before the softmax (Section 3.2.3), added by the product itself.
        shared = mask if isinstance(mask, SharedMask) else SharedMask(mask)
        scores = torch.baddbmm(shared.added(heads, q.dtype), q, k.transpose(1, 2), alpha=scale)
    # Over a few bf16 numbers torch's softmax takes up to four times as long as with its result in float32.
    wide = torch.float32 if scores.dtype is torch.bfloat16 and not scores.requires_grad else None
    weights = dropout(scores.softmax(dim=-1, dtype=wide).to(v.dtype), dropout_probability)
    return torch.bmm(weights, v).view(batch, heads, tgt_len, -1)


class Projection(nn.Linear):
    """A linear layer of which a part of the output features can be had alone."""

    def rows(self, x: Tensor, first: int, last: int) -> Tensor:
        """[..., in_features] -> [..., last - first]: output features first .. last - 1."""
        return functional.linear(x, self.weight[first:last], None if self.bias is None else self.bias[first:last])


class MultiHeadAttention(nn.Module):
    """Multi-head attention (paper, Section 3.2.2); d_k and d_v need not be d_model / n_heads.

    The heads are slices of one projection, and queries, keys and values of self-attention come from one product.
    """

    def __init__(
        self, d_model: int, n_heads: int, d_k: int, d_v: int, *, bias: bool = False, dropout: float = 0
    ) -> None:
        super().__init__()
        self.n_heads, self.d_k, self.d_v, self.dropout = n_heads, d_k, d_v, dropout
        # Rows: queries of all heads, then keys of all heads, then values of all heads.
        self.w_qkv = Projection(d_model, n_heads * (2 * d_k + d_v), bias=bias)
        self.w_o = nn.Linear(n_heads * d_v, d_model, bias=bias)

    def forward(self, queries: Tensor, memory: Tensor, mask: Mask | PackedPattern) -> Tensor:
        """Let each query read from memory.

        Args:
            queries: [batch, tgt_len, d_model], or packed [rows, d_model].
            memory: [batch, src_len, d_model]; the queries themselves for self-attention. Or packed likewise.
            mask: who may attend to whom (masks.py); for packed sequences a PackedPattern, if d_k is d_v.
        Returns:
            As the queries.
        """
        if isinstance(mask, PackedPattern):
            return self._read_packed(queries, memory, mask)
        q, k, v = (
            self.project_all(queries) if memory is queries else (self.project_q(queries), *self.project_kv(memory))
        )
        return self.combine(attend(q, k, v, mask, self.dropout if self.training else 0.0))

    def _read_packed(self, queries: Tensor, memory: Tensor, pattern: PackedPattern) -> Tensor:
        assert self.d_k == self.d_v, "heads are gathered as vectors of one width"
        lost = self.dropout if self.training else 0.0
        if memory is queries:
            read = packed_attention(self.w_qkv(queries), None, pattern, self.n_heads, lost)
        else:
            weight, bias = self.w_qkv.weight, self.w_qkv.bias
            q, kv = project_apart(queries, memory, weight, bias, self.n_heads * self.d_k)
            read = packed_attention(q, kv, pattern, self.n_heads, lost)
        return self.w_o(read)  # type: ignore[no-any-return]

    def project_all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of self-attention: [batch, heads, length, d_k], the same, [.., d_v]."""
        projected: Tensor = self.w_qkv(x)
        qk_width = self.n_heads * self.d_k
        q, k, v = torch.split(projected, [qk_width, qk_width, self.n_heads * self.d_v], dim=-1)
        return self._split_heads(q), self._split_heads(k), self._split_heads(v)

    def project_q(self, queries: Tensor) -> Tensor:
        """[batch, tgt_len, d_model] -> [batch, heads, tgt_len, d_k]."""
        return self._split_heads(self.w_qkv.rows(queries, 0, self.n_heads * self.d_k))

    def project_kv(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """[batch, src_len, d_model] -> keys [batch, heads, src_len, d_k], values [batch, heads, src_len, d_v]."""
        qk_width = self.n_heads * self.d_k
        projected = self.w_qkv.rows(memory, qk_width, self.w_qkv.out_features)
        k, v = torch.split(projected, [qk_width, self.n_heads * self.d_v], dim=-1)
        return self._split_heads(k), self._split_heads(v)

    def combine(self, heads: Tensor) -> Tensor:
        """[batch, heads, tgt_len, d_v] -> [batch, tgt_len, d_model]: concatenate the heads and project."""
        return self.w_o(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)  # [batch, heads, length, width of a head]
