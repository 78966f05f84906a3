"""What incremental decoding keeps between two steps."""

import torch
from torch import Tensor

_GROWTH = 32  # target positions by which a layer's buffer grows, so that most steps copy nothing


class LayerCache:
    """Keys and values of one decoder layer.

    Attributes:
        memory_k, memory_v: the projected memory, [sentences, heads, src_len, d_k] and [.., d_v]: once per sentence,
            however many hypotheses read it.
        length: target positions held so far.
    """

    def __init__(self, memory_k: Tensor, memory_v: Tensor) -> None:
        self.memory_k, self.memory_v = memory_k, memory_v
        self.length = 0
        self._k: Tensor | None = None  # [rows, heads, capacity, d_k]; the first `length` positions are filled
        self._v: Tensor | None = None  # [rows, heads, capacity, d_v]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions of every row; return those of all positions so far.

        Args:
            k: [rows, heads, new_len, d_k].
            v: [rows, heads, new_len, d_v].
        Returns:
            [rows, heads, length, d_k], [rows, heads, length, d_v].
        """
        end = self.length + k.shape[2]
        self._k = _with_room(self._k, k, self.length, end)
        self._v = _with_room(self._v, v, self.length, end)
        self._k[:, :, self.length : end] = k
        self._v[:, :, self.length : end] = v
        self.length = end
        return self._k[:, :, :end], self._v[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Make the given rows (int64 [new_rows], repeats allowed) the new ones, in that order."""
        if self._k is not None and self._v is not None:
            self._k = self._k.index_select(0, rows)
            self._v = self._v.index_select(0, rows)

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep the memory of the given sentences, int64 [new_sentences]."""
        self.memory_k = self.memory_k.index_select(0, sentences)
        self.memory_v = self.memory_v.index_select(0, sentences)


class DecoderCache:
    """The state of a batch of hypotheses: an argument of each step, never hidden in the model.

    Row r of the hypotheses belongs to sentence r // (rows / sentences).

    Attributes:
        layers: one LayerCache for each decoder layer.
        memory_mask: bool [sentences, 1, 1, src_len] or None (no padding); True = a real source token.
    """

    def __init__(self, layers: list[LayerCache], memory_mask: Tensor | None) -> None:
        self.layers = layers
        self.memory_mask = memory_mask

    @property
    def length(self) -> int:
        """Target positions held so far."""
        return self.layers[0].length

    @property
    def n_sentences(self) -> int:
        """Source sentences whose memory is held."""
        return len(self.layers[0].memory_k)

    def reorder(self, rows: Tensor) -> None:
        """Replace the hypotheses by copies of the given rows; their sentences stay.

        Args:
            rows: int64 [new_rows], a multiple of the number of sentences; each row's parent is of its own sentence.
        """
        for layer in self.layers:
            layer.select(rows)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all but some sentences, and all but some rows.

        Args:
            sentences: int64 [new_sentences], indices into the present ones.
            rows: int64 [new_rows], indices into the present rows, grouped by sentence in the new order.
        """
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, sentences)
        for layer in self.layers:
            layer.select(rows)
            layer.select_sentences(sentences)


def _with_room(buffer: Tensor | None, new: Tensor, filled: int, needed: int) -> Tensor:
    """The buffer itself if it has room for `needed` positions, else a larger copy of its `filled` ones."""
    if buffer is not None and buffer.shape[2] >= needed:
        return buffer
    rows, heads, _, width = new.shape
    larger = torch.empty(rows, heads, needed + _GROWTH, width, dtype=new.dtype, device=new.device)
    if buffer is not None:
        larger[:, :, :filled] = buffer[:, :, :filled]
    return larger
