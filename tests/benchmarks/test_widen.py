"""A widened network says the same as the one that it was made of, in whole and step by step."""

from dataclasses import replace

import pytest
import torch
from widen import widened

from aiayn_cli.model.build import build_model
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.recipe_keys import ModelConfig

SMALL = ModelConfig(n_encoder_layers=1, n_decoder_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=8, d_v=8)
WIDE = replace(SMALL, n_encoder_layers=3, n_decoder_layers=3, d_model=32, d_ff=48, n_heads=4)


def trained() -> Transformer:
    torch.manual_seed(3)
    model = build_model(SMALL, 40).eval()
    assert isinstance(model, Transformer)
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name:  # fresh ones are 1 and 0, which would hide a mistake
            torch.nn.init.uniform_(weight, 0.5, 1.5)
    return model


@torch.no_grad()
def test_it_gives_the_same_probabilities() -> None:
    small = trained()
    wide, shape = widened(small, SMALL, WIDE)
    assert (shape.d_model, shape.n_encoder_layers, shape.n_heads) == (32, 3, 4)
    src, tgt = torch.randint(4, 40, (3, 7)), torch.randint(4, 40, (3, 6))
    expected = small(src, None, tgt).log_softmax(-1)
    torch.testing.assert_close(wide(src, None, tgt).log_softmax(-1), expected, atol=1e-3, rtol=1e-3)
    cache = wide.start(wide.encode(src, None), None)
    for position in range(tgt.shape[1]):
        found = wide.step(tgt[:, position : position + 1], cache).log_softmax(-1)
        torch.testing.assert_close(found, expected[:, position], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    "change", [{"d_model": 40}, {"n_heads": 2}, {"n_decoder_layers": 1}, {"d_ff": 24}, {"d_k": 16, "d_v": 16}]
)
def test_shapes_that_do_not_go_together_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cannot be widened"):
        widened(trained(), SMALL, replace(WIDE, **change))  # type: ignore[arg-type]
