"""Embeddings of tokens and their positions (paper, Sections 3.4 and 3.5)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.errors import DataError
from aiayn_cli.model.cpu.dropout import dropout
from aiayn_cli.model.cpu.packed_attention import Packing
from aiayn_cli.model.translation_model import NO_LIMIT
from aiayn_cli.recipe_keys import ModelConfig

_LEAST_POSITIONS = 256  # in a table of sinusoids, so that it seldom grows


def sinusoids(length: int, d_model: int, device: torch.device | None = None) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle.

    Args:
        length: positions, from 0.
        d_model: an even width.
    Returns:
        float32 [length, d_model], sines and cosines interleaved.
    """
    # Angles in float64: float32 would be off by 1e-4 at position 2,000.
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device=device)
    angles = torch.arange(length, dtype=torch.float64, device=device)[:, None] / 10_000.0 ** (even / d_model)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()


class SinusoidalPositions(nn.Module):
    """The paper's fixed positions, for any length: the table grows as needed."""

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        # Not saved, since every entry follows from the formula; so on the CPU even in a model on torch's meta device.
        self.register_buffer("table", torch.empty(0, d_model, device="cpu"), persistent=False)

    def forward(self, start: int | Sequence[int], length: int) -> Tensor:
        """Positions start .. start + length - 1: [length, d_model]; [batch, length, d_model] for a sequence."""
        if (end := _end(start, length)) > len(self.table):
            longer = sinusoids(max(_LEAST_POSITIONS, 2 * end), self.table.shape[1], self.table.device)
            self.table = longer.to(self.table.dtype)
        return _rows(self.table, start, length)


class LearnedPositions(nn.Module):
    """One trained vector per position (Table 3, row E); a sequence cannot be longer than the table."""

    def __init__(self, max_positions: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int | Sequence[int], length: int) -> Tensor:
        """As of SinusoidalPositions; a DataError says that the sequence is longer than the table."""
        if (end := _end(start, length)) > len(self.weight):
            raise DataError(
                f"a sequence of {end:,} tokens is longer than the {len(self.weight):,} learned positions",
                "split it, or train with a larger model.max_positions or with positions: sinusoidal",
            )
        return _rows(self.weight, start, length)


def _end(start: int | Sequence[int], length: int) -> int:
    return (start if isinstance(start, int) else max(start)) + length


def _rows(table: Tensor, start: int | Sequence[int], length: int) -> Tensor:
    if isinstance(start, int):
        return table[start : start + length]
    first = torch.tensor(start, device=table.device)[:, None]
    return table[first + torch.arange(length, device=table.device)]


PositionTable = SinusoidalPositions | LearnedPositions


def make_embeddings(config: ModelConfig, vocab_size: int) -> tuple[nn.Embedding, nn.Embedding, nn.Embedding]:
    """Matrices [vocab, d_model] of source, target and output; those that share their weights are one module."""
    src = nn.Embedding(vocab_size, config.d_model)
    tgt = src if config.share_embeddings == "all" else nn.Embedding(vocab_size, config.d_model)
    output = nn.Embedding(vocab_size, config.d_model) if config.share_embeddings == "none" else tgt
    return src, tgt, output


def make_positions(config: ModelConfig) -> PositionTable:
    if config.positions == "learned":
        return LearnedPositions(config.max_positions, config.d_model)
    return SinusoidalPositions(config.d_model)


def embed(
    tokens: Tensor, embedding: nn.Embedding, positions: PositionTable, start: int | Sequence[int], probability: float
) -> Tensor:
    """Embed tokens, scaled by sqrt(d_model), with their positions added (Section 3.4), and apply dropout (5.4).

    int64 [batch, length] -> [batch, length, d_model]; `start` is the position of the first token, of all or of each.
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
    """The length of the longest sequence that all of these tables can encode."""
    return min((len(table.weight) for table in tables if isinstance(table, LearnedPositions)), default=NO_LIMIT)
