from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from aiayn_cli.config import ModelConfig, Norm
from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual

_ALMOST_ONE = 1 - 2**-16  # the highest probability that dropout can round to: what it acts on vanishes


def _layer(
    kind: type[nn.Module], norm: Norm, dropout: float, activation_dropout: float = 0, attention_dropout: float = 0
) -> nn.Module:
    config = ModelConfig(
        d_model=8, d_ff=11, n_heads=2, d_k=3, d_v=5, norm=norm, dropout=dropout,
        activation_dropout=activation_dropout, attention_dropout=attention_dropout,
    )  # fmt: skip
    layer = kind(config)
    _randomise(layer)
    return layer


_encoder_layer, _decoder_layer = partial(_layer, EncoderLayer), partial(_layer, DecoderLayer)


def _randomise(module: nn.Module) -> None:
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.4)


def _arguments(layer: nn.Module) -> list[Tensor | None]:
    x = torch.randn(3, 4, 8)
    if isinstance(layer, EncoderLayer):
        return [x, None]
    return [x, torch.ones(4, 4).bool().tril()[None, None], torch.randn(3, 6, 8), None]


def test_the_feed_forward_network_is_two_products_with_a_relu_between() -> None:
    layer = FeedForward(7, 9, activation_dropout=0)
    x = torch.randn(2, 5, 7)
    before = x.clone()
    out = layer(x)
    assert out.shape == (2, 5, 7)
    hidden = (x @ layer.w_1.weight.T + layer.w_1.bias).clamp(min=0)
    torch.testing.assert_close(out, hidden @ layer.w_2.weight.T + layer.w_2.bias)
    assert torch.equal(x, before)


@pytest.mark.parametrize("probability", [0, 0.5])
def test_the_feed_forward_networks_gradient_equals_finite_differences(probability: float) -> None:
    layer = FeedForward(4, 6, activation_dropout=probability).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)

    def seeded(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        result: Tensor = layer(x)
        return result

    assert torch.autograd.gradcheck(seeded, x)


def test_a_residual_adds_the_sublayer_to_its_input_and_norms_where_told() -> None:
    x = torch.randn(2, 5, 6)
    post, pre = Residual(6, 0, "post"), Residual(6, 0, "pre")
    for residual in (post, pre):
        _randomise(residual)
    torch.testing.assert_close(post(x, torch.sin), post.norm(x + x.sin()))
    torch.testing.assert_close(pre(x, torch.sin), x + pre.norm(x).sin())


def test_dropout_takes_the_sublayers_output_before_it_is_added_and_leaves_the_input_whole() -> None:
    x = torch.randn(2, 5, 6)
    post, pre = Residual(6, _ALMOST_ONE, "post"), Residual(6, _ALMOST_ONE, "pre")
    for residual in (post, pre):
        _randomise(residual)
    torch.testing.assert_close(post(x, torch.exp), post.norm(x))
    torch.testing.assert_close(pre(x, torch.exp), x)


@pytest.mark.parametrize("make", [_encoder_layer, _decoder_layer])
def test_every_sublayers_output_passes_through_dropout(make: Callable[..., nn.Module]) -> None:
    pre = make("pre", _ALMOST_ONE)
    x, *others = _arguments(pre)
    torch.testing.assert_close(pre(x, *others), x)  # all that is left is the residual path
    post = make("post", _ALMOST_ONE)
    expected = x
    for residual in post.children():
        if isinstance(residual, Residual):
            expected = residual.norm(expected)
    torch.testing.assert_close(post(x, *others), expected)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("make", [_encoder_layer, _decoder_layer])
def test_the_papers_dropout_acts_nowhere_inside_a_sublayer(make: Callable[..., nn.Module], norm: str) -> None:
    layer = make(norm, dropout=0.5)
    x = torch.randn(3, 4, 8)
    for part in layer.children():
        if isinstance(part, FeedForward):
            assert torch.equal(part(x), part(x))
        elif isinstance(part, MultiHeadAttention):
            assert torch.equal(part(x, x, None), part(x, x, None))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("make", [_encoder_layer, _decoder_layer])
def test_activation_dropout_acts_between_the_two_products_only(make: Callable[..., nn.Module], norm: str) -> None:
    layer = make(norm, dropout=0, activation_dropout=_ALMOST_ONE)
    arguments = _arguments(layer)
    out = layer(*arguments)
    assert isinstance(layer.feed_forward, FeedForward)
    nn.init.zeros_(layer.feed_forward.w_2.weight)
    torch.testing.assert_close(out, layer(*arguments))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("make", [_encoder_layer, _decoder_layer])
def test_attention_dropout_acts_on_attention_weights_only(make: Callable[..., nn.Module], norm: str) -> None:
    layer = make(norm, dropout=0, attention_dropout=_ALMOST_ONE)
    arguments = _arguments(layer)
    out = layer(*arguments)
    for part in layer.children():
        if isinstance(part, MultiHeadAttention):
            nn.init.zeros_(part.w_o.weight)
    torch.testing.assert_close(out, layer(*arguments))
