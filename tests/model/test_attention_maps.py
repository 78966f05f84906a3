import math

import pytest
import torch

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.build import build_model
from aiayn_cli.model.transformer import Transformer, attention_maps, attention_weights, cross_attention
from aiayn_cli.special_tokens import BOS_ID, PAD_ID

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


def test_weights_follow_the_formula_of_the_paper() -> None:
    model = make_model()
    maps = attention_maps(model, SRC[:1], None, TGT[:1])
    x = model.src_embedding(SRC[:1]) * math.sqrt(12) + model.src_positions(0, 6)
    q, k, _ = model.encoder_layers[0].attention.project_all(x)
    expected = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(5), dim=-1)
    torch.testing.assert_close(maps.encoder[0], expected)


def test_one_layer_averaged_over_its_heads() -> None:
    model = make_model()
    mask = SRC != PAD_ID
    found = cross_attention(model, 1, TGT, model.encode(SRC, mask), mask)
    torch.testing.assert_close(found, attention_maps(model, SRC, mask, TGT).cross[1].mean(1))
