"""What training and search need of a translation model."""

from abc import ABC, abstractmethod
from typing import Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.cpu.packed_attention import Packing

NO_LIMIT = 1 << 30  # positions of a model that reads sequences of any length
# A CPU rearranges a weight matrix before multiplying it. Blocks of a vocabulary's matrix stay in the cache in between,
# which saves 10 to 40 % of the time; not for a row or two, which need none, nor for thousands, where it matters little.
_WORDS_AT_ONCE, _FEWEST_ROWS, _MOST_ROWS = 512, 4, 512


class DecodingCache(Protocol):
    """The state of a batch of hypotheses between two steps; its methods are for after the first.

    Row r of the hypotheses belongs to sentence r // (rows / sentences). All hypotheses of a sentence have read the same
    number of tokens.
    """

    def reorder(self, rows: Tensor) -> None:
        """Replace the hypotheses by copies of these rows, int64 [new_rows], each from the same sentence."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only these sentences, int64 [new_sentences], and these rows, int64 [new_rows]."""

    def take(self, places: Tensor, other: Self, chosen: slice) -> None:
        """Replace the sentences at these places, int64 [taken], by the chosen ones of another cache of the same model.

        Both caches have the same number of hypotheses per sentence.
        """


class TranslationModel(nn.Module, ABC):
    """Encoder and decoder with their embeddings; build_model() makes one from a ModelConfig.

    Shapes, for all methods:
        src: int64 [batch, src_len], ending with EOS_ID, then PAD_ID.
        src_mask: bool [batch, src_len], True = a real token; None = no padding.
        tgt_in: int64 [batch, tgt_len], the target shifted right: BOS_ID first.
        memory: [batch, src_len, width], the encoder's output.
    """

    encoder_layers: nn.ModuleList
    decoder_layers: nn.ModuleList
    output: nn.Embedding  # its weight [vocab, d_model] projects the decoder's output to logits

    def __init__(self) -> None:
        super().__init__()
        self.is_compiled = self.replays_graphs = False  # by torch.compile, as CUDA graphs: train/compilation.py
        # Replaces `output`, if use_int8() sets it. (As a class attribute it would hide the module that is set later.)
        self.vocab_projection: nn.Module | None = None

    @property
    def max_positions(self) -> int:
        """The longest sequence that the model can read or write, in tokens."""
        return NO_LIMIT

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Logits of every next target token given the ones before (teacher forcing), [batch, tgt_len, vocab]."""
        return self.project(self.decode(tgt_in, self.encode(src, src_mask), src_mask))

    @abstractmethod
    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """Return the memory."""

    @abstractmethod
    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        """The decoder's output for whole target sequences, before the projection: [batch, tgt_len, d_model]."""

    def project(self, hidden: Tensor) -> Tensor:
        """[..., d_model] -> logits [..., vocab], by the (shared) embedding matrix (Section 3.4)."""
        if self.vocab_projection is not None:
            return self.vocab_projection(hidden)  # type: ignore[no-any-return]
        weight = self.output.weight
        rows = hidden.reshape(-1, hidden.shape[-1])
        if torch.is_grad_enabled() or not _pays_in_blocks(rows):
            return functional.linear(hidden, weight)
        logits = rows.new_empty(len(rows), len(weight))
        for first in range(0, len(weight), _WORDS_AT_ONCE):
            words = slice(first, first + _WORDS_AT_ONCE)
            torch.mm(rows, weight[words].t(), out=logits[:, words])
        return logits.view(*hidden.shape[:-1], -1)

    @property
    def reads_packed(self) -> bool:
        """Whether decode_packed() can be used."""
        return False

    def decode_packed(self, src: Tensor, src_packing: Packing, tgt_in: Tensor, tgt_packing: Packing) -> Tensor:
        """encode() and decode() over sequences without padding (cpu/packed_attention.py).

        Args:
            src, tgt_in: int64 [rows of the packing].
            src_packing, tgt_packing: of the same sentences.
        Returns:
            [tgt_packing.rows, d_model]; rows that belong to no token are arbitrary.
        """
        raise NotImplementedError

    @abstractmethod
    def start(self, memory: Tensor, src_mask: Tensor | None) -> DecodingCache:
        """Begin incremental decoding: what depends on the source alone is computed here, once per sentence."""

    @abstractmethod
    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        """Add tokens, int64 [rows, new_len], to the hypotheses of the cache; return logits of the next, [rows, vocab].

        The number of rows is a multiple of the cache's sentences.
        """


def count_parameters(model: nn.Module) -> int:
    """Trained numbers, each shared one counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _pays_in_blocks(rows: Tensor) -> bool:
    on_cpu = rows.device.type == "cpu" and rows.dtype is torch.float32
    return on_cpu and _FEWEST_ROWS <= len(rows) <= _MOST_ROWS
