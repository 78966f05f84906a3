"""What test_against_torch.py leaves: tied matrices, dropout in each place, bf16, seeds, no memory read unwritten."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.build import build_model
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.recipe_keys import ModelConfig, Norm

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

_VOCAB = 29
_ALMOST_ONE = 1 - 2**-16  # the highest probability that dropout can round to: what it acts on vanishes


def _config(**settings: object) -> ModelConfig:
    small: dict[str, object] = {
        "n_encoder_layers": 2, "n_decoder_layers": 3, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 5, "d_v": 7,
        "dropout": 0.0,
    }  # fmt: skip
    return ModelConfig(**(small | settings))


def _model(**settings: object) -> Transformer:
    return build_model(_config(**settings), _VOCAB)


def _batch() -> tuple[Tensor, Tensor, Tensor]:
    src_mask = torch.arange(6) < torch.tensor([[6], [3], [1], [5]])
    return torch.randint(_VOCAB, (4, 6)), src_mask, torch.randint(_VOCAB, (4, 8))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 31, 64, 511, 512, 513])
def test_a_projection_in_blocks_of_words_is_the_one_of_all_words(rows: int) -> None:
    torch.manual_seed(rows)
    model = build_model(_config(), 1_700)
    hidden = torch.randn(rows, 12)
    with torch.inference_mode():
        logits = model.project(hidden)
        torch.testing.assert_close(logits, functional.linear(hidden, model.output.weight))
        assert torch.equal(model.project(hidden.view(rows, 1, 12)), logits.view(rows, 1, -1))


def test_the_sum_of_embedding_and_position_passes_through_dropout_in_both_stacks() -> None:
    model = _model(norm="pre", dropout=_ALMOST_ONE)  # pre: the residual path alone, so that nothing else remains
    src, src_mask, tgt_in = _batch()
    entered = []
    for layer in (model.encoder_layers[0], model.decoder_layers[0]):
        layer.register_forward_pre_hook(lambda _, arguments: entered.append(arguments[0]))
    logits = model(src, src_mask, tgt_in)
    assert [x.abs().sum().item() for x in entered] == [0, 0]
    assert logits.abs().sum() == 0  # no sub-layer adds anything either


def test_evaluation_loses_nothing_and_training_repeats_with_its_seed() -> None:
    model = _model(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    src, src_mask, tgt_in = _batch()
    torch.manual_seed(8)
    first, second = model(src, src_mask, tgt_in), model(src, src_mask, tgt_in)
    torch.manual_seed(8)
    assert torch.equal(model(src, src_mask, tgt_in), first)
    assert not torch.equal(first, second)
    without = _model()
    without.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(src, src_mask, tgt_in), without(src, src_mask, tgt_in))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("way", ["weights", "autocast"])
@torch.no_grad()
def test_bf16_stays_near_fp32(norm: Norm, way: str) -> None:
    model = build_model(ModelConfig(d_model=64, d_ff=128, n_heads=4, d_k=16, d_v=16, norm=norm), 101).eval()
    src, src_mask, tgt_in = _batch()
    exact = model(src, src_mask, tgt_in)
    memory = model.encode(src, src_mask)
    cache = model.start(memory, src_mask)
    if way == "weights":
        model.bfloat16()
        cache = model.start(memory.bfloat16(), src_mask)
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        found = model(src, src_mask, tgt_in).float()
        stepped = model.step(tgt_in, cache).float()
    assert (found - exact).norm() / exact.norm() < 0.03
    assert (stepped - exact[:, -1]).norm() / exact[:, -1].norm() < 0.03
    assert (found - exact).norm() > 0


@torch.no_grad()
def test_no_memory_is_read_before_it_is_written() -> None:
    model = _model(dropout=0.2, attention_dropout=0.2)
    src, src_mask, tgt_in = _batch()
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN
    try:
        assert torch.empty(3).isnan().all()
        for mask in (src_mask, None):
            memory = model.encode(src, mask)
            assert model(src, mask, tgt_in).isfinite().all()
            cache = model.start(memory, mask)
            for start, end in ((0, 1), (1, 4), (4, 8)):
                assert model.step(tgt_in[:, start:end], cache).isfinite().all()
                cache.reorder(torch.arange(4))
    finally:
        torch.use_deterministic_algorithms(False)


_EVERY_LAYER = pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])


def _layer(kind: type[nn.Module], norm: str, **dropout: float) -> nn.Module:
    layer = kind(ModelConfig(d_model=8, d_ff=11, n_heads=2, d_k=3, d_v=5, norm=norm, **{"dropout": 0.0, **dropout}))
    for parameter in layer.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.4)
    return layer


def _arguments(layer: nn.Module) -> list[Tensor | None]:
    x = torch.randn(3, 4, 8)
    if isinstance(layer, EncoderLayer):
        return [x, None]
    return [x, torch.ones(4, 4).bool().tril()[None, None], torch.randn(3, 6, 8), None]


@_EVERY_LAYER
def test_every_sublayers_output_passes_through_dropout_and_the_input_stays_whole(kind: type[nn.Module]) -> None:
    pre, post = (_layer(kind, norm, dropout=_ALMOST_ONE) for norm in ("pre", "post"))
    x, *others = _arguments(pre)
    torch.testing.assert_close(pre(x, *others), x)  # all that is left is the residual path
    expected = x
    for residual in post.children():
        if isinstance(residual, Residual):
            expected = residual.norm(expected)
    torch.testing.assert_close(post(x, *others), expected)


@pytest.mark.parametrize("norm", ["post", "pre"])
@_EVERY_LAYER
def test_the_papers_dropout_acts_nowhere_inside_a_sublayer(kind: type[nn.Module], norm: str) -> None:
    x = torch.randn(3, 4, 8)
    for part in _layer(kind, norm, dropout=0.5).children():
        if isinstance(part, FeedForward):
            assert torch.equal(part(x), part(x))
        elif isinstance(part, MultiHeadAttention):
            assert torch.equal(part(x, x, None), part(x, x, None))


@pytest.mark.parametrize("norm", ["post", "pre"])
@_EVERY_LAYER
@pytest.mark.parametrize("name", ["activation_dropout", "attention_dropout"])
def test_the_other_kinds_act_on_hidden_units_and_on_attention_weights_only(
    name: str, kind: type[nn.Module], norm: str
) -> None:
    layer = _layer(kind, norm, **{name: _ALMOST_ONE})
    arguments = _arguments(layer)
    out = layer(*arguments)
    for part in layer.children():
        if isinstance(part, FeedForward) and name == "activation_dropout":
            nn.init.zeros_(part.w_2.weight)
        elif isinstance(part, MultiHeadAttention) and name == "attention_dropout":
            nn.init.zeros_(part.w_o.weight)
    torch.testing.assert_close(out, layer(*arguments))
