"""Shards of training text: clean plain text in files, read back in pieces and encoded as token ids on all cores.

A shard has a marker once it is whole. Its text is removed when its token ids are written; its hashes stay to the end.
Pairs are read back with copies of some in upper case and in title case, so that a model knows text that SHOUTS and
Text Like Headlines. The result does not depend on the number of processes."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aiayn_cli.data.store import Tokens
from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.prepare.drop_rules import LengthRules, Lengths, Mask
from aiayn_cli.prepare.formats import Chunk
from aiayn_cli.prepare.partial_folder import damaged
from aiayn_cli.processes import map_in_order
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import load_vocabs
from aiayn_cli.text.languages import primary_language
from aiayn_cli.text.lines import split_records
from aiayn_cli.text.moses import MosesText
from aiayn_cli.text.normalise import normalise
from aiayn_cli.text.vocab import CACHED_WORDS, Vocab

UPPER, TITLE = 1, 2  # kinds of copies

# The first letter or digit of a word, after quotes and brackets. An apostrophe inside a word starts no new one.
_FIRST = re.compile(r"(?<!\S)([^\w\s]*)(\w)")
_DOTTED = ("tr", "az")  # the capital of i keeps its dot
_STRIPPED = ("el", "grc")  # capitals have no accent


def make_copy(record: str, lang: str, kind: int) -> str:
    """Write a record in upper case (UPPER) or with a capital at the start of each word (TITLE)."""
    code = primary_language(lang)
    dotted = code in _DOTTED
    if kind == TITLE:
        return _FIRST.sub(lambda m: m[1] + ("İ" if dotted and m[2] == "i" else m[2].title()), record)
    if dotted:
        record = record.replace("i", "İ")
    elif code in _STRIPPED:
        record = unicodedata.normalize("NFC", unicodedata.normalize("NFD", record).replace("\u0301", ""))
    return record.upper()


def numbered(kind: str, shard: int) -> str:
    """A step or file of a shard: "text", "raw", "hashes" [2 sides, pairs] or "train"."""
    return f"{kind}-{shard:05d}"


def pick(chunk: Chunk, picked: Mask) -> Chunk:
    if picked.all():
        return chunk
    selectors = picked.tolist()
    return list(compress(chunk[0], selectors)), list(compress(chunk[1], selectors))


class PairsWithCopies(NamedTuple):
    """Text to learn from: the pairs, then copies in upper case, then copies in title case."""

    src: list[str]
    tgt: list[str]
    n_upper: int
    n_title: int

    def sample(self, most: int) -> list[str]:
        """Some source sides of the pairs, evenly spread."""
        pairs = self.src[: len(self.src) - self.n_upper - self.n_title]
        return pairs[:: len(pairs) // most + 1]


@dataclass(frozen=True)
class Piece:
    """A chunk of a text shard, and which of its pairs are taken."""

    shard: int
    files: tuple[Path, Path]  # source sides, target sides
    starts: tuple[int, ...]  # first byte in each file
    sizes: tuple[int, ...]  # bytes in each file
    langs: tuple[str, str]
    origin: int
    weight: int  # how often each pair is in the training data
    taken: Mask  # [pairs]
    copies: npt.NDArray[np.uint8]  # the kind of copy to add of each, or 0: [pairs]

    def load(self) -> PairsWithCopies:
        """Read the pairs that are taken, each once; raises DataError if the text is not what was written."""
        src, tgt = pick(self._read(), self.taken)
        kinds = self.copies[self.taken]
        counts = []
        for kind in (UPPER, TITLE):
            before = len(src)
            for i in np.flatnonzero(kinds == kind):
                copy = make_copy(src[i], self.langs[0], kind), make_copy(tgt[i], self.langs[1], kind)
                if copy != (src[i], tgt[i]):
                    src.append(copy[0])
                    tgt.append(copy[1])
            counts.append(len(src) - before)
        return PairsWithCopies(src, tgt, *counts)

    def _read(self) -> Chunk:
        sides = []
        for path, start, size in zip(self.files, self.starts, self.sizes, strict=True):
            try:
                with path.open("rb") as file:
                    file.seek(start)
                    records = split_records(file.read(size))
            except (FileNotFoundError, UnicodeDecodeError) as error:
                raise damaged(path, str(error)) from error
            if len(records) != len(self.taken):
                raise damaged(path, f"it has {len(records):,} lines, but {len(self.taken):,} were written")
            sides.append(records)
        return sides[0], sides[1]


def make_processor(config: TextConfig, src_lang: str, tgt_lang: str) -> Callable[[Chunk], Chunk]:
    """What processes both sides of a chunk; raises DataError if it needs a package that is not installed."""
    if config.trees:
        trees = TreeText(config)
        return lambda chunk: (chunk[0], trees.apply(chunk[1]))
    src, tgt = MosesText(config, src_lang), MosesText(config, tgt_lang)

    def process(chunk: Chunk) -> Chunk:
        chunk = normalise_chunk(chunk) if config.normalises else chunk
        return src.apply(chunk[0]), tgt.apply(chunk[1])

    return process


def normalise_chunk(chunk: Chunk) -> Chunk:
    return list(map(normalise, chunk[0])), list(map(normalise, chunk[1]))


@dataclass(frozen=True)
class EncodedChunk:
    """The pairs of one chunk that are kept: ids of all sides one after the other [tokens], their lengths [pairs]."""

    src: Tokens
    src_lengths: Lengths
    tgt: Tokens
    tgt_lengths: Lengths
    too_many_tokens: int  # pairs dropped, without copies
    length_ratio: int  # pairs dropped, without copies
    n_upper: int  # copies in upper case that are kept; they follow the pairs
    n_title: int  # copies in title case that are kept, at the end
    unknown: int  # tokens that are <unk>, on both sides


def encode_chunk(vocabs: tuple[Vocab, Vocab], rules: LengthRules, text: PairsWithCopies) -> EncodedChunk:
    """Encode a chunk with the vocabularies of both sides, and drop the pairs that the rules claim."""
    (src, src_lengths), (tgt, tgt_lengths) = vocabs[0].encode_flat(text.src), vocabs[1].encode_flat(text.tgt)
    n_pairs = len(text.src) - text.n_upper - text.n_title
    too_long, unbalanced = rules.claim(src_lengths, tgt_lengths)
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
        n_upper=int(keep[n_pairs : n_pairs + text.n_upper].sum()),
        n_title=int(keep[n_pairs + text.n_upper :].sum()),
        unknown=int((src == UNK_ID).sum() + (tgt == UNK_ID).sum()),
    )


def encode_pieces(
    pieces: Iterable[Piece], folder: Path, rules: LengthRules, workers: int
) -> Iterator[tuple[Piece, EncodedChunk]]:
    """Read and encode pieces in several processes, in their order, with the vocabularies in a folder."""
    cached_words = max(CACHED_WORDS // workers, 50_000)  # memory of all processes together stays the same
    return map_in_order(_make_encoder, (folder, rules, cached_words), pieces, workers)


def _make_encoder(folder: Path, rules: LengthRules, cached_words: int) -> Callable[[Piece], EncodedChunk]:
    vocabs = load_vocabs(folder, cached_words)
    return lambda piece: encode_chunk(vocabs, rules, piece.load())
