"""What `aiayn export` does: write a Transformer in CTranslate2's format, and prove that it translates the same there.

The sub-layers correspond one to one: CTranslate2 too keeps queries, keys and values of self-attention in one matrix,
in that order, and scales embeddings by sqrt(d_model). Positions are written as a table, whatever kind they are.
"""

import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from aiayn_cli import __version__, logs
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.device import choose_device
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.files import whole_folder
from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.embeddings import LearnedPositions, SinusoidalPositions
from aiayn_cli.model.layers import DecoderLayer, EncoderLayer, FeedForward
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.recipe_keys import ModelConfig
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS, UNK_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.lines import display_name, is_blank, open_text_bytes, read_records
from aiayn_cli.translate.ctranslate2_engine import (
    EXPORTED,
    SINUSOIDAL_POSITIONS,
    CTranslate2Engine,
    check_expressible,
    default_folder,
    exported_pieces,
    fingerprint,
    load_package,
)
from aiayn_cli.translate.forced_decoding import ForcedDecoder
from aiayn_cli.translate.line_translator import LineTranslator
from aiayn_cli.translate.load_models import load_network
from aiayn_cli.translate.search.sentence_search import SearchSetup

CHECK_SENTENCES = 100
# Bounds on the natural log p of a token: rounding alone makes it differ by 1e-5, a matrix in a wrong place by far more.
LARGEST_DIFFERENCE = 0.01  # of any token, in float32
MEAN_DIFFERENCE_INT8 = 0.1  # over all tokens, in 8 bits
LEAST_SAME = 0.95  # share of equal greedy translations, in float32


@dataclass(frozen=True)
class ExportResult:
    """What `aiayn export` prints."""

    folder: Path  # what ctranslate2.Translator reads
    int8: bool  # weights have 8 bits
    check_sentences: int  # translated with both engines, greedily
    same_translations: int
    largest_difference: float  # of the natural log p that the engines give the same tokens
    mean_difference: float

    def __str__(self) -> str:
        checked = logs.counted(self.check_sentences, "check sentence")
        return (
            f"{self.folder}: {self.same_translations} of {checked} translated alike; log p per token differs by "
            f"{self.mean_difference:.2g} on average, {self.largest_difference:.2g} at most"
        )


def run_export(
    model: Path | None = None, *, int8: bool = False, out: Path | None = None, check: str | None = None
) -> ExportResult:
    """Export a checkpoint for CTranslate2, and translate a check set with both engines.

    Args:
        model: a checkpoint or run; None = the newest run of the working folder.
        out: folder to write; None = one in the checkpoint, where `aiayn translate` looks for it.
        check: text file whose first lines are the check set; None = random sub-words.
    Raises:
        AiaynError: the model cannot be expressed, the engines disagree, or ctranslate2 is not installed.
    """
    checkpoint = load_checkpoint(find_model(model))
    folder = out or default_folder(checkpoint, int8)
    if folder.exists() and not (folder / EXPORTED).is_file():
        raise UsageError(f"{folder} exists and is not an export", "give another --out")
    codec = Codec.load(checkpoint.path, checkpoint.text, checkpoint.src_lang, checkpoint.tgt_lang)
    sources = _check_sources(check, codec)
    check_expressible(checkpoint.model)
    load_package()
    logs.notice(f"model: {checkpoint.path}, step {checkpoint.step:,}")
    network = load_network(checkpoint)
    assert isinstance(network, Transformer)
    sources = [ids[: network.max_positions - 1] for ids in sources]  # room for EOS
    try:
        with whole_folder(Path(os.path.realpath(folder))) as temporary:  # a link stays one, and "." has a name
            export(network, checkpoint.model, *exported_pieces(codec), temporary, int8=int8)
            result = _check(checkpoint, network, codec, temporary, int8, sources)
            content = {"format": 1, "aiayn": __version__, "weights_sha256": fingerprint(checkpoint), **vars(result)}
            del content["folder"]
            (temporary / EXPORTED).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise AiaynError(
            f"cannot write {folder}: {error.strerror or error}",
            "give another --out, or free some space there; an earlier export there is kept",
        ) from error
    return replace(result, folder=folder)


def _check_sources(check: str | None, codec: Codec) -> list[list[int]]:
    if check is None:
        draw = random.Random(1)
        ids = range(N_SPECIAL_TOKENS, codec.src_size)
        return [draw.choices(ids, k=draw.randint(1, 40)) for _ in range(CHECK_SENTENCES)]
    with open_text_bytes(check) as file:
        written = (line for line in read_records(file, display_name(check)) if not is_blank(line))
        lines = list(islice(written, CHECK_SENTENCES))
    if not lines:
        raise AiaynError(f"{check} has no text", "give a file of text in the source language")
    return [ids[:100] for ids in codec.encode(lines)]


def _check(
    checkpoint: Checkpoint, network: Transformer, codec: Codec, folder: Path, int8: bool, sources: list[list[int]]
) -> ExportResult:
    device = choose_device("cpu", "fp32")
    greedy = replace(checkpoint.decoding, beam_size=1)
    translator = LineTranslator([network], codec, device, greedy)
    ours = translator.search_ids(sources)
    engine = CTranslate2Engine(folder, *exported_pieces(codec), int8=int8, workers=device.threads)
    theirs = LineTranslator([network], codec, device, greedy, setup=SearchSetup(engine=engine)).search_ids(sources)
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    pairs = list(zip(sources, ours, strict=True))
    differences = [
        abs(mine - other)
        for forced, log_probs in zip(ForcedDecoder(translator).force(pairs), engine.token_log_probs(pairs), strict=True)
        for mine, other in zip(forced.token_log_probs, log_probs, strict=True)
    ]
    largest, mean = max(differences), fmean(differences)
    result = ExportResult(folder, int8, len(sources), same, largest, mean)
    agree = largest <= LARGEST_DIFFERENCE and same >= LEAST_SAME * len(sources)
    if not (mean <= MEAN_DIFFERENCE_INT8 if int8 else agree):
        raise AiaynError(
            f"CTranslate2 and torch disagree: {str(result).partition(': ')[2]}",
            f"nothing was written; translate with --engine torch{', or export without --int8' if int8 else ''}",
        )
    return result


def export(
    model: Transformer, config: ModelConfig, src_pieces: Sequence[str], tgt_pieces: Sequence[str], folder: Path,
    *, int8: bool,
) -> None:  # fmt: skip
    """Write what ctranslate2.Translator reads into a folder.

    Args:
        model: with its weights, in float32; check_expressible() allows it.
        src_pieces, tgt_pieces: [vocab], what each id stands for on either side.
    Raises:
        AiaynError: ctranslate2 is not installed.
    """
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
