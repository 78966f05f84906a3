"""Multi-head attention over packed sequences, for CPUs, with its gradients written out.

Packed sequences are concatenated without padding: [rows, ..]. Attention gathers their heads into a padded grid and
scatters the result back. The softmax runs in float32: torch's bf16 softmax of rows shorter than a vector register takes
longer than the products.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from aiayn_cli.model.cpu.dropout import kept_mask, lose, rounded_probability, scale_of_kept
from aiayn_cli.model.masks import SharedMask

# Steps of each size between a power of two and the next. Rows cost in every product, places of the grid hardly.
_ROW_STEPS, _SENTENCE_STEPS, _POSITION_STEPS = 32, 8, 4
_SHORTEST = 16  # positions; the softmax of fewer numbers than a vector register holds is slow


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the tokens of some sequences are; pack() makes it.

    The grid is [sentences, length], at least as large as the sequences need. Rows from `tokens` on belong to no token;
    there is at least one. The first place of an empty sentence of the grid counts as a token, so that no softmax is
    over nothing.
    """

    tokens: int
    rows: int
    sentences: int
    length: int
    positions: Tensor  # int64 [rows], each token's place in its sequence, from 0
    rows_of_places: Tensor  # int64 [sentences, length], the row of each place of the grid; the last row if it is empty
    places_of_rows: Tensor  # int64 [rows], the reverse: sentence * length + position
    is_token: Tensor  # bool [sentences, length]
    _indices: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def indices(self, parts: int, heads: int) -> tuple[Tensor, Tensor]:
        """Gather indices from a projection [rows, parts, heads] to the grid, and from the grid back.

        Parts are 3 for queries, keys and values, 2 for keys and values, 1 for one of them. The first is int64
        [parts * sentences * heads * length] of numbers row * parts * heads + part * heads + head, the other
        int64 [rows * parts * heads] of indices into it.
        """
        if (parts, heads) not in self._indices:
            part, head = torch.arange(parts)[:, None], torch.arange(heads)
            # To the grid: [parts, sentences, heads, length].
            there = (self.rows_of_places[:, None] * parts + part[:, :, None, None]) * heads + head[:, None]
            # Back: [rows, parts, heads].
            sentence = (self.places_of_rows // self.length)[:, None, None]
            back = ((part * self.sentences + sentence) * heads + head) * self.length + self.positions[:, None, None]
            self._indices[parts, heads] = there.flatten(), back.flatten()
        return self._indices[parts, heads]


def pack(lengths: Tensor) -> Packing:
    """Lay sequences of these lengths, int64 [sentences] on the CPU, each at least 1, one after the other."""
    tokens, count = int(lengths.sum()), len(lengths)
    rows = rounded_up(tokens + 1, _ROW_STEPS)
    sentences = rounded_up(count, _SENTENCE_STEPS)
    length = rounded_up(max(_SHORTEST, int(lengths.max())), _POSITION_STEPS)
    is_token = torch.zeros(sentences, length, dtype=torch.bool)
    is_token[:count] = torch.arange(length) < lengths[:, None]
    places_of_rows = torch.zeros(rows, dtype=torch.int64)
    places_of_rows[:tokens] = is_token.flatten().nonzero().squeeze(1)
    rows_of_places = torch.full((sentences, length), rows - 1)
    rows_of_places[is_token] = torch.arange(tokens)
    is_token[count:, 0] = True
    positions = places_of_rows % length
    return Packing(tokens, rows, sentences, length, positions, rows_of_places, places_of_rows, is_token)


def rounded_up(size: int, steps: int) -> int:
    """Round up to one of few sizes: this number of steps lead from each power of two to the next."""
    step = max(1, (1 << size.bit_length() - 1) // steps)
    return -(-size // step) * step


@dataclass(frozen=True, eq=False)
class PackedPattern:
    """Which packed tokens attend to which."""

    queries: Packing
    memory: Packing  # the same object for self-attention
    mask: SharedMask  # over the grids


def packed_attention(
    queries: Tensor, memory: Tensor | None, pattern: PackedPattern, heads: int, dropout_probability: float
) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v for all heads, [rows, heads * d_k], from projections; values are as wide as keys.

    Args:
        queries: [rows, heads * d_k]; for self-attention queries, keys and values, [rows, 3 * heads * d_k].
        memory: keys and values, [memory rows, 2 * heads * d_k]; None for self-attention.
    """
    return _PackedAttention.apply(queries, memory, pattern, heads, dropout_probability)  # type: ignore[no-any-return,no-untyped-call]


def split_projection(queries: Tensor, memory: Tensor, layer: nn.Linear, width: int) -> tuple[Tensor, Tensor]:
    """Project queries by the first `width` output features of a layer, and the memory by the others.

    [rows, d_model], [memory rows, d_model] -> [rows, width], [memory rows, out_features - width].
    """
    q, kv = _SplitProjection.apply(queries, memory, layer.weight, width)  # type: ignore[no-untyped-call]
    bias: Tensor | None = layer.bias
    return (q, kv) if bias is None else (q + bias[:width], kv + bias[width:])


class _SplitProjection(torch.autograd.Function):
    """Writes both gradients into one; autograd would make two of the whole weight's size, and add them."""

    @staticmethod
    def forward(ctx, queries: Tensor, memory: Tensor, weight: Tensor, width: int) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(queries, memory, weight)
        ctx.width = width
        return queries @ weight[:width].T, memory @ weight[width:].T

    @staticmethod
    def backward(ctx, grad_q: Tensor, grad_kv: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        queries, memory, weight = ctx.saved_tensors
        grad_weight = torch.empty_like(weight)
        torch.mm(grad_q.T, queries, out=grad_weight[: ctx.width])
        torch.mm(grad_kv.T, memory, out=grad_weight[ctx.width :])
        return grad_q @ weight[: ctx.width], grad_kv @ weight[ctx.width :], grad_weight, None


class _PackedAttention(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, queries: Tensor, memory: Tensor | None, pattern: PackedPattern, heads: int, probability: float
    ) -> Tensor:
        if memory is None:
            q, k, v = _to_grid(queries, pattern.queries, 3, heads)
        else:
            (q,) = _to_grid(queries, pattern.queries, 1, heads)
            k, v = _to_grid(memory, pattern.memory, 2, heads)
        scale = 1 / math.sqrt(q.shape[2])
        scores = torch.baddbmm(pattern.mask.added(heads, q.dtype), q, k.transpose(1, 2), alpha=scale)
        weights = torch.softmax(scores, dim=-1, dtype=_softmax_type(q)).to(q.dtype)
        kept, used = None, weights
        ctx.kept_scale = 1.0
        if probability:
            rounded = rounded_probability(probability)
            kept, ctx.kept_scale = kept_mask(weights.shape, rounded, weights.dtype), scale_of_kept(rounded)
            used = lose(weights, kept, ctx.kept_scale)
        ctx.save_for_backward(q, k, v, weights, kept)
        ctx.pattern, ctx.heads, ctx.scale, ctx.is_self = pattern, heads, scale, memory is None
        return _from_grid(torch.bmm(used, v)[None], pattern.queries, heads)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:  # type: ignore[no-untyped-def]
        q, k, v, weights, kept = ctx.saved_tensors
        pattern, heads = ctx.pattern, ctx.heads
        # Empty places read the last row, which belongs to no token: its gradient is 0.
        (grad_out,) = _to_grid(grad, pattern.queries, 1, heads)
        grads_q = q.new_empty((3 if ctx.is_self else 1, *q.shape))
        grads_kv = grads_q[1:] if ctx.is_self else k.new_empty((2, *k.shape))
        used = weights if kept is None else lose(weights, kept, ctx.kept_scale)
        torch.bmm(used.transpose(1, 2), grad_out, out=grads_kv[1])
        grad_weights = torch.bmm(grad_out, v.transpose(1, 2))
        if kept is not None:
            grad_weights = lose(grad_weights, kept, ctx.kept_scale)
        wide = _softmax_type(q)
        grad_scores = torch.ops.aten._softmax_backward_data(grad_weights.to(wide), weights.to(wide), -1, wide)
        grad_scores = grad_scores.to(q.dtype)
        # beta=0 overwrites; scaling takes no separate pass.
        grads_q[0].baddbmm_(grad_scores, k, beta=0, alpha=ctx.scale)
        grads_kv[0].baddbmm_(grad_scores.transpose(1, 2), q, beta=0, alpha=ctx.scale)
        grad_queries = _from_grid(grads_q, pattern.queries, heads)
        return grad_queries, None if ctx.is_self else _from_grid(grads_kv, pattern.memory, heads), None, None, None


def _to_grid(x: Tensor, packing: Packing, parts: int, heads: int) -> tuple[Tensor, ...]:
    """[rows, parts * heads * d_k] -> for each part [sentences * heads, length, d_k]."""
    there, _ = packing.indices(parts, heads)
    d_k = x.shape[1] // (parts * heads)
    gathered = x.reshape(-1, d_k).index_select(0, there)
    return gathered.view(parts, packing.sentences * heads, packing.length, d_k).unbind()


def _from_grid(grid: Tensor, packing: Packing, heads: int) -> Tensor:
    """[parts, sentences * heads, length, d_k] -> [rows, parts * heads * d_k], 0 in rows without a token."""
    parts, d_k = len(grid), grid.shape[3]
    _, back = packing.indices(parts, heads)
    x = grid.view(-1, d_k).index_select(0, back).view(packing.rows, parts * heads * d_k)
    x[packing.tokens :] = 0
    return x


def _softmax_type(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32
