"""Scaled dot-product attention and multi-head attention (paper, Section 3.2)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.cpu.packed_attention import PackedPattern, packed_attention, split_projection
from aiayn_cli.model.masks import Causal, Mask, SharedMask, Window, from_blocks

# Queries x keys of one head below which the written-out form is faster on a CPU: up to ten times at the lengths of
# sentences, where the backward pass of torch's fused kernel is slow (tests/benchmarks/attention.py). Above, the weights
# kept for the backward pass would take too much memory.
_WRITTEN_OUT_BELOW = 512 * 512
# Heads of all sentences up to which the fused kernel is faster in a float32 step of incremental decoding, where most
# of the time goes into starting operations: one instead of ten.
_FUSED_UP_TO = 32


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout_probability: float = 0.0, *, in_step: bool = False
) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v. Chooses how it is computed, by device, mask and size.

    Packed sequences take another path, from their projections on: cpu/packed_attention.py.

    Args:
        q, k, v: [batch, heads, tgt_len, d_k], [batch, heads, src_len, d_k] and [batch, heads, src_len, d_v].
        mask: who may attend to whom (masks.py); Causal and Window for self-attention only.
        in_step: in a step of incremental decoding, where rounding may depend on the number of sentences. Otherwise
            the choice depends on lengths alone, so that a pair's score does not depend on its batch.
    Returns:
        [batch, heads, tgt_len, d_v].
    """
    if isinstance(mask, Window):
        if mask.pays(q.shape[2]):
            blocks = attend(*mask.to_blocks(q, k, v), dropout_probability)
            return from_blocks(blocks, len(q), q.shape[2])
        mask = mask.mask(q.shape[2], q.device)
    on_cpu = q.device.type == "cpu"
    few_in_step = in_step and on_cpu and q.dtype is torch.float32 and len(q) * q.shape[1] <= _FUSED_UP_TO
    if on_cpu and not few_in_step and q.shape[2] * k.shape[2] < _WRITTEN_OUT_BELOW:
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
        # beta=0 ignores the first argument; scaling takes no separate pass.
        scores = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=scale)
    else:
        # Hidden places get -inf before the softmax (Section 3.2.3), added in the same operation.
        shared = mask if isinstance(mask, SharedMask) else SharedMask(mask)
        scores = torch.baddbmm(shared.added(heads, q.dtype), q, k.transpose(1, 2), alpha=scale)
    # torch's softmax of short bf16 rows is up to four times slower than one with a float32 result.
    wide = torch.float32 if scores.dtype is torch.bfloat16 and not scores.requires_grad else None
    weights = dropout(scores.softmax(dim=-1, dtype=wide).to(v.dtype), dropout_probability)
    return torch.bmm(weights, v).view(batch, heads, tgt_len, -1)


class Projection(nn.Linear):
    """A linear layer that can compute a range of its output features alone."""

    def rows(self, x: Tensor, first: int, last: int) -> Tensor:
        """[..., in_features] -> [..., last - first]: output features first .. last - 1."""
        return functional.linear(x, self.weight[first:last], None if self.bias is None else self.bias[first:last])


class MultiHeadAttention(nn.Module):
    """Multi-head attention (paper, Section 3.2.2); d_k and d_v need not be d_model / n_heads."""

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
            memory: [batch, src_len, d_model], or packed likewise; the queries themselves for self-attention.
            mask: who may attend to whom (masks.py); for packed sequences a PackedPattern, which needs d_k = d_v.
        Returns:
            The shape of the queries.
        """
        lost = self.dropout if self.training else 0.0
        if isinstance(mask, PackedPattern):
            assert self.d_k == self.d_v, "heads are gathered as vectors of one width"
            kv = None
            if memory is queries:
                q = self.w_qkv(queries)
            else:
                q, kv = split_projection(queries, memory, self.w_qkv, self.n_heads * self.d_k)
            return self.w_o(packed_attention(q, kv, mask, self.n_heads, lost))  # type: ignore[no-any-return]
        q, k, v = (
            self.project_all(queries) if memory is queries else (self.project_q(queries), *self.project_kv(memory))
        )
        return self.combine(attend(q, k, v, mask, lost))

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
