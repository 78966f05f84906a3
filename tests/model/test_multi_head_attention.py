import math

import pytest
import torch
from torch import Tensor

from aiayn_cli.model.attention import MultiHeadAttention

# Bool, True = may attend; for sentences of 5 and 3 tokens.
_PADDING = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None, None, :]
_CAUSAL = torch.ones(5, 5).bool().tril()[None, None]
_MASKS = {"none": None, "padding": _PADDING, "causal": _CAUSAL, "both": _PADDING & _CAUSAL}


def _by_the_equation(layer: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), in float64, head by head."""
    n, d_k, d_v = layer.n_heads, layer.d_k, layer.d_v
    w, w_o = layer.w_qkv.weight.double(), layer.w_o.weight.double()
    b = torch.zeros(len(w), dtype=torch.float64) if layer.w_qkv.bias is None else layer.w_qkv.bias.double()
    b_o = 0 if layer.w_o.bias is None else layer.w_o.bias.double()
    x, memory = x.double(), memory.double()
    heads = []
    for i in range(n):
        q_rows = slice(i * d_k, (i + 1) * d_k)
        k_rows = slice(n * d_k + i * d_k, n * d_k + (i + 1) * d_k)
        v_rows = slice(2 * n * d_k + i * d_v, 2 * n * d_k + (i + 1) * d_v)
        q, k, v = x @ w[q_rows].T + b[q_rows], memory @ w[k_rows].T + b[k_rows], memory @ w[v_rows].T + b[v_rows]
        scores = q @ k.transpose(1, 2) / math.sqrt(d_k)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, 0], -math.inf)
        weights = scores.exp() / scores.exp().sum(dim=2, keepdim=True)
        heads.append(weights @ v)
    return torch.cat(heads, dim=-1) @ w_o.T + b_o


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", _MASKS)
def test_a_layer_with_free_widths_equals_the_equation(kind: str, bias: bool) -> None:
    layer = MultiHeadAttention(d_model=10, n_heads=3, d_k=6, d_v=7, bias=bias)
    x = torch.randn(2, 5, 10)
    out = layer(x, x, _MASKS[kind])
    assert out.shape == (2, 5, 10)
    expected = _by_the_equation(layer, x, x, _MASKS[kind])
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_layer_over_another_memory_equals_the_equation() -> None:
    layer = MultiHeadAttention(d_model=10, n_heads=3, d_k=6, d_v=7, bias=True)
    x, memory = torch.randn(2, 4, 10), torch.randn(2, 5, 10)
    out = layer(x, memory, _PADDING)
    assert out.shape == (2, 4, 10)
    expected = _by_the_equation(layer, x, memory, _PADDING)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_attention_dropout_acts_in_training_only() -> None:
    layer = MultiHeadAttention(d_model=10, n_heads=3, d_k=6, d_v=7, dropout=0.5)
    x = torch.randn(2, 5, 10)
    assert not torch.equal(layer(x, x, None), layer(x, x, None))
    layer.eval()
    torch.testing.assert_close(layer(x, x, None).double(), _by_the_equation(layer, x, x, None), rtol=1e-5, atol=1e-5)
