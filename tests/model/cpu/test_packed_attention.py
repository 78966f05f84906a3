"""Packed attention equals the equation on each sentence by itself, in value and gradients; packing wastes little."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from aiayn_cli.model.cpu.packed_attention import PackedPattern, Packing, pack, packed_attention, split_projection
from aiayn_cli.model.masks import Causal, SharedMask, padding_mask

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

_HEADS, _D_K = 3, 5
some_lengths = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=6)


def _rows(packing: Packing, parts: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(packing.rows, parts * _HEADS * _D_K).to(dtype).requires_grad_()


def _by_sentence(queries: Tensor, keys: Tensor, values: Tensor, lengths: list[tuple[int, int]], causal: bool) -> Tensor:
    """The equation, sentence by sentence and head by head: [target tokens, heads * d_k]."""
    out, q_at, k_at = [], 0, 0
    for q_len, k_len in lengths:
        q, k, v = queries[q_at : q_at + q_len], keys[k_at : k_at + k_len], values[k_at : k_at + k_len]
        heads = []
        for part in torch.arange(_HEADS * _D_K).chunk(_HEADS):
            scores = q[:, part] @ k[:, part].T / math.sqrt(_D_K)
            if causal:
                scores = scores.masked_fill(torch.ones(q_len, k_len).triu(1).bool(), -math.inf)
            heads.append(scores.softmax(dim=1) @ v[:, part])
        out.append(torch.cat(heads, dim=1))
        q_at, k_at = q_at + q_len, k_at + k_len
    return torch.cat(out)


def _compare(mine: Tensor, expected: Tensor, inputs: list[Tensor], tokens: int) -> None:
    torch.testing.assert_close(mine[:tokens], expected)
    weights = torch.randn_like(expected)
    ours = torch.autograd.grad((mine[:tokens] * weights).sum(), inputs)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@settings(max_examples=30)
@given(lengths=some_lengths, causal=st.booleans())
def test_self_attention_equals_the_equation_on_each_sentence(lengths: list[tuple[int, int]], causal: bool) -> None:
    lengths = [(length, length) for length, _ in lengths]
    packing = pack(torch.tensor(lengths)[:, 0])
    qkv = _rows(packing, 3)
    mask = Causal().mask(packing.length) if causal else padding_mask(packing.is_token)
    mine = packed_attention(qkv, None, PackedPattern(packing, packing, SharedMask(mask)), _HEADS, 0.0)
    _compare(mine, _by_sentence(*qkv.chunk(3, dim=1), lengths, causal), [qkv], packing.tokens)


@settings(max_examples=30)
@given(lengths=some_lengths)
def test_attention_over_a_memory_equals_the_equation_on_each_sentence(lengths: list[tuple[int, int]]) -> None:
    tgt, src = (pack(torch.tensor(lengths)[:, side]) for side in (0, 1))
    q, kv = _rows(tgt, 1), _rows(src, 2)
    mine = packed_attention(q, kv, PackedPattern(tgt, src, SharedMask(padding_mask(src.is_token))), _HEADS, 0.0)
    _compare(mine, _by_sentence(q, *kv.chunk(2, dim=1), lengths, causal=False), [q, kv], tgt.tokens)


@pytest.mark.parametrize("probability", [0.0, 0.4])
def test_bf16_is_float32_with_rounding_and_the_same_dropout(probability: float) -> None:
    packing = pack(torch.tensor([9, 17, 4]))
    pattern = PackedPattern(packing, packing, SharedMask(padding_mask(packing.is_token)))
    found = {}
    qkv = _rows(packing, 3, torch.bfloat16).detach()
    for dtype in (torch.float32, torch.bfloat16):
        x = qkv.to(dtype).requires_grad_()
        torch.manual_seed(3)
        out = packed_attention(x, None, pattern, _HEADS, probability)
        (grad,) = torch.autograd.grad(out[: packing.tokens].float().square().sum(), x)
        found[dtype] = (out[: packing.tokens].float(), grad[: packing.tokens].float())
    for exact, rounded in zip(*found.values(), strict=True):
        assert (exact - rounded).abs().max() < 0.03 * exact.abs().max()


def test_dropout_loses_weights_at_its_rate_and_its_gradient_is_that_of_the_same_weights() -> None:
    packing = pack(torch.full((40,), 16))
    pattern = PackedPattern(packing, packing, SharedMask(padding_mask(packing.is_token)))
    qkv = torch.zeros(packing.rows, 3 * _HEADS * _D_K, dtype=torch.float64)  # all weights 1/16
    qkv[:, 2 * _HEADS * _D_K :] = 1
    qkv.requires_grad_()
    torch.manual_seed(1)
    out = packed_attention(qkv, None, pattern, _HEADS, 0.25)[: packing.tokens]
    kept = out[:, ::_D_K] * 16 * 0.75  # of a query's 16 weights, for each head
    torch.testing.assert_close(kept, kept.round())
    assert abs(kept.mean() - 12) < 4 * (16 * 0.25 * 0.75 / kept.numel()) ** 0.5
    # The function is linear in the values: its gradient there, times them, is the output.
    (grad,) = torch.autograd.grad(out.sum(), qkv)
    torch.testing.assert_close((grad * qkv).sum(), out.sum())


@pytest.mark.parametrize("with_bias", [False, True])
def test_projecting_apart_equals_two_projections(with_bias: bool) -> None:
    queries, memory = (torch.randn(n, 6, dtype=torch.float64, requires_grad=True) for n in (7, 4))
    layer = nn.Linear(6, 11, bias=with_bias, dtype=torch.float64)
    inputs = [queries, memory, *layer.parameters()]
    mine = split_projection(queries, memory, layer, 3)
    plain = (layer(queries)[:, :3], layer(memory)[:, 3:])
    for one, other in zip(mine, plain, strict=True):
        torch.testing.assert_close(one, other)
    ours, theirs = (torch.autograd.grad(a.square().sum() + b.sin().sum(), inputs) for a, b in (mine, plain))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@given(st.integers(30, 5_000))
def test_rows_without_a_token_are_few_and_sizes_come_from_a_short_list(tokens: int) -> None:
    packing = pack(torch.full((tokens // 10,), 10))
    assert packing.rows - packing.tokens <= 1 + packing.tokens // 32
    assert packing.sentences <= len(range(0, tokens, 10)) * 9 / 8
    assert packing.length == 16


def test_a_thousand_different_batches_have_few_shapes() -> None:
    random = torch.Generator().manual_seed(1)
    seen = set()
    for _ in range(1_000):
        longest = int(torch.randint(8, 100, (), generator=random))
        count = 4_096 // longest
        lengths = torch.randint(longest * 9 // 10, longest + 1, (count,), generator=random)
        packing = pack(lengths)
        seen.add((packing.sentences, packing.length))
    assert len(seen) < 50
