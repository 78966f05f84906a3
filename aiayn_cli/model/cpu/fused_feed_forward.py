"""The feed-forward network for CPUs in one operation, with its gradients written out.

oneDNN adds the first bias and applies the ReLU while it writes the product. The backward pass recognises the elements
that the ReLU or dropout set to 0 by the result, which it needs anyway.
"""

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.model.cpu.dropout import kept_mask, lose, rounded_probability, scale_of_kept


def fused_feed_forward(
    x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, dropout_probability: float
) -> Tensor:
    """Dropout(max(0, x W1 + b1)) W2 + b2, [rows, d_model] -> the same shape; w_1 is [d_ff, d_model]."""
    return _FeedForward.apply(x, w_1, b_1, w_2, b_2, dropout_probability)  # type: ignore[no-any-return,no-untyped-call]


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, probability: float
    ) -> Tensor:
        hidden = _linear(x, w_1, b_1, "relu")  # [rows, d_ff]
        ctx.scale = 1.0
        if probability:
            rounded = rounded_probability(probability)
            ctx.scale = scale_of_kept(rounded)
            hidden = lose(hidden, kept_mask(hidden.shape, rounded, hidden.dtype), ctx.scale)
        ctx.save_for_backward(x, w_1, w_2, hidden)
        return _linear(hidden, w_2, b_2, "none")

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, None]:  # type: ignore[no-untyped-def]
        x, w_1, w_2, hidden = ctx.saved_tensors
        grad_hidden = grad @ w_2
        torch.ops.aten.threshold_backward.grad_input(grad_hidden, hidden, 0, grad_input=grad_hidden)
        if ctx.scale != 1:
            grad_hidden.mul_(ctx.scale)
        return (
            grad_hidden @ w_1, grad_hidden.T @ x, _sum_of_rows(grad_hidden), grad.T @ hidden, _sum_of_rows(grad), None
        )  # fmt: skip


def _sum_of_rows(x: Tensor) -> Tensor:
    """[rows, width] -> [width]; in 32 parts if possible, since torch adds 4,000 rows at a third of the speed."""
    return x.view(32, -1, x.shape[1]).sum(1).sum(0) if len(x) % 32 == 0 else x.sum(0)


def _linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    """x W^T + b, then "relu" or "none", in one call of oneDNN if torch has it for the type."""
    if x.dtype in _ONEDNN_TYPES:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")  # type: ignore[no-any-return]
    y = functional.linear(x, weight, bias)
    return y.relu_() if activation == "relu" else y


_ONEDNN_TYPES: tuple[torch.dtype, ...] = ()
if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
    _ONEDNN_TYPES = (torch.float32,)
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        _ONEDNN_TYPES += (torch.bfloat16,)
