"""A trained Transformer in CTranslate2's format.

The sub-layers correspond one to one: CTranslate2 too keeps queries, keys and values of self-attention in one matrix,
in that order, and scales embeddings by sqrt(d_model). Positions are written as a table, whatever kind they are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.embeddings import LearnedPositions, SinusoidalPositions
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer, FeedForward
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, UNK_ID
from aiayn_cli.translate.ctranslate2_engine import SINUSOIDAL_POSITIONS, check_expressible, load_package


def export(
    model: Transformer, config: ModelConfig, src_pieces: Sequence[str], tgt_pieces: Sequence[str], folder: Path,
    *, int8: bool,
) -> None:  # fmt: skip
    """Write what ctranslate2.Translator reads into a folder.

    Args:
        model: with its weights, in float32.
        src_pieces, tgt_pieces: [vocab], what each id stands for on either side.
    Raises:
        AiaynError: the model has something that the format cannot express, or ctranslate2 is not installed.
    """
    check_expressible(config)
    specs = load_package("ctranslate2.specs")
    layers = config.n_encoder_layers, config.n_decoder_layers
    spec = specs.TransformerSpec.from_config(layers, config.n_heads, pre_norm=config.norm == "pre")
    with torch.inference_mode():
        _fill(spec, model)
    rows = model.output.num_embeddings
    spec.register_source_vocabulary(_filled_up(src_pieces, rows))
    spec.register_target_vocabulary(_filled_up(tgt_pieces, rows))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (
        tgt_pieces[i] for i in (UNK_ID, BOS_ID, EOS_ID)
    )
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.decoder_start_token = tgt_pieces[BOS_ID]
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    folder.mkdir(exist_ok=True)
    spec.save(str(folder))


def _filled_up(pieces: Sequence[str], rows: int) -> list[str]:
    """A name for every row of the embedding matrix, which serves the larger one of two vocabularies."""
    return [*pieces, *(f"<unused-{i}>" for i in range(len(pieces), rows))]


def _fill(spec: Any, model: Transformer) -> None:
    sides: list[tuple[Any, nn.Embedding, SinusoidalPositions | LearnedPositions, nn.Module]] = [
        (spec.encoder, model.src_embedding, model.src_positions, model.encoder_norm),
        (spec.decoder, model.tgt_embedding, model.tgt_positions, model.decoder_norm),
    ]
    for side, embedding, positions, norm in sides:
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = _array(embedding.weight)
        side.scale_embeddings = True
        rows = len(positions.weight) if isinstance(positions, LearnedPositions) else SINUSOIDAL_POSITIONS
        side.position_encodings.encodings = _array(positions(0, rows))
        if isinstance(norm, nn.LayerNorm):
            _norm(side.layer_norm, norm)
    for target, encoder_layer in zip(spec.encoder.layer, model.encoder_layers, strict=True):
        assert isinstance(encoder_layer, EncoderLayer)
        _attention(target.self_attention, encoder_layer.attention, encoder_layer.attention_residual.norm)
        _feed_forward(target.ffn, encoder_layer.feed_forward, encoder_layer.feed_forward_residual.norm)
    for target, layer in zip(spec.decoder.layer, model.decoder_layers, strict=True):
        assert isinstance(layer, DecoderLayer)
        _attention(target.self_attention, layer.attention, layer.attention_residual.norm)
        _attention(target.attention, layer.memory_attention, layer.memory_residual.norm)
        _feed_forward(target.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    _linear(spec.decoder.projection, model.output.weight, None)


def _attention(spec: Any, attention: MultiHeadAttention, norm: nn.LayerNorm) -> None:
    """Fill two matrices, of queries, keys and values and of the output; or three, with the queries apart (memory)."""
    weight, bias = attention.w_qkv.weight, attention.w_qkv.bias
    q_width = attention.n_heads * attention.d_k
    parts = [slice(None)] if len(spec.linear) == 2 else [slice(q_width), slice(q_width, None)]
    for linear, part in zip(spec.linear[:-1], parts, strict=True):
        _linear(linear, weight[part], None if bias is None else bias[part])
    _linear(spec.linear[-1], attention.w_o.weight, attention.w_o.bias)
    _norm(spec.layer_norm, norm)


def _feed_forward(spec: Any, feed_forward: FeedForward, norm: nn.LayerNorm) -> None:
    _linear(spec.linear_0, feed_forward.w_1.weight, feed_forward.w_1.bias)
    _linear(spec.linear_1, feed_forward.w_2.weight, feed_forward.w_2.bias)
    _norm(spec.layer_norm, norm)


def _linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    spec.bias = np.zeros(len(weight), np.float32) if bias is None else _array(bias)


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> npt.NDArray[np.float32]:
    # A copy: ctranslate2 rounds to 8 bits in place, which would change the model itself.
    return np.array(tensor.detach().cpu().float().numpy(), order="C")
