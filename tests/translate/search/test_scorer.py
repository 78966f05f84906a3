from collections.abc import Callable

import torch

from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.translate.search.scorer import ModelScorer

ModelMaker = Callable[..., TranslationModel]  # seed, then fields of ModelConfig

SRC = torch.tensor([[9, 23, 40, 7, EOS_ID], [31, 12, EOS_ID, PAD_ID, PAD_ID], [8, 8, 50, EOS_ID, PAD_ID]])


def test_log_probs_are_those_of_the_full_pass(make_model: ModelMaker) -> None:
    model = make_model()
    mask = SRC != PAD_ID
    tgt = torch.tensor([[BOS_ID, 11, 45, 6], [BOS_ID, 77, 5, 5], [BOS_ID, 30, 9, 81]])
    expected = model(SRC, mask, tgt).log_softmax(-1)
    scorer = ModelScorer([model], SRC, mask)
    for position in range(4):
        torch.testing.assert_close(scorer.step(tgt[:, position]), expected[:, position])


def test_rows_follow_their_own_prefix_after_reorder_and_keep(make_model: ModelMaker) -> None:
    model = make_model()
    mask = SRC != PAD_ID
    scorer = ModelScorer([model], SRC, mask)
    scorer.step(torch.full((3,), BOS_ID))
    scorer.reorder(torch.tensor([0, 0, 1, 1, 2, 2]))  # two beams for each sentence
    scorer.step(torch.tensor([11, 12, 21, 22, 31, 32]))
    scorer.keep(torch.tensor([0, 2]), torch.tensor([1, 1, 5, 4]))
    found = scorer.step(torch.tensor([61, 62, 63, 64]))
    prefixes = torch.tensor([[BOS_ID, 12, 61], [BOS_ID, 12, 62], [BOS_ID, 32, 63], [BOS_ID, 31, 64]])
    kept = torch.tensor([0, 0, 2, 2])
    torch.testing.assert_close(found, model(SRC[kept], mask[kept], prefixes)[:, -1].log_softmax(-1))


def test_an_ensemble_averages_probabilities(make_model: ModelMaker) -> None:
    models = [make_model(1), make_model(2, d_model=16, n_heads=2), make_model(3)]
    start = torch.full((3,), BOS_ID)
    together = ModelScorer(models, SRC, SRC != PAD_ID).step(start)
    alone = [ModelScorer([model], SRC, SRC != PAD_ID).step(start).exp() for model in models]
    torch.testing.assert_close(together.exp(), sum(alone) / 3)
    assert not torch.allclose(together.exp(), alone[0])


def test_log_probs_of_a_bf16_model_are_float32(make_model: ModelMaker) -> None:
    scorer = ModelScorer([make_model().bfloat16()], SRC, SRC != PAD_ID)
    log_probs = scorer.step(torch.full((3,), BOS_ID))
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3))
