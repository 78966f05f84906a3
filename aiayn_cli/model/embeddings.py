"""Embeddings of tokens and their positions (paper, Sections 3.4 and 3.5)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.cpu.packing import Packing
from aiayn_cli.model.positions import LearnedPositions, SinusoidalPositions
from aiayn_cli.model.translation_model import NO_LIMIT

PositionTable = SinusoidalPositions | LearnedPositions


@dataclass(frozen=True)
class Embeddings:
    """The three matrices [vocab, d_model]; those that share their weights are one module."""

    src: nn.Embedding
    tgt: nn.Embedding
    output: nn.Embedding


def make_embeddings(config: ModelConfig, vocab_size: int) -> Embeddings:
    """Make the matrices, shared as `config.share_embeddings` says; vocab_size includes special tokens."""
    src = nn.Embedding(vocab_size, config.d_model)
    tgt = src if config.share_embeddings == "all" else nn.Embedding(vocab_size, config.d_model)
    output = nn.Embedding(vocab_size, config.d_model) if config.share_embeddings == "none" else tgt
    return Embeddings(src, tgt, output)


def make_positions(config: ModelConfig) -> PositionTable:
    """Make a table of positions of the kind that `config.positions` names."""
    if config.positions == "learned":
        return LearnedPositions(config.max_positions, config.d_model)
    return SinusoidalPositions(config.d_model)


def embed(
    tokens: Tensor,
    embedding: nn.Embedding,
    positions: PositionTable,
    start: int | Sequence[int],
    probability: float,
) -> Tensor:
    """Embed tokens, scaled by sqrt(d_model), with their positions added (Section 3.4).

    Args:
        tokens: int64 [batch, length].
        embedding, positions: of the language.
        start: position of the first token, one for all or one for each sequence.
        probability: of dropout on the sum (Section 5.4); 0 for none.
    Returns:
        [batch, length, d_model].
    """
    x = embedding(tokens) * math.sqrt(embedding.embedding_dim) + positions(start, tokens.shape[1])
    return dropout(x, probability)


def embed_packed(
    tokens: Tensor, packing: Packing, embedding: nn.Embedding, positions: PositionTable, probability: float
) -> Tensor:
    """embed() for packed sequences: int64 [packing.rows] -> [packing.rows, d_model]."""
    table = positions(0, int(packing.positions.max()) + 1)
    places = functional.embedding(packing.positions, table)
    x = torch.add(places, embedding(tokens), alpha=math.sqrt(embedding.embedding_dim))
    return dropout(x, probability)


def longest_sequence(*tables: PositionTable) -> int:
    """The positions that all of these tables have."""
    return min((len(table.weight) for table in tables if isinstance(table, LearnedPositions)), default=NO_LIMIT)
