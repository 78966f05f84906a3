"""What every kind of translation model offers to training and search, whatever is inside."""

from abc import ABC, abstractmethod
from typing import Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.cpu.packed_attention import Packing

NO_LIMIT = 1 << 30  # positions of a model that reads sequences of any length
# On a CPU a product begins by rearranging the weights. A matrix for a whole vocabulary has left the cache when it is
# multiplied then, a block of it has not: that saves 10 to 40 % of the time, but not for a row or two, which are
# multiplied without, nor for thousands, where little of the time goes into it.
_WORDS_AT_ONCE, _FEWEST_ROWS, _MOST_ROWS = 512, 4, 512


class DecodingCache(Protocol):
    """The state of a batch of hypotheses between two steps: an argument of each step, never hidden in the model.

    Row r of the hypotheses belongs to sentence r // (rows / sentences). Sentences may have read different numbers of
    tokens; all hypotheses of one sentence have read equally many.
    """

    def reorder(self, rows: Tensor) -> None:
        """Replace the hypotheses by copies of the given rows, int64 [new_rows]; each stays in its sentence."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all but some sentences, int64 [new_sentences], and all but some rows, int64 [new_rows]."""

    def take(self, places: Tensor, other: Self, chosen: slice) -> None:
        """Put some sentences of another cache, with their hypotheses, in the place of some here.

        Args:
            places: int64 [taken], indices into the present sentences.
            other: a cache of the same model with as many hypotheses for each sentence.
            chosen: which of its sentences.
        """


class TranslationModel(nn.Module, ABC):
    """Encoder and decoder with their embeddings; build_model() makes one from a ModelConfig.

    Token sequences are int64, padded with PAD_ID at the end. A source ends with EOS_ID; what the decoder reads
    begins with BOS_ID.

    Attributes:
        encoder_layers, decoder_layers: what torch.compile is given, layer by layer.
        output: its weight [vocab, d_model] turns what the decoder makes into logits.
        is_compiled: whether its layers are compiled (train/compilation.py).
        replays_graphs: whether they are CUDA graphs.
    """

    encoder_layers: nn.ModuleList
    decoder_layers: nn.ModuleList
    output: nn.Embedding

    def __init__(self) -> None:
        super().__init__()
        self.is_compiled = self.replays_graphs = False
        # Does that instead, where use_int8() set it; in the class itself it would hide the module that is set later.
        self.vocab_projection: nn.Module | None = None

    @property
    def max_positions(self) -> int:
        """The longest sequence that the model can read or write, in tokens."""
        return NO_LIMIT

    def forward(self, src: Tensor, src_mask: Tensor | None, tgt_in: Tensor) -> Tensor:
        """Logits of every next target token, given the ones before (teacher forcing).

        Args:
            src: int64 [batch, src_len].
            src_mask: bool [batch, src_len], True = a real token; None = no padding.
            tgt_in: int64 [batch, tgt_len], the target shifted right: BOS_ID first.
        Returns:
            [batch, tgt_len, vocab].
        """
        return self.project(self.decode(tgt_in, self.encode(src, src_mask), src_mask))

    @abstractmethod
    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """int64 [batch, src_len] and bool [batch, src_len] or None -> memory [batch, src_len, width]."""

    @abstractmethod
    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask: Tensor | None) -> Tensor:
        """What the decoder makes of whole target sequences, before the projection.

        Args:
            tgt_in: int64 [batch, tgt_len], BOS_ID first.
            memory: [batch, src_len, width] from encode().
            src_mask: bool [batch, src_len], True = a real token; None = no padding.
        Returns:
            [batch, tgt_len, d_model].
        """

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
        """encode() and decode() over sequences without padding (packing.py).

        Args:
            src: int64 [src_packing.rows].
            src_packing: of the sources.
            tgt_in: int64 [tgt_packing.rows], each sequence with BOS_ID first.
            tgt_packing: of the targets of the same sentences.
        Returns:
            [tgt_packing.rows, d_model]; rows that belong to no token hold anything, and give no gradient where none
            comes to them.
        """
        raise NotImplementedError

    @abstractmethod
    def start(self, memory: Tensor, src_mask: Tensor | None) -> DecodingCache:
        """Prepare incremental decoding: what depends on the source alone is computed once per sentence.

        Args:
            memory: [sentences, src_len, width].
            src_mask: bool [sentences, src_len], True = a real token; None = no padding.
        """

    @abstractmethod
    def step(self, tokens: Tensor, cache: DecodingCache) -> Tensor:
        """Logits of the token after the given ones, which the cache takes up.

        Args:
            tokens: int64 [rows, new_len]; rows is a multiple of the cache's sentences.
            cache: from this model's start(), with the positions of earlier steps.
        Returns:
            [rows, vocab].
        """


def count_parameters(model: nn.Module) -> int:
    """Trained numbers, each shared one counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _pays_in_blocks(rows: Tensor) -> bool:
    on_cpu = rows.device.type == "cpu" and rows.dtype is torch.float32
    return on_cpu and _FEWEST_ROWS <= len(rows) <= _MOST_ROWS
