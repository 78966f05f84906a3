"""Cross-entropy with label smoothing (paper, Section 5.4), fused with the projection to the vocabulary.

The logits of a whole batch are the largest tensor of training, and several copies of them would be made by separate
operations. Here they are made a block of rows at a time; loss and gradients of a block are computed while it is hot.
"""

import torch
from torch import Tensor

# Size of a block. CPU: 16 MB in bf16 with a vocabulary of 8,000; in smaller blocks, summing the gradient of the matrix
# takes longer than the caches save. GPU: 256 MB in bf16, 3,600 tokens with the paper's vocabulary; smaller products
# would not fill it.
_BLOCK_ROWS, _BLOCK_ELEMENTS, _GPU_BLOCK_ELEMENTS = 1_024, 1 << 26, 1 << 27
_ROW_STEP = 64  # blocks are multiples of it, so that most have one shape, whatever the vocabulary


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Loss of predicting each target from each decoder output, summed over tokens.

    The smoothed target puts 1 - smoothing on the true class and spreads `smoothing` over all V classes, the true one
    included (torch's definition; fairseq and Tensor2Tensor leave the true one out).

    Args:
        hidden: [rows, d_model]; rows beyond the number of targets are ignored, and have no gradient.
        weight: [vocab, d_model], the pre-softmax matrix.
        targets: int64 [tokens], of the first rows.
        smoothing: in [0, 1).
    Returns:
        Two float32 scalars: the smoothed loss, which has gradients, and the plain negative log-likelihood in nats,
        which has none.
    """
    if not torch.is_grad_enabled():  # which a Function cannot see: a weight asks for gradients all the same
        hidden, weight = hidden.detach(), weight.detach()
    loss, nll = _ProjectedCrossEntropy.apply(hidden, weight, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss, nll


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, since they need the same logits.

    d loss / d logits = softmax - (1 - smoothing) * one_hot(target) - smoothing / V. The last term is the same for all
    classes, so what it adds to the gradients is a sum over rows of the weight and of the hidden states.
    """

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
        weight_sum = weight.sum(dim=0, dtype=torch.float32)  # [d_model]: h @ weight_sum is the sum of h's logits
        tokens = len(targets)
        if tokens < len(hidden):
            targets = torch.cat((targets, targets.new_zeros(len(hidden) - tokens)))
        most = _GPU_BLOCK_ELEMENTS // vocab if hidden.is_cuda else min(_BLOCK_ROWS, _BLOCK_ELEMENTS // vocab)
        rows_at_once = most - most % _ROW_STEP if most > _ROW_STEP else max(1, most)
        for at in range(0, tokens, rows_at_once):
            h, target = hidden[at : at + rows_at_once], targets[at : at + rows_at_once, None]
            used = min(len(h), tokens - at)  # rows with a target; all but in the last block
            logits = h @ weight.T  # [rows, vocab]
            target_logit = logits.gather(1, target).float()
            if grad_hidden is None or grad_weight is None:
                log_total = logits.float().logsumexp(dim=1, keepdim=True)
            else:
                probs = logits.softmax(dim=-1)
                log_total = _log_total(logits, probs, target, target_logit)
                # put_ on the flat view writes these elements alone; scatter_add_ copies all of them.
                places = torch.arange(len(h), device=h.device) * vocab + target.squeeze(1)
                minus = torch.full_like(places, smoothing - 1, dtype=probs.dtype)
                grad_logits = probs.view(-1).put_(places, minus, accumulate=True).view_as(probs)
                grad_logits[used:] = 0
                torch.mm(grad_logits, weight, out=grad_hidden[at : at + rows_at_once])
                grad_weight += grad_logits.T @ h
            nll_sum += (log_total - target_logit)[:used].sum()
            if smoothing:
                uniform_sum += log_total[:used].sum() - (h[:used].float() @ weight_sum).sum() / vocab
        if grad_hidden is not None and grad_weight is not None:
            grad_hidden[tokens:] = 0
            if smoothing:
                grad_hidden[:tokens] -= (smoothing / vocab * weight_sum).to(hidden.dtype)
                grad_weight -= smoothing / vocab * hidden[:tokens].sum(dim=0, dtype=torch.float32)
            ctx.save_for_backward(grad_hidden, grad_weight)
            ctx.weight_dtype = weight.dtype
        loss = (1 - smoothing) * nll_sum + smoothing * uniform_sum
        ctx.mark_non_differentiable(nll_sum)
        return loss, nll_sum

    @staticmethod
    def backward(  # type: ignore[no-untyped-def]
        ctx, grad_loss: Tensor, _: Tensor
    ) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden * grad_loss, (grad_weight * grad_loss).to(ctx.weight_dtype), None, None


def _log_total(logits: Tensor, probs: Tensor, target: Tensor, target_logit: Tensor) -> Tensor:
    """log sum exp of each row of logits, float32 [rows, 1], as logit - log p of the target: without a float32 copy.

    If a target's p is not a normal number, a CPU computes it in full. A GPU, whose host would have to wait, takes the
    smallest normal p, a loss of about 87 nats. Gradients do not depend on it.
    """
    p = probs.gather(1, target).float()
    if logits.device.type == "cpu" and not bool((p > 1e-30).all()):
        return logits.float().logsumexp(dim=1, keepdim=True)
    return target_logit - p.clamp(min=torch.finfo(torch.float32).tiny).log()
