"""Text to token ids in bulk: in order, on all cores, and the same for any number of processes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aiayn_cli.data.store import Tokens
from aiayn_cli.prepare.bpe_dropout import RandomSplitter
from aiayn_cli.prepare.clean import LengthRules
from aiayn_cli.prepare.pairs import Chunk
from aiayn_cli.prepare.parts import Piece, TrainingPairs
from aiayn_cli.processes import map_in_order
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import load_vocabs
from aiayn_cli.text.vocab import CACHED_WORDS, Vocab

Lengths = npt.NDArray[np.int32]


@dataclass(frozen=True)
class EncodedChunk:
    """The pairs of one chunk that are kept: ids of all sides one after the other [tokens], their lengths [pairs]."""

    src: Tokens
    src_lengths: Lengths
    tgt: Tokens
    tgt_lengths: Lengths
    too_many_tokens: int  # pairs dropped; copies are not counted
    length_ratio: int  # pairs dropped; copies are not counted
    n_upper: int  # copies in upper case that are kept, after all pairs that are none
    n_title: int  # copies in title case that are kept, at the end
    unknown: int  # tokens that are <unk>, on both sides

    @property
    def n_pairs(self) -> int:
        """Pairs and copies that are kept."""
        return len(self.src_lengths)


@dataclass(frozen=True)
class Dropout:
    """BPE-dropout: how often a merge is left out, and the seed of the choice."""

    probability: float
    seed: int


def encode_chunk(
    vocabs: tuple[Vocab, Vocab],
    rules: LengthRules | None,
    text: TrainingPairs,
    splitters: tuple[RandomSplitter, RandomSplitter] | None = None,
    draw: tuple[int, ...] = (),
) -> EncodedChunk:
    """Encode a chunk and drop the pairs that the rules claim (none where there are no rules).

    Args:
        vocabs: of the source and target side.
        rules: what drops a pair for its length.
        text: pairs, and copies after them.
        splitters: split what is kept at random; the rules look at the best way to split it.
        draw: numbers; others split the same text in other ways.
    """
    (src, src_lengths), (tgt, tgt_lengths) = vocabs[0].encode_flat(text.src), vocabs[1].encode_flat(text.tgt)
    n_pairs = len(text.src) - text.n_upper - text.n_title
    starts = n_pairs, n_pairs + text.n_upper  # of the copies
    too_long = unbalanced = np.zeros(len(src_lengths), np.bool_)
    keep = ~too_long
    if rules is not None:
        too_long = rules.find_too_long(src_lengths, tgt_lengths)
        unbalanced = rules.find_unbalanced(src_lengths, tgt_lengths) & ~too_long
        keep = ~(too_long | unbalanced)
        if not keep.all():
            src, tgt = src[np.repeat(keep, src_lengths)], tgt[np.repeat(keep, tgt_lengths)]
            src_lengths, tgt_lengths = src_lengths[keep], tgt_lengths[keep]
    if splitters is not None:
        sides = (list(compress(side, keep.tolist())) for side in (text.src, text.tgt))
        (src, src_lengths), (tgt, tgt_lengths) = (
            splitter.encode_flat(side, (*draw, i))
            for i, (splitter, side) in enumerate(zip(splitters, sides, strict=True))
        )
    return EncodedChunk(
        src=src,
        src_lengths=src_lengths,
        tgt=tgt,
        tgt_lengths=tgt_lengths,
        too_many_tokens=int(too_long[:n_pairs].sum()),
        length_ratio=int(unbalanced[:n_pairs].sum()),
        n_upper=int(keep[starts[0] : starts[1]].sum()),
        n_title=int(keep[starts[1] :].sum()),
        unknown=int((src == UNK_ID).sum() + (tgt == UNK_ID).sum()),
    )


def encode_scored(folder: Path, pairs: Chunk) -> EncodedChunk:
    """Encode pairs that are scored, all of them, with the vocabularies in a folder."""
    return encode_chunk(load_vocabs(folder), None, TrainingPairs(*pairs, 0, 0))


def encode_pieces(
    pieces: Iterable[Piece], folder: Path, rules: LengthRules, workers: int, dropout: Dropout | None = None
) -> Iterator[tuple[Piece, list[EncodedChunk]]]:
    """Read and encode many pieces of training text, in their order, each as often as its weight says.

    Args:
        pieces: what to encode.
        folder: holds the vocabularies.
        rules: what drops a pair for its length.
        workers: processes; 1 does all the work in this one.
        dropout: splits words at random, anew each time.
    Raises:
        ResumableError: a process was killed.
    """
    cached_words = max(CACHED_WORDS // workers, 50_000)  # memory of all processes together stays the same
    return map_in_order(_make_encoder, (folder, rules, cached_words, dropout), pieces, workers)


def _make_encoder(
    folder: Path, rules: LengthRules, cached_words: int, dropout: Dropout | None
) -> Callable[[Piece], list[EncodedChunk]]:
    vocabs = load_vocabs(folder, cached_words)
    if dropout is None:
        return lambda piece: [encode_chunk(vocabs, rules, piece.load())] * piece.weight
    # Of each word there are many ways to split it, which are remembered too.
    src, tgt = (RandomSplitter(vocab, dropout.probability, dropout.seed, 4 * cached_words) for vocab in vocabs)

    def encode(piece: Piece) -> list[EncodedChunk]:
        text = piece.load()
        return [encode_chunk(vocabs, rules, text, (src, tgt), (piece.number, i)) for i in range(piece.weight)]

    return encode
