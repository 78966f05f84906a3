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
from aiayn_cli.model.attention import attend, written_out_attention
from aiayn_cli.model.masks import Causal, SharedMask

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
    scores = torch.einsum("bhid,bhjd->bhij", q.double(), k.double()) / 2
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    expected = torch.einsum("bhij,bhjd->bhid", weights, v.double())
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


@pytest.mark.parametrize(
    ("path", "length"), [(written_out_attention, 6), (functional.scaled_dot_product_attention, 200)]
)
@pytest.mark.parametrize("kind", _KINDS[1:])
def test_what_a_mask_hides_is_not_read_and_gets_no_gradient_and_what_it_shows_does(
    path: Callable[..., Tensor], kind: str, length: int
) -> None:
    q, k, v = _qkv(2, 3, length, length, 4, 8)
    q *= 0.1  # so that no visible key has a weight too small to be noticed
    mask = _mask(kind, 2, length, length)
    assert mask is not None
    before = path(q, k, v, mask, 0.0)
    seen = mask.expand(2, 1, length, length)[:, 0]
    for place in (0, 1, length // 2, length - 1):
        changed = [x.clone() for x in (k, v)]
        for x in changed:
            x[:, :, place] += 3
        after = path(q, *changed, mask, 0.0)
        moved = (after != before).any(dim=3)  # [batch, heads, length]
        assert torch.equal(moved, seen[:, None, :, place].expand_as(moved))
    query = length // 2
    for x in (k, v):
        x.requires_grad_()
    path(q, k, v, mask, 0.0)[:, :, query].square().sum().backward()
    for x in (k, v):
        assert x.grad is not None
        touched = (x.grad != 0).any(dim=3)
        assert torch.equal(touched, seen[:, None, query].expand_as(touched))


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
