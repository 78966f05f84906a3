"""The cost of training: floating-point operations, counted from the shape of the network and the lengths of the text.

An operation is a multiplication or an addition, so a product of [m, k] and [k, n] takes 2 m k n. Only matrix products
count, as in Kaplan et al. (2020, Section 2.1) and Chowdhery et al. (2022, Appendix B): no norms, softmax, dropout or
optimiser. The backward pass has two products for each one of the forward pass, so an update costs three forward passes.
Unlike in those papers, padding and masked positions do not count.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiayn_cli.recipe_keys import ModelConfig

# Table 2: training cost in FLOPs, by the paper's method (footnote 5): time x GPUs x 9.5 TFLOP/s sustained by a P100;
# base 12 hours, big 3.5 days, on 8 GPUs each.
PAPER_FLOPS = {"base": 3.3e18, "big": 2.3e19}

Lengths = NDArray[np.integer]
_Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingCost:
    """Counts the operations of one network."""

    shape: ModelConfig
    vocab_size: int  # rows of the pre-softmax matrix

    def update_flops(self, src_lengths: Lengths, tgt_lengths: Lengths) -> int:
        """Operations of the forward and backward pass over pairs of these lengths without end tokens: [pairs]."""
        return 3 * self.forward_flops(src_lengths, tgt_lengths)

    def forward_flops(self, src_lengths: Lengths, tgt_lengths: Lengths) -> int:
        src, tgt = src_lengths.astype(np.int64) + 1, tgt_lengths.astype(np.int64) + 1  # with the end token
        output = int(tgt.sum()) * self.shape.d_model * self.vocab_size
        return 2 * (_PRODUCTS[self.shape.kind](self.shape, src, tgt) + output)

    def run_flops(self, lengths: Iterable[tuple[Lengths, Lengths]], batch_tokens: int, updates: int) -> int:
        """Estimate the operations of a whole training: those of one pass over the corpus, times the passes.

        Args:
            lengths: of all training pairs, in chunks: sources and targets as in update_flops().
            batch_tokens: tokens in an update, counting the longer side of each pair with its end token.
        """
        tokens = one_pass = 0
        for src, tgt in lengths:
            tokens += int(np.maximum(src, tgt).sum(dtype=np.int64)) + len(src)
            one_pass += self.update_flops(src, tgt)
        passes = updates / max(1, -(-tokens // batch_tokens))  # a corpus is cut into whole updates
        return round(one_pass * passes)


def compared_to_paper(flops: float) -> str:
    """Such as "1.1e+17 FLOPs (paper: base 3.3e18, big 2.3e19)"."""
    return f"{flops:.2g} FLOPs (paper: base 3.3e18, big 2.3e19)"


def _transformer_products(s: ModelConfig, src: _Int64s, tgt: _Int64s) -> int:
    """Multiplications in a forward pass without the output layer; lengths include end tokens: [pairs]."""
    qk, v = s.n_heads * s.d_k, s.n_heads * s.d_v  # widths of all heads together
    attention = s.d_model * (2 * qk + 2 * v)  # weights: queries, keys, values and the projection after them
    feed_forward = 2 * s.d_model * s.d_ff
    src_tokens, tgt_tokens = int(src.sum()), int(tgt.sum())
    before = _places_before(tgt, s.attention_window)
    both_sides = src_tokens + 2 * _places_before(src, s.attention_window)
    encoder = src_tokens * (attention + feed_forward) + both_sides * (qk + v)
    # Each of the decoder's layers projects the memory, once for each source token, to keys and values.
    decoder = (
        tgt_tokens * (attention + feed_forward + s.d_model * (qk + v))
        + src_tokens * s.d_model * (qk + v)
        + (tgt_tokens + before + int((src * tgt).sum())) * (qk + v)
    )
    return s.n_encoder_layers * encoder + s.n_decoder_layers * decoder


def _recurrent_products(s: ModelConfig, src: _Int64s, tgt: _Int64s) -> int:
    """The same for a recurrent model."""
    d = s.d_model
    src_tokens, tgt_tokens = int(src.sum()), int(tgt.sum())
    # Four gates read input and state; in the encoder, two directions have half of the width each.
    encoder = s.n_encoder_layers * src_tokens * 2 * 4 * (d // 2) * (d + d // 2)
    decoder = tgt_tokens * 4 * d * (2 * d + (s.n_decoder_layers - 1) * 3 * d)
    attention = (src_tokens + tgt_tokens) * d * d + int((src * tgt).sum()) * 2 * d
    return encoder + decoder + attention + tgt_tokens * 2 * d * d + len(src) * d * d


def _convolutional_products(s: ModelConfig, src: _Int64s, tgt: _Int64s) -> int:
    """The same for a convolutional model."""
    d = s.d_model
    convolution = s.kernel_size * d * 2 * d
    attention = int(tgt.sum()) * 2 * d * d + int((src * tgt).sum()) * 2 * d
    encoder = s.n_encoder_layers * int(src.sum()) * convolution
    return encoder + s.n_decoder_layers * (int(tgt.sum()) * convolution + attention)


_PRODUCTS = {
    "transformer": _transformer_products,
    "recurrent": _recurrent_products,
    "convolutional": _convolutional_products,
}


def _places_before(lengths: _Int64s, reach: int) -> int:
    """Pairs of a position and an earlier one that it sees, in all sequences; reach 0 = it sees all."""
    most = lengths - 1 if reach == 0 else np.minimum(lengths - 1, reach)
    return int((most * lengths - most * (most + 1) // 2).sum())  # sum over k = 1 .. most of (length - k)
