"""Word alignment of sources and outputs, by the decoder's attention to the source."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aiayn_cli.text.vocab import BLANK_MARK

Links = tuple[tuple[int, int], ...]  # (source word, target word), counted from 0


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """The number of each sub-word's word, from 0 on; words are separated by blanks, and a mere blank has -1."""
    numbers: list[int] = []
    word, inside = -1, False
    for piece in pieces:
        if piece.startswith(BLANK_MARK):
            inside = False
        if piece == BLANK_MARK:
            numbers.append(-1)
            continue
        if not inside:
            word, inside = word + 1, True
        numbers.append(word)
    return numbers


def align_words(attention: npt.NDArray[np.float32], src_pieces: Sequence[str], tgt_pieces: Sequence[str]) -> Links:
    """Link each target word with the source word that its sub-words attend to most.

    The attention is [tgt_len + 1, src_len + 1]; EOS at the end of both is ignored. Each target word has one link, in
    order; none has if the source has no word.
    """
    src_words, tgt_words = (np.array(word_numbers(p), np.int64) for p in (src_pieces, tgt_pieces))
    weights = np.zeros((tgt_words.max(initial=-1) + 2, src_words.max(initial=-1) + 2))  # the last of each: no word
    if weights.shape[0] < 2 or weights.shape[1] < 2:
        return ()
    np.add.at(weights, (tgt_words[:, None], src_words[None, :]), attention[: len(tgt_words), : len(src_words)])
    best = weights[:-1, :-1].argmax(axis=1)
    return tuple((int(src_word), tgt_word) for tgt_word, src_word in enumerate(best))


def join_links(parts: Sequence[tuple[Links, int, int]]) -> Links:
    """Join the links of the parts of a split line, given with their numbers of source and target words."""
    joined: list[tuple[int, int]] = []
    src_start = tgt_start = 0
    for links, n_src, n_tgt in parts:
        joined += [(src + src_start, tgt + tgt_start) for src, tgt in links]
        src_start, tgt_start = src_start + n_src, tgt_start + n_tgt
    return tuple(joined)
