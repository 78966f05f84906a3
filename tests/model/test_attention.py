"""Attention equals the paper's equation on every path: the function, the layer of many heads, and the maps shown."""

import math
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from aiayn_cli.model import attention as attention_module
from aiayn_cli.model.attention import MultiHeadAttention, attend, written_out_attention
from aiayn_cli.model.build import build_model
from aiayn_cli.model.masks import Causal, SharedMask
from aiayn_cli.model.transformer import Transformer, attention_maps, attention_weights, cross_attention
from aiayn_cli.recipe_keys import ModelConfig
from aiayn_cli.special_tokens import BOS_ID, PAD_ID

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

_KINDS = ["none", "padding", "causal", "window", "causal window", "padding and window"]


def _mask(kind: str, batch: int, tgt_len: int, src_len: int) -> Tensor | None:
    """A mask of each kind that the model uses; every row shows something."""
    if kind == "none":
        return None
    distance = torch.arange(tgt_len)[:, None] - torch.arange(src_len)
    real = torch.arange(src_len) < src_len - torch.arange(batch)[:, None] * src_len // 4  # all, three quarters, ...
    causal, window = (distance >= 0)[None, None], (distance.abs() <= 2)[None, None]
    return {
        "padding": real[:, None, None, :],
        "causal": causal,
        "window": window | (distance >= src_len)[None, None],
        "causal window": causal & window,
        "padding and window": (real[:, None, None, :] & window) | (distance == 0),
    }[kind]


def _by_the_equation(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v over the visible keys only, in float64, one query at a time."""
    batch, heads, tgt_len, d_k = q.shape
    seen = torch.ones(()).bool() if mask is None else mask
    seen = seen.expand(batch, heads, tgt_len, k.shape[2])
    out = torch.zeros(batch, heads, tgt_len, v.shape[3], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(tgt_len):
                places = [j for j in range(k.shape[2]) if seen[b, h, i, j]]
                scores = [torch.dot(q[b, h, i].double(), k[b, h, j].double()).item() / d_k**0.5 for j in places]
                exponentials = [math.exp(score - max(scores)) for score in scores]
                for j, e in zip(places, exponentials, strict=True):
                    out[b, h, i] += v[b, h, j].double() * (e / sum(exponentials))
    return out


def _qkv(batch: int, heads: int, tgt_len: int, src_len: int, d_k: int, d_v: int) -> list[Tensor]:
    widths = [(tgt_len, d_k), (src_len, d_k), (src_len, d_v)]
    return [torch.randn(batch, heads, *width) * 2 for width in widths]


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("path", [written_out_attention, functional.scaled_dot_product_attention, attend])
def test_every_path_equals_the_written_out_equation(path: Callable[..., Tensor], kind: str) -> None:
    q, k, v = _qkv(3, 2, 6, 6, 5, 7)
    mask = _mask(kind, 3, 6, 6)
    out = path(q, k, v, mask, 0.0)
    assert out.shape == (3, 2, 6, 7)
    torch.testing.assert_close(out.double(), _by_the_equation(q, k, v, mask), rtol=1e-5, atol=1e-5)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    kind=st.sampled_from(_KINDS),
    seed=st.integers(0, 1000),
)
def test_both_paths_are_equal_in_output_and_gradient(sizes: tuple[int, ...], kind: str, seed: int) -> None:
    batch, heads, length, d_k, d_v = sizes
    torch.manual_seed(seed)
    inputs = [x.requires_grad_() for x in _qkv(batch, heads, length, length, d_k, d_v)]
    mask = _mask(kind, batch, length, length)
    grad = torch.randn(batch, heads, length, d_v)
    ours = written_out_attention(*inputs, mask, 0.0)
    fused = functional.scaled_dot_product_attention(*inputs, attn_mask=mask)
    torch.testing.assert_close(ours, fused, rtol=1e-4, atol=1e-5)
    for x, y in zip(torch.autograd.grad(ours, inputs, grad), torch.autograd.grad(fused, inputs, grad), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", _KINDS)
def test_both_paths_are_as_exact_as_bf16_allows(kind: str) -> None:
    mask = _mask(kind, 3, 33, 33)
    inputs = [x.bfloat16().requires_grad_() for x in _qkv(3, 4, 33, 33, 16, 16)]
    grad = torch.randn(3, 4, 33, 16).bfloat16()
    exact_inputs = [x.detach().double().requires_grad_() for x in inputs]
    exact = functional.scaled_dot_product_attention(*exact_inputs, attn_mask=mask)
    exact_grads = torch.autograd.grad(exact, exact_inputs, grad.double())
    for path in (written_out_attention, functional.scaled_dot_product_attention):
        out = path(*inputs, mask, 0.0)
        assert out.dtype == torch.bfloat16
        for found, wanted in zip((out, *torch.autograd.grad(out, inputs, grad)), (exact, *exact_grads), strict=True):
            error = (found.double() - wanted).norm() / wanted.norm()
            assert error < 4 * 2**-8  # bf16 keeps 8 bits; the weights and the products are each rounded


@pytest.mark.parametrize("length", [3, 90, 1100])
@pytest.mark.parametrize("kind", ["none", "padding", "causal window"])
def test_the_result_does_not_depend_on_the_length_at_which_the_path_changes(length: int, kind: str) -> None:
    q, k, v = _qkv(2, 1, length, length, 4, 8)
    mask = _mask(kind, 2, length, length)
    expected = functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)
    torch.testing.assert_close(attend(q, k, v, mask).double(), expected, rtol=1e-5, atol=1e-5)


def test_short_sequences_are_written_out_on_a_cpu_and_long_ones_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Mock(wraps=written_out_attention)
    monkeypatch.setattr(attention_module, "written_out_attention", spy)
    for batch in (1, 40):  # whatever their number, or a score would depend on a pair's company
        attend(*_qkv(batch, 2, 16, 16, 4, 4), None)
    assert spy.call_count == 2
    attend(*_qkv(1, 1, 4096, 4096, 4, 4), None)
    assert spy.call_count == 2


def test_in_a_step_few_sentences_are_fused_and_read_like_many(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = _qkv(40, 2, 5, 9, 4, 8)
    mask = torch.rand(40, 1, 5, 9) < 0.7
    mask[..., 0] = True
    expected = attend(q, k, v, mask)
    spy = Mock(wraps=written_out_attention)
    monkeypatch.setattr(attention_module, "written_out_attention", spy)
    torch.testing.assert_close(attend(q, k, v, SharedMask(mask), in_step=True), expected)
    assert spy.call_count == 1
    one_by_one = [attend(*(x[i : i + 1] for x in (q, k, v)), mask[i : i + 1], in_step=True) for i in range(40)]
    torch.testing.assert_close(torch.cat(one_by_one), expected)
    assert spy.call_count == 1
    attend(*(x[:1].bfloat16() for x in (q, k, v)), None, in_step=True)
    assert spy.call_count == 2


def test_attention_weights_are_lost_with_the_given_probability_and_the_others_scaled() -> None:
    q, k = torch.zeros(5, 4, 60, 3), torch.zeros(5, 4, 70, 3)  # all weights are 1 / 70
    v = torch.eye(70).expand(5, 4, 70, 70)  # so that the output is the weights themselves
    weights = attend(q, k, v, None, 0.25)
    lost = weights == 0
    deviation = (0.25 * 0.75 / weights.numel()) ** 0.5
    assert abs(lost.double().mean().item() - 0.25) < 4 * deviation
    torch.testing.assert_close(weights[~lost], torch.full_like(weights[~lost], 1 / 70 / 0.75), rtol=1e-4, atol=0)


@pytest.mark.parametrize("written_out_below", [0, 1_000])
def test_causal_is_the_causal_mask_in_output_and_gradient(
    written_out_below: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_module, "_WRITTEN_OUT_BELOW", written_out_below)
    found = []
    for mask in (Causal(), Causal().mask(9)):
        torch.manual_seed(3)
        inputs = [x.requires_grad_() for x in _qkv(2, 3, 9, 9, 5, 7)]
        out = attend(*inputs, mask)
        (out * torch.arange(7)).sum().backward()
        found.append([out, *(x.grad for x in inputs)])
    torch.testing.assert_close(found[0], found[1])


def test_where_torch_chooses_the_kernel_causal_needs_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    sdpa = Mock(wraps=functional.scaled_dot_product_attention)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", sdpa)
    attend(*(x.to("meta") for x in _qkv(2, 3, 9, 9, 5, 5)), Causal(), 0.1)
    assert sdpa.call_args.kwargs.get("attn_mask") is None
    assert len(sdpa.call_args.args) == 3
    assert sdpa.call_args.kwargs["is_causal"] is True
    assert sdpa.call_args.kwargs["dropout_p"] == 0.1


# ---- many heads, and the weights shown


def _layer_by_the_equation(layer: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), in float64."""
    n, d_k, d_v = layer.n_heads, layer.d_k, layer.d_v
    w, w_o = layer.w_qkv.weight.double(), layer.w_o.weight.double()
    b = torch.zeros(len(w), dtype=torch.float64) if layer.w_qkv.bias is None else layer.w_qkv.bias.double()
    b_o = 0 if layer.w_o.bias is None else layer.w_o.bias.double()
    rows = [n * d_k, n * d_k, n * d_v]
    projections = zip((x, memory, memory), w.split(rows), b.split(rows), strict=True)
    q, k, v = ((y.double() @ weight.T + bias).unflatten(2, (n, -1)).transpose(1, 2) for y, weight, bias in projections)
    return _by_the_equation(q, k, v, mask).transpose(1, 2).flatten(2) @ w_o.T + b_o


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kind", "tgt_len"), [*((kind, 5) for kind in _KINDS), ("padding", 4)])
def test_a_layer_with_free_widths_equals_the_equation(kind: str, tgt_len: int, bias: bool) -> None:
    layer = MultiHeadAttention(d_model=10, n_heads=3, d_k=6, d_v=7, bias=bias)
    memory = torch.randn(2, 5, 10)
    x = memory if tgt_len == 5 else torch.randn(2, tgt_len, 10)
    mask = _mask(kind, 2, tgt_len, 5)
    out = layer(x, memory, mask)
    assert out.shape == (2, tgt_len, 10)
    torch.testing.assert_close(out.double(), _layer_by_the_equation(layer, x, memory, mask), rtol=1e-5, atol=1e-5)


def test_attention_dropout_acts_in_training_only() -> None:
    layer = MultiHeadAttention(d_model=10, n_heads=3, d_k=6, d_v=7, dropout=0.5)
    x = torch.randn(2, 5, 10)
    assert not torch.equal(layer(x, x, None), layer(x, x, None))
    expected = _layer_by_the_equation(layer, x, x, None)
    torch.testing.assert_close(layer.eval()(x, x, None).double(), expected, rtol=1e-5, atol=1e-5)


SRC = torch.tensor([[9, 8, 7, 3, 5, 3], [6, 5, 3, PAD_ID, PAD_ID, PAD_ID]])
TGT = torch.tensor([[BOS_ID, 5, 6, 7], [BOS_ID, 9, 9, PAD_ID]])


def make_model(**settings: object) -> Transformer:
    torch.manual_seed(3)
    shape = {"n_encoder_layers": 3, "n_decoder_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 4, "d_k": 5, "d_v": 3}
    return build_model(ModelConfig(**{**shape, **settings}), 11).eval()  # type: ignore[arg-type]


def test_weights_are_those_that_the_attention_itself_uses() -> None:
    torch.manual_seed(1)
    attention = MultiHeadAttention(d_model=12, n_heads=4, d_k=5, d_v=3)
    queries, memory = torch.randn(2, 4, 12), torch.randn(2, 6, 12)
    mask = torch.rand(2, 1, 4, 6) > 0.3
    mask[..., 0] = True
    weights = attention_weights(attention, queries, memory, mask)
    assert weights.shape == (2, 4, 4, 6)
    _, values = attention.project_kv(memory)
    torch.testing.assert_close(attention.combine(weights @ values), attention(queries, memory, mask))


@pytest.mark.parametrize("settings", [{}, {"norm": "pre"}, {"attention_window": 1}])
def test_each_attention_is_shown_and_the_model_runs_as_before(settings: dict[str, object]) -> None:
    model = make_model(**settings)
    mask = SRC != PAD_ID
    before = model(SRC, mask, TGT)
    maps = attention_maps(model, SRC, mask, TGT)
    assert maps.encoder.shape == (3, 2, 4, 6, 6)
    assert maps.decoder.shape == (2, 2, 4, 4, 4)
    assert maps.cross.shape == (2, 2, 4, 4, 6)
    for weights in (maps.encoder[:, :1], maps.decoder, maps.cross):
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert maps.cross[:, 1, :, :, 3:].eq(0).all(), "padding is looked at"
    assert maps.decoder.triu(1).eq(0).all(), "the future is looked at"
    assert len({tuple(row.flatten().tolist()) for row in maps.cross[:, 0].flatten(0, 1)}) == 8, "each head differs"
    torch.testing.assert_close(model(SRC, mask, TGT), before, rtol=0, atol=0)
    assert not any(module._forward_pre_hooks for module in model.modules())
    averaged = cross_attention(model, 1, TGT, model.encode(SRC, mask), mask)
    torch.testing.assert_close(averaged, maps.cross[1].mean(1))


def test_weights_follow_the_formula_of_the_paper() -> None:
    model = make_model()
    maps = attention_maps(model, SRC[:1], None, TGT[:1])
    x = model.src_embedding(SRC[:1]) * math.sqrt(12) + model.src_positions(0, 6)
    q, k, _ = model.encoder_layers[0].attention.project_all(x)
    expected = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(5), dim=-1)
    torch.testing.assert_close(maps.encoder[0], expected)
