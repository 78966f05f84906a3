"""Encoder and decoder against torch.nn's own, which share no code with ours, given the same weights."""

import math

import pytest
import torch
from torch import Tensor, nn

from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.build import build_model
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.recipe_keys import ModelConfig, Norm

_SRC_IS_TOKEN = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [True] * 1 + [False] * 5])
_TGT_LEN = 5
_HIDDEN_FUTURE = torch.ones(_TGT_LEN, _TGT_LEN).bool().triu(1)  # torch.nn's layers mark what is hidden
_SEEN_PAST = ~_HIDDEN_FUTURE[None, None]
_TGT_PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True] * 1])

_SHAPES = pytest.mark.parametrize(
    ("norm", "bias", "is_token"),
    [("post", False, None), ("post", True, _SRC_IS_TOKEN), ("pre", True, None), ("pre", False, _SRC_IS_TOKEN)],
    ids=["post", "post padded", "pre", "pre padded"],
)


def _randomise(module: nn.Module) -> None:
    """Give norms and biases values of their own too: with 1 and 0 two of them could change places unseen."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.4)


def _config(norm: Norm, bias: bool) -> ModelConfig:
    return ModelConfig(
        n_encoder_layers=2, n_decoder_layers=3, d_model=12, d_ff=20, n_heads=3, d_k=4, d_v=4, dropout=0, norm=norm,
        attention_bias=bias, share_embeddings="none",
    )  # fmt: skip


@torch.no_grad()
def _copy(source: nn.Linear | nn.LayerNorm, target: nn.Linear | nn.LayerNorm) -> None:
    target.weight.copy_(source.weight)
    target.bias.zero_() if source.bias is None else target.bias.copy_(source.bias)


@torch.no_grad()
def _copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(ours.w_qkv.weight)
    theirs.in_proj_bias.zero_() if ours.w_qkv.bias is None else theirs.in_proj_bias.copy_(ours.w_qkv.bias)
    _copy(ours.w_o, theirs.out_proj)


def _torch_layer(
    ours: EncoderLayer | DecoderLayer, norm: str
) -> nn.TransformerEncoderLayer | nn.TransformerDecoderLayer:
    kind = nn.TransformerEncoderLayer if isinstance(ours, EncoderLayer) else nn.TransformerDecoderLayer
    theirs = kind(12, 3, 20, 0.0, "relu", batch_first=True, norm_first=norm == "pre", dtype=torch.float64)
    _copy_attention(ours.attention, theirs.self_attn)
    _copy(ours.feed_forward.w_1, theirs.linear1)
    _copy(ours.feed_forward.w_2, theirs.linear2)
    _copy(ours.attention_residual.norm, theirs.norm1)
    if isinstance(ours, EncoderLayer):
        _copy(ours.feed_forward_residual.norm, theirs.norm2)
    else:
        _copy_attention(ours.memory_attention, theirs.multihead_attn)
        _copy(ours.memory_residual.norm, theirs.norm2)
        _copy(ours.feed_forward_residual.norm, theirs.norm3)
    return theirs


@_SHAPES
def test_an_encoder_layer_equals_torchs(norm: Norm, bias: bool, is_token: Tensor | None) -> None:
    ours = EncoderLayer(_config(norm, bias)).double()
    _randomise(ours)
    x = torch.randn(3, 6, 12, dtype=torch.float64, requires_grad=True)
    mask = None if is_token is None else is_token[:, None, None]
    out = ours(x, mask)
    expected = _torch_layer(ours, norm)(x, src_key_padding_mask=None if is_token is None else ~is_token)
    assert out.shape == (3, 6, 12)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(torch.autograd.grad(out, x, grad), torch.autograd.grad(expected, x, grad))


@_SHAPES
def test_a_decoder_layer_equals_torchs(norm: Norm, bias: bool, is_token: Tensor | None) -> None:
    ours = DecoderLayer(_config(norm, bias)).double()
    _randomise(ours)
    x = torch.randn(3, _TGT_LEN, 12, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(3, 6, 12, dtype=torch.float64, requires_grad=True)
    memory_mask = None if is_token is None else is_token[:, None, None]
    out = ours(x, _SEEN_PAST, memory, memory_mask)
    expected = _torch_layer(ours, norm)(
        x, memory, tgt_mask=_HIDDEN_FUTURE, memory_key_padding_mask=None if is_token is None else ~is_token
    )
    assert out.shape == (3, _TGT_LEN, 12)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(
        torch.autograd.grad(out, [x, memory], grad), torch.autograd.grad(expected, [x, memory], grad)
    )


def _model(norm: Norm, bias: bool) -> Transformer:
    model = build_model(_config(norm, bias), vocab_size=23).double()
    _randomise(model)
    return model


def _embedded(tokens: Tensor, weight: Tensor) -> Tensor:
    """Embedding times sqrt(d_model), plus the paper's positions, in python's own arithmetic."""
    d_model = weight.shape[1]
    rows = [
        [
            [
                weight[token, j].item() * math.sqrt(d_model)
                + (math.cos if j % 2 else math.sin)(position / 10_000 ** ((j - j % 2) / d_model))
                for j in range(d_model)
            ]
            for position, token in enumerate(sentence)
        ]
        for sentence in tokens.tolist()
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _torch_stacks(ours: Transformer, norm: Norm) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    layers = [_torch_layer(x, norm) for x in ours.encoder_layers]
    encoder = nn.TransformerEncoder(layers[0], len(layers), enable_nested_tensor=False)
    encoder.layers = nn.ModuleList(layers)
    decoder_layers = [_torch_layer(x, norm) for x in ours.decoder_layers]
    decoder = nn.TransformerDecoder(decoder_layers[0], len(decoder_layers))
    decoder.layers = nn.ModuleList(decoder_layers)
    if norm == "pre":
        encoder.norm, decoder.norm = nn.LayerNorm(12, dtype=torch.float64), nn.LayerNorm(12, dtype=torch.float64)
        _copy(ours.encoder_norm, encoder.norm)
        _copy(ours.decoder_norm, decoder.norm)
    return encoder, decoder


@_SHAPES
@torch.no_grad()
def test_the_whole_model_equals_torchs_encoder_and_decoder(norm: Norm, bias: bool, is_token: Tensor | None) -> None:
    ours = _model(norm, bias)
    src, tgt_in = torch.randint(23, (3, 6)), torch.randint(23, (3, _TGT_LEN))
    padded = is_token is not None
    hidden_src, hidden_tgt = (~_SRC_IS_TOKEN, _TGT_PADDING) if padded else (None, None)

    encoder, decoder = _torch_stacks(ours, norm)
    memory = encoder(_embedded(src, ours.src_embedding.weight), src_key_padding_mask=hidden_src)
    decoded = decoder(
        _embedded(tgt_in, ours.tgt_embedding.weight),
        memory,
        tgt_mask=_HIDDEN_FUTURE,
        tgt_key_padding_mask=hidden_tgt,
        memory_key_padding_mask=hidden_src,
    )
    logits = decoded @ ours.output.weight.T

    found = ours.encode(src, is_token)
    assert found.shape == (3, 6, 12)
    torch.testing.assert_close(found, memory, rtol=1e-5, atol=1e-5)  # our sinusoids are float32
    real = ~_TGT_PADDING if padded else torch.ones(3, _TGT_LEN).bool()
    found = ours.decode(tgt_in, memory, is_token)
    assert found.shape == (3, _TGT_LEN, 12)
    torch.testing.assert_close(found[real], decoded[real], rtol=1e-5, atol=1e-5)
    found = ours(src, is_token, tgt_in)
    assert found.shape == (3, _TGT_LEN, 23)
    torch.testing.assert_close(found[real], logits[real], rtol=1e-5, atol=1e-5)
