from collections.abc import Callable

import numpy as np
import pytest
import torch

from aiayn_cli.config import DecodingConfig
from aiayn_cli.device import Device
from aiayn_cli.model.transformer import attention_maps
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.forced_decoding import ForcedDecoder
from aiayn_cli.translate.line_translator import LineTranslator

ModelMaker = Callable[..., TranslationModel]  # seed, then fields of ModelConfig

PAIRS = [([9, 23, 40, 7], [11, 45, 6]), ([31], []), ([], [5]), ([8] * 9, [12] * 20), ([44, 5], [70, 71])]


@pytest.fixture
def decoder(vocab: Codec, cpu: Device) -> Callable[..., ForcedDecoder]:
    def make(*models: TranslationModel, batch_tokens: int = 100) -> ForcedDecoder:
        return ForcedDecoder(LineTranslator(models, vocab, cpu, DecodingConfig(batch_tokens=batch_tokens)))

    return make


def one_by_one(model: TranslationModel, src: list[int], tgt: list[int]) -> list[float]:
    with torch.inference_mode():
        logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
    return [float(row.log_softmax(-1)[token]) for row, token in zip(logits, [*tgt, EOS_ID], strict=True)]


@pytest.mark.parametrize("batch_tokens", [1, 12, 1000])
def test_token_scores_are_those_of_a_pass_alone_in_the_order_of_the_pairs(
    make_model: ModelMaker, decoder: Callable[..., ForcedDecoder], batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiayn_cli.translate.forced_decoding.MOST_LOGITS", 500)  # projected in several pieces
    model = make_model()
    found = decoder(model, batch_tokens=batch_tokens).force(PAIRS)
    assert len(found) == len(PAIRS)
    for forced, (src, tgt) in zip(found, PAIRS, strict=True):
        assert forced.token_log_probs == pytest.approx(one_by_one(model, src, tgt), abs=1e-4)
        assert forced.attention is None


def test_an_ensembles_probabilities_are_averaged(make_model: ModelMaker, decoder: Callable[..., ForcedDecoder]) -> None:
    models = [make_model(1), make_model(2)]
    [found] = decoder(*models).force(PAIRS[:1])
    alone = [np.exp(one_by_one(model, *PAIRS[0])) for model in models]
    assert np.exp(found.token_log_probs) == pytest.approx((alone[0] + alone[1]) / 2)


@pytest.mark.parametrize(("n_decoder_layers", "layer"), [(1, 0), (2, 0), (3, 1)])
def test_attention_is_that_of_the_last_layer_but_one(
    make_model: ModelMaker, decoder: Callable[..., ForcedDecoder], n_decoder_layers: int, layer: int
) -> None:
    models = [make_model(seed, n_decoder_layers=n_decoder_layers) for seed in (1, 2)]
    found = decoder(*models, batch_tokens=1000).force(PAIRS, with_attention=True)
    for forced, (src, tgt) in zip(found, PAIRS, strict=True):
        arguments = torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]])
        expected = sum(attention_maps(model, *arguments).cross[layer, 0].mean(0) for model in models) / 2
        assert forced.attention is not None
        assert forced.attention.shape == (len(tgt) + 1, len(src) + 1)
        torch.testing.assert_close(torch.tensor(forced.attention), expected, atol=1e-5, rtol=1e-4)


def test_a_model_that_is_not_a_transformer_is_scored(
    make_model: ModelMaker, decoder: Callable[..., ForcedDecoder]
) -> None:
    model = make_model(kind="recurrent")
    assert decoder(model).force([]) == []
    [found] = decoder(model).force(PAIRS[:1])
    assert found.token_log_probs == pytest.approx(one_by_one(model, *PAIRS[0]), abs=1e-4)
