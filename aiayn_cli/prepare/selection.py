"""Selects training pairs: those that the rules on text keep are written down in shards, then pairs are held out for
validation and repeated ones dropped.

A shard is finished or absent, so that interrupted work resumes after the last finished one. Memory holds 8 bytes for
each pair while pairs are compared, and 1 byte afterwards; everything else is on the disk.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aiayn_cli.data.store import SIDES
from aiayn_cli.prepare.drop_rules import Hashes, Mask, ScoredText, TextRules, find_repeats, hash_pairs, rank_pairs
from aiayn_cli.prepare.formats import Chunk
from aiayn_cli.prepare.partial_folder import Steps, damaged
from aiayn_cli.prepare.text_shards import TITLE, UPPER, Piece, make_processor, normalise_chunk, numbered, pick
from aiayn_cli.processes import map_in_order
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.lines import join_records

SHARD_CHUNKS = 100  # chunks of text in a shard, of text and then of token ids

# Purposes of ranks; different ones draw independently.
_HOLD_OUT, _SAMPLE, _CASE = 0, 1, 2


@dataclass(frozen=True)
class _CleanChunk:
    """A chunk of training text without the pairs that the rules claimed."""

    number: int  # from 0 on
    origin: int
    pairs: Chunk
    hashes: tuple[Hashes, Hashes]  # of both sides
    dropped: dict[str, int]  # pairs by rule


@dataclass(frozen=True)
class _WrittenChunk:
    """Where a chunk of pairs is."""

    origin: int
    pairs: slice  # of all pairs that were written
    starts: tuple[int, ...]  # first byte in the files of each side, then of each side's raw text if that is kept
    sizes: tuple[int, ...]  # likewise


class TrainingText:
    """Training pairs as text in shards, and which of them are selected.

    `weights` says how often the pairs of each origin are in the training data, `case_copies` what share gets a copy.
    """

    def __init__(
        self, steps: Steps, langs: tuple[str, str], weights: Sequence[int] = (1,), case_copies: float = 0, seed: int = 1
    ) -> None:
        self.dropped: list[Counter[str]] = [Counter() for _ in weights]  # pairs by origin and rule
        self._steps = steps
        self._langs = langs
        self._weights = weights
        self._case_copies = case_copies
        self._seed = seed
        self._shards: list[list[_WrittenChunk]] = []
        self._out: Mask = np.empty(0, np.bool_)  # dropped or held out, of the pairs that were written
        while (written := steps.result(numbered("text", self.n_shards))) is not None:
            self._add(written)

    @property
    def n_shards(self) -> int:
        return len(self._shards)

    def __len__(self) -> int:
        return int(len(self._out) - self._out.sum())

    def collect(
        self, chunks: Iterable[tuple[int, Chunk]], rules: TextRules, config: TextConfig, workers: int = 1
    ) -> None:
        """Write all pairs, by chunk with its origin, but those that rules claim or finished shards hold."""
        first = self.n_shards * SHARD_CHUNKS
        prepared = normalise_chunk if config.normalises else lambda chunk: chunk
        clean = (_clean(i, origin, prepared(chunk), rules) for i, (origin, chunk) in enumerate(chunks) if i >= first)
        processed: Iterator[tuple[_CleanChunk, Chunk]] = ((chunk, chunk.pairs) for chunk in clean)
        if config.changes_text:
            processed = map_in_order(_make_work, (config, *self._langs), clean, workers)
        for number, own in groupby(processed, key=lambda pair: pair[0].number // SHARD_CHUNKS):
            self._add(self._write_shard(number, own, keep_raw=config.changes_text))

    def _write_shard(
        self, number: int, chunks: Iterable[tuple[_CleanChunk, Chunk]], *, keep_raw: bool
    ) -> dict[str, Any]:
        """Write a shard of chunks, each with its processed text, and mark it as done; `keep_raw` keeps the original."""
        paths = [*self._files("text", number), *(self._files("raw", number) if keep_raw else ())]
        table, hashes = list[list[int]](), list[tuple[Hashes, Hashes]]()
        dropped = [Counter[str]() for _ in self._weights]
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for chunk, processed in chunks:
                contents = [join_records(side) for side in (*processed, *chunk.pairs)[: len(files)]]
                for file, content in zip(files, contents, strict=True):
                    file.write(content)
                table.append([chunk.origin, len(processed[0]), *map(len, contents)])
                hashes.append(chunk.hashes)
                dropped[chunk.origin].update(chunk.dropped)
        path = self._hash_file(number)
        np.save(path, np.stack([np.concatenate(side) for side in zip(*hashes, strict=True)]))
        return self._steps.finish(numbered("text", number), {"chunks": table, "dropped": dropped}, [*paths, path])

    def hold_out(self, most: int, share: float, *, drop_overlap: bool = True) -> Chunk:
        """Take pairs out for validation, drop others that share a side with them, and return them unprocessed.

        They are `most` pairs at most, and at most this share of all different pairs, but at least one of two.
        """
        first = ~(self._find_repeats() | self._out)
        n_first = int(first.sum())
        n = min(most, max(int(share * n_first), 1), n_first - 1)
        if n < 1:
            return [], []
        lowest = np.empty(0, np.uint64)
        for here, hashes in self._hashes():
            ranks = rank_pairs(hash_pairs(*hashes)[first[here]], self._seed, _HOLD_OUT)
            lowest = np.sort(np.concatenate([lowest, ranks]))[:n]
        picked = np.zeros(len(self._out), np.bool_)
        held_out: list[tuple[Hashes, Hashes]] = []
        pairs: Chunk = [], []
        for shard, (here, hashes) in enumerate(self._hashes()):
            picked[here] = first[here] & (rank_pairs(hash_pairs(*hashes), self._seed, _HOLD_OUT) <= lowest[-1])
            held_out.append((hashes[0][picked[here]], hashes[1][picked[here]]))
            for piece in self._pieces(shard, picked, raw=True):
                if piece.taken.any():
                    text = piece.load()
                    pairs[0].extend(text.src)
                    pairs[1].extend(text.tgt)
        self._out |= picked
        if drop_overlap:
            scored = ScoredText(*map(np.concatenate, zip(*held_out, strict=True)))
            overlap = np.zeros(len(self._out), np.bool_)
            for here, hashes in self._hashes():
                overlap[here] = scored.find_overlap(*hashes)
            self._drop("overlap", overlap)
        return pairs

    def drop_repeats(self) -> None:
        self._drop("repeated", self._find_repeats())

    def save_selection(self) -> tuple[dict[str, Any], Path]:
        """Save which pairs are out: what `restore_selection` needs, and the file."""
        path = self._steps.scratch / "out.npy"
        np.save(path, self._out)
        return {"dropped": self.dropped}, path

    def restore_selection(self, saved: Mapping[str, Any]) -> None:
        self._out = _load_array(self._steps.scratch / "out.npy", self._out.shape)
        self.dropped = [Counter(dropped) for dropped in saved["dropped"]]

    def sample(self, most: int) -> Iterator[Piece]:
        """A random part of the selected pairs, about `most`, in order; all if there are no more."""
        n_selected = len(self)
        limit = np.uint64(most / n_selected * 2**64 if n_selected > most else 0)
        for shard in range(self.n_shards):
            taken = ~self._out
            if n_selected > most:
                here, hashes = self._load_hashes(shard)
                taken[here] &= rank_pairs(hash_pairs(*hashes), self._seed, _SAMPLE) < limit
            yield from self._pieces(shard, taken)

    def pieces(self, shard: int) -> Iterator[Piece]:
        """The selected pairs of a shard."""
        return self._pieces(shard, ~self._out)

    def remove(self, shard: int) -> None:
        """Remove the text of a shard."""
        for path in (*self._files("text", shard), *self._files("raw", shard)):
            path.unlink(missing_ok=True)

    def _files(self, kind: str, shard: int) -> tuple[Path, Path]:
        src, tgt = (self._steps.scratch / f"{numbered(kind, shard)}.{side}" for side in SIDES)
        return src, tgt

    def _hash_file(self, shard: int) -> Path:
        return self._steps.scratch / f"{numbered('hashes', shard)}.npy"

    def _pieces(self, shard: int, taken: Mask, *, raw: bool = False) -> Iterator[Piece]:
        here = self._place(shard)
        copies = np.zeros(here.stop - here.start, np.uint8)
        if self._case_copies and not raw:
            hashes = hash_pairs(*self._load_hashes(shard)[1])
            shares = rank_pairs(hashes, self._seed, _CASE) / 2**64  # from 0 to 1
            copies[shares < self._case_copies] = TITLE
            copies[shares < self._case_copies / 2] = UPPER
        for chunk in self._shards[shard]:
            first = 2 if raw and len(chunk.sizes) > 2 else 0
            yield Piece(
                shard=shard,
                files=self._files("raw" if first else "text", shard),
                starts=chunk.starts[first : first + 2],
                sizes=chunk.sizes[first : first + 2],
                langs=self._langs,
                origin=chunk.origin,
                weight=self._weights[chunk.origin],
                taken=taken[chunk.pairs],
                copies=copies[chunk.pairs.start - here.start : chunk.pairs.stop - here.start],
            )

    def _find_repeats(self) -> Mask:
        """Mark each pair that came before; pairs that are out count too."""
        hashes = np.empty(len(self._out), np.uint64)
        for here, sides in self._hashes():
            hashes[here] = hash_pairs(*sides)
        return find_repeats(hashes)

    def _drop(self, reason: str, mask: Mask) -> None:
        mask &= ~self._out
        self._out |= mask
        for shard in self._shards:
            for chunk in shard:
                self.dropped[chunk.origin][reason] += int(mask[chunk.pairs].sum())

    def _hashes(self) -> Iterator[tuple[slice, tuple[Hashes, Hashes]]]:
        """The hashes of both sides, shard by shard, with their place among all pairs."""
        return map(self._load_hashes, range(self.n_shards))

    def _load_hashes(self, shard: int) -> tuple[slice, tuple[Hashes, Hashes]]:
        here = self._place(shard)
        src, tgt = _load_array(self._hash_file(shard), (2, here.stop - here.start))
        return here, (src, tgt)

    def _place(self, shard: int) -> slice:
        return slice(self._shards[shard][0].pairs.start, self._shards[shard][-1].pairs.stop)

    def _add(self, shard: Mapping[str, Any]) -> None:
        """Take up a shard that `_write_shard` described."""
        chunks: list[_WrittenChunk] = []
        starts, position = (0, 0, 0, 0), len(self._out)
        for origin, n_pairs, *sizes in shard["chunks"]:
            chunks.append(_WrittenChunk(origin, slice(position, position + n_pairs), starts, tuple(sizes)))
            starts = tuple(start + size for start, size in zip(starts, sizes, strict=False))
            position += n_pairs
        self._shards.append(chunks)
        self._out = np.concatenate([self._out, np.zeros(position - len(self._out), np.bool_)])
        for total, dropped in zip(self.dropped, shard["dropped"], strict=True):
            total.update(dropped)


def _clean(number: int, origin: int, chunk: Chunk, rules: TextRules) -> _CleanChunk:
    claims, src, tgt = rules.claim(*chunk)
    keep = ~np.logical_or.reduce(list(claims.values()))
    dropped = {reason: int(claim.sum()) for reason, claim in claims.items() if claim.any()}
    return _CleanChunk(number, origin, pick(chunk, keep), (src[keep], tgt[keep]), dropped)


def _make_work(config: TextConfig, src_lang: str, tgt_lang: str) -> Callable[[_CleanChunk], Chunk]:
    process = make_processor(config, src_lang, tgt_lang)
    return lambda chunk: process(chunk.pairs)


def _load_array(path: Path, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Read an array of an earlier step; raises DataError if it is not what was written."""
    try:
        array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    except (FileNotFoundError, EOFError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if array.shape != shape:
        raise damaged(path, f"it has the shape {array.shape}, not {shape}")
    return array
