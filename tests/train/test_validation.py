"""The validation loss is the mean negative log-likelihood of each target token, and disturbs nothing."""

from collections.abc import Callable

import pytest
import torch
from made_pairs import read_pair
from torch.nn import functional

from aiayn_cli.checkpoint.metrics_log import perplexity
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.validation import validation_loss


def one_by_one(model: TranslationModel, store: TokenStore) -> tuple[float, int]:
    """Sum of -log p over all target tokens, a sentence at a time without padding; number of tokens."""
    total, tokens = 0.0, 0
    with torch.no_grad():
        for number in range(len(store)):
            src, tgt = (ids.tolist() for ids in read_pair(store, number))
            logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
            total += float(functional.cross_entropy(logits, torch.tensor([*tgt, EOS_ID]), reduction="sum"))
            tokens += len(tgt) + 1
    return total, tokens


@pytest.mark.parametrize("max_tokens", [1, 30, 10_000])
def test_loss_is_that_of_each_sentence_by_itself(
    max_tokens: int, model_of: Callable[..., TranslationModel], store_of: Callable[..., TokenStore]
) -> None:
    model, store = model_of(dropout=0.5), store_of(23)
    loss = validation_loss(model, store, max_tokens, Worker())
    total, tokens = one_by_one(model.eval(), store)
    assert loss == pytest.approx(total / tokens, rel=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(
    training: bool, model_of: Callable[..., TranslationModel], store_of: Callable[..., TokenStore]
) -> None:
    model = model_of(dropout=0.5).train(training)
    before = torch.get_rng_state()
    results = {validation_loss(model, store_of(5), 100, Worker()) for _ in range(2)}
    assert len(results) == 1  # dropout was off
    assert model.training is training
    assert all(layer.training is training for layer in model.modules())
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_uniform_model_is_as_perplexed_as_its_vocabulary_is_large(
    model_of: Callable[..., TranslationModel], store_of: Callable[..., TokenStore]
) -> None:
    model = model_of()
    with torch.no_grad():
        model.output.weight.zero_()
    assert perplexity(validation_loss(model, store_of(4), 50, Worker())) == pytest.approx(31, rel=1e-5)
