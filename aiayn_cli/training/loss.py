"""Cross-entropy with label smoothing (paper, Section 5.4), fused with the projection to the vocabulary.

The logits of a whole batch are the largest tensor of training, and several copies of them would be made by separate
operations. Here they are made a block of rows at a time; loss and gradients of a block are computed while it is hot.
"""

import torch
from torch import Tensor

_BLOCK_ELEMENTS = 1 << 22  # logits held at once: 16 MB in float32


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Loss of predicting each target from each decoder output, summed over tokens.

    The smoothed target puts 1 - smoothing on the true class and spreads `smoothing` over all V classes, the true one
    included (torch's definition; fairseq and Tensor2Tensor leave the true one out).

    Args:
        hidden: [tokens, d_model], without padding.
        weight: [vocab, d_model], the pre-softmax matrix.
        targets: int64 [tokens].
        smoothing: mass taken from the true class, in [0, 1).
    Returns:
        Two float32 scalars: the smoothed loss, which has gradients, and the plain negative log-likelihood in nats,
        which has none.
    """
    loss, nll = _ProjectedCrossEntropy.apply(hidden, weight, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss, nll


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, since they need the same logits."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx, hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        vocab = len(weight)
        with_grad = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        grad_hidden = torch.empty_like(hidden) if with_grad else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if with_grad else None
        nll_sum = torch.zeros((), device=hidden.device)
        uniform_sum = torch.zeros((), device=hidden.device)
        rows_at_once = max(1, _BLOCK_ELEMENTS // vocab)
        for h, target, at in _blocks(hidden, targets, rows_at_once):
            log_probs = torch.log_softmax(h @ weight.T, dim=-1, dtype=torch.float32)  # [rows, vocab]
            nll_sum -= log_probs.gather(1, target[:, None]).sum()
            if smoothing:
                uniform_sum -= log_probs.sum() / vocab
            if grad_hidden is None or grad_weight is None:
                continue
            # d loss / d logits = softmax - smoothed target
            grad = log_probs.exp_()
            if smoothing:
                grad -= smoothing / vocab
            grad.scatter_add_(1, target[:, None], grad.new_full((len(target), 1), smoothing - 1))
            grad = grad.to(h.dtype)
            torch.mm(grad, weight, out=grad_hidden[at : at + len(h)])
            grad_weight += grad.T @ h
        loss = (1 - smoothing) * nll_sum + smoothing * uniform_sum
        if with_grad:
            ctx.save_for_backward(grad_hidden, grad_weight)
            ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(nll_sum)
        return loss, nll_sum

    @staticmethod
    def backward(  # type: ignore[no-untyped-def]
        ctx, grad_loss: Tensor, _: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad_loss, (grad_weight * grad_loss).to(ctx.weight_dtype), None, None


def _blocks(hidden: Tensor, targets: Tensor, rows: int) -> list[tuple[Tensor, Tensor, int]]:
    starts = range(0, len(hidden), rows)
    return [(hidden[at : at + rows], targets[at : at + rows], at) for at in starts]
