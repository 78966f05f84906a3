"""Text to token ids in bulk: processed, encoded in order on all cores, the same for any number of processes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aiayn_cli.config import TextConfig
from aiayn_cli.data.store import Tokens
from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.prepare.drop_rules import LengthRules
from aiayn_cli.prepare.pairs import Chunk
from aiayn_cli.prepare.text_shards import Piece, TrainingPairs
from aiayn_cli.processes import map_in_order
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import load_vocabs
from aiayn_cli.text.moses import MosesText
from aiayn_cli.text.vocab import CACHED_WORDS, Vocab


def make_processor(config: TextConfig, src_lang: str, tgt_lang: str) -> Callable[[Chunk], Chunk]:
    """Make what processes both sides of a chunk, for `map_in_order`.

    Raises:
        DataError: it needs a package that is not installed.
    """
    if config.trees:
        trees = TreeText(config)
        return lambda chunk: (chunk[0], trees.apply(chunk[1]))
    src, tgt = MosesText(config, src_lang), MosesText(config, tgt_lang)
    return lambda chunk: (src.apply(chunk[0]), tgt.apply(chunk[1]))


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


def encode_chunk(
    vocabs: tuple[Vocab, Vocab],
    rules: LengthRules | None,
    text: TrainingPairs,
) -> EncodedChunk:
    """Encode a chunk and drop the pairs that the rules claim (none where there are no rules).

    Args:
        vocabs: of the source and target side.
        rules: what drops a pair for its length.
        text: pairs, and copies after them.
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
    pieces: Iterable[Piece], folder: Path, rules: LengthRules, workers: int
) -> Iterator[tuple[Piece, EncodedChunk]]:
    """Read and encode pieces of training text in parallel, in their order.

    Args:
        pieces: what to encode.
        folder: holds the vocabularies.
        rules: what drops a pair for its length.
        workers: processes; 1 does all the work in this one.
    Raises:
        ResumableError: a process was killed.
    """
    cached_words = max(CACHED_WORDS // workers, 50_000)  # memory of all processes together stays the same
    return map_in_order(_make_encoder, (folder, rules, cached_words), pieces, workers)


def _make_encoder(folder: Path, rules: LengthRules, cached_words: int) -> Callable[[Piece], EncodedChunk]:
    vocabs = load_vocabs(folder, cached_words)
    return lambda piece: encode_chunk(vocabs, rules, piece.load())
