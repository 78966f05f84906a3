"""Sizes of padded batches for a GPU: from short lists, so that few shapes occur, at 1 to 2 % more padding.

torch.compile's kernels take any shape; but each new one makes cuBLAS choose its kernels anew, fits no memory that was
freed before, and is a CUDA graph of its own where these are recorded.
"""

from aiayn_cli.data.collate import Shape
from aiayn_cli.model.packing import rounded_up

# Steps from a power of two to the next. Padding of the longer side and of pairs costs most, so those steps are small.
_LONGER_STEPS, _SHORTER_STEPS, _PAIR_STEPS = 32, 8, 32
_PAIRS_MULTIPLE = 4  # so that no dimension is 1, which torch.compile treats apart
_LEAST_LENGTH = 8


def few_shapes(exact: Shape, longest: int) -> Shape:
    """The smallest shape of the lists that holds a batch.

    Args:
        exact: what the batch needs.
        longest: tokens that a sequence may have at most; no side of the batch has more.
    """
    longer = min(longest, rounded_up(max(exact.src_length, exact.tgt_length, _LEAST_LENGTH), _LONGER_STEPS))
    shorter = rounded_up(max(min(exact.src_length, exact.tgt_length), _LEAST_LENGTH), _SHORTER_STEPS)
    shorter = min(longer, shorter)
    pairs = -(-rounded_up(exact.pairs, _PAIR_STEPS) // _PAIRS_MULTIPLE) * _PAIRS_MULTIPLE
    src_is_longer = exact.src_length >= exact.tgt_length
    return Shape(pairs, *((longer, shorter) if src_is_longer else (shorter, longer)))


def few_counts(tokens: int) -> int:
    """How many rows tokens take without padding: from a list of the same kind."""
    return rounded_up(tokens, _PAIR_STEPS)
