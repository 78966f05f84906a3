"""Loss on held-out pairs, in the terms that papers report."""

from dataclasses import dataclass

import torch

from aiayn_cli.data.batches import in_order
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.training.forward import teacher_forced
from aiayn_cli.training.loss import smoothed_cross_entropy
from aiayn_cli.training.metrics import perplexity


@dataclass(frozen=True)
class ValidationLoss:
    """Negative log-likelihood in nats per target token, end tokens included, without label smoothing."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss), infinite where that is too large for a float."""
        return perplexity(self.loss)


@torch.no_grad()
def validation_loss(
    model: TranslationModel, store: TokenStore, max_tokens: int, device: torch.device, longest: int = 1 << 30
) -> ValidationLoss:
    """Loss of a model, with dropout off, on all pairs of a store.

    Args:
        model: left in the mode it was in.
        store: the held-out pairs.
        max_tokens: padded tokens of one side in a batch.
        device: the model's.
        longest: most tokens of a side with its end token; longer pairs are left out.
    """
    was_training = model.training
    model.eval()
    total, tokens = 0.0, 0
    for pairs in in_order(store, max_tokens, longest):
        hidden, targets = teacher_forced(model, store, pairs, device)
        _, nll = smoothed_cross_entropy(hidden, model.output.weight, targets, 0.0)
        total += float(nll)
        tokens += len(targets)
    model.train(was_training)
    return ValidationLoss(total / max(tokens, 1), tokens)
