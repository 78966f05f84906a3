"""Which sentences are searched together: those of similar length, within bounded memory."""

from collections.abc import Iterator, Sequence

_MOST_LOGITS = 1 << 25  # next-token scores of one step: 128 MB in float32, however short the sentences
_MOST_LOGITS_ON_CPU = 1 << 22  # 16 MB; more is not faster


def most_sentences(hypotheses: int, vocab_size: int, *, on_cpu: bool) -> int:
    """The most sentences of one step, with so many hypotheses each."""
    most_logits = _MOST_LOGITS_ON_CPU if on_cpu else _MOST_LOGITS
    return max(most_logits // (hypotheses * vocab_size), 1)


def batches(lengths: Sequence[int], *, batch_tokens: int, at_most: int) -> Iterator[list[int]]:
    """Group sentences of similar length, the longest first.

    Args:
        lengths: of the sources, in tokens without EOS.
        batch_tokens: source tokens of one batch, EOS and padding included.
        at_most: sentences in one batch.
    Yields:
        Positions in `lengths`.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        fitting = max(batch_tokens // (lengths[order[0]] + 1), 1)  # with EOS
        size = batch_size(min(fitting, at_most), up=False)
        yield order[:size]
        del order[:size]


def bands(grouped: Iterator[list[int]]) -> list[list[list[int]]]:
    """Group consecutive batches of one size; the last of a group may be smaller."""
    found: list[list[list[int]]] = []
    for batch in grouped:
        if not found or len(batch) > len(found[-1][0]):
            found.append([])
        found[-1].append(batch)
    return found


def batch_size(n: int, *, up: bool) -> int:
    """Round n >= 1, up or down, to one of few sizes: 1 to 8, then 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on.

    Batches shrink only to such sizes, and keep a few finished sentences: matrix libraries prepare and cache code for
    each new shape, which can take longer than the product itself.
    """
    step = 1 << max((n - 1 if up else n).bit_length() - 3, 0)
    return -(-n // step) * step if up else n // step * step
