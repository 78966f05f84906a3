"""The training text on its way: written down once as clean plain text, in parts, then read by each later step without
the pairs that a rule claimed.

A part is finished or not there, so that interrupted work goes on after the last one that is. Memory holds 8 bytes for
each pair while pairs are compared, and 1 byte afterwards; all else is on the disk.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aiayn_cli.prepare.drop_rules import Hashes, Mask, ScoredText, TextRules, find_repeats, hash_pairs, rank_pairs
from aiayn_cli.prepare.pairs import Chunk
from aiayn_cli.prepare.partial_folder import Steps, damaged
from aiayn_cli.prepare.text_shards import (
    SIDES,
    TITLE,
    UPPER,
    PartWriter,
    Piece,
    file_name,
    hashes_name,
    load_array,
    part_name,
    pick,
)
from aiayn_cli.processes import map_in_order

PART_CHUNKS = 100  # chunks of text that become one part and one shard; shards depend on it

# What a rank is drawn for; different purposes draw independently.
_HOLD_OUT, _SAMPLE, _CASE = 0, 1, 2


class TrainingText:
    """Training pairs as text, and which of them are still in.

    Args:
        steps: where the text is kept meanwhile, and what of it is there already.
        langs: codes of both languages.
        weights: of each origin: how often its pairs are in the training data.
        case_copies: share of the pairs of which a copy is made, half in upper case and half in title case.
        seed: which ones.

    Attributes:
        dropped: by origin, pairs dropped so far by the name of the rule (drop_rules.REASONS).
    """

    def __init__(
        self,
        steps: Steps,
        langs: tuple[str, str],
        weights: Sequence[int] = (1,),
        case_copies: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.dropped: list[Counter[str]] = [Counter() for _ in weights]
        self._steps = steps
        self._langs = langs
        self._weights = weights
        self._case_copies = case_copies
        self._seed = seed
        self._parts: list[list[list[int]]] = []  # of each chunk: origin, pairs, bytes of each side, and of raw text
        self._out: Mask = np.empty(0, np.bool_)  # dropped or held out, of the pairs that are written down

    def __len__(self) -> int:
        return int(len(self._out) - self._out.sum())

    @property
    def n_parts(self) -> int:
        return len(self._parts)

    def collect(
        self,
        chunks: Iterable[tuple[int, Chunk]],
        rules: TextRules,
        processing: tuple[Callable[..., Callable[[Chunk], Chunk]], tuple[object, ...]] | None = None,
        workers: int = 1,
    ) -> None:
        """Write down all pairs but those that the rules claim.

        Args:
            chunks: all training text, with the number of its origin; what was written down before is passed over.
            rules: what is dropped.
            processing: what is done to the rest before it is learnt from, as `map_in_order` takes it.
            workers: processes that do that.
        """
        finished = 0
        while (part := self._steps.result(part_name(finished))) is not None:
            self._take_up(part)
            finished += 1

        def cleaned() -> Iterator[_Cleaned]:
            for number, (origin, (src, tgt)) in enumerate(chunks):
                if number // PART_CHUNKS >= finished:
                    yield _clean(number, origin, src, tgt, rules)

        writer: PartWriter | None = None
        for chunk, learnt in _process(cleaned(), processing, workers):
            number = chunk.number // PART_CHUNKS
            if writer is None or writer.number != number:
                if writer is not None:
                    self._take_up(writer.finish())
                writer = PartWriter(self._steps, number, len(self._weights), keep_raw=processing is not None)
            writer.add(chunk.origin, learnt, chunk.pairs, chunk.hashes, chunk.dropped)
        if writer is not None:
            self._take_up(writer.finish())

    def take_up_all(self, n_parts: int) -> None:
        """Take up what an earlier call wrote down, when all text is in it."""
        for number in range(n_parts):
            part = self._steps.result(part_name(number))
            if part is None:
                raise damaged(self._steps.scratch / f"{part_name(number)}.json", "it is missing")
            self._take_up(part)

    def hold_out(self, most: int, share: float, *, drop_overlap: bool = True) -> Chunk:
        """Take pairs out for validation, and drop what overlaps with them.

        Args:
            most: pairs at most.
            share: of all different pairs at most; but one at least where there are two.
            drop_overlap: drop other pairs that share a side with them.
        Returns:
            The pairs in the order of the text, as they were before any processing.
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
        sides: tuple[list[Hashes], list[Hashes]] = [], []
        for here, hashes in self._hashes():
            picked[here] = first[here] & (rank_pairs(hash_pairs(*hashes), self._seed, _HOLD_OUT) <= lowest[-1])
            for side, own in zip(sides, hashes, strict=True):
                side.append(own[picked[here]])
        src: list[str] = []
        tgt: list[str] = []
        for part in range(self.n_parts):
            for piece in self._pieces(part, picked, raw=True):
                if piece.taken.any():
                    text = piece.load()
                    src += text.src
                    tgt += text.tgt
        self._out |= picked
        if drop_overlap:
            scored = ScoredText.of_hashes(np.concatenate(sides[0]), np.concatenate(sides[1]))
            overlap = np.zeros(len(self._out), np.bool_)
            for here, hashes in self._hashes():
                overlap[here] = scored.find_overlap(*hashes)
            self._drop("overlap", overlap)
        return src, tgt

    def drop_repeats(self) -> None:
        self._drop("repeated", self._find_repeats())

    def save_selection(self) -> tuple[dict[str, Any], list[Path]]:
        """Write down which pairs are out; give what `restore_selection` needs, and the file."""
        path = self._steps.scratch / "out.npy"
        np.save(path, self._out)
        return {"dropped": self.dropped}, [path]

    def restore_selection(self, saved: Mapping[str, Any]) -> None:
        """Go back to what was saved."""
        self._out = load_array(self._steps.scratch / "out.npy", self._out.shape)
        self.dropped = [Counter(dropped) for dropped in saved["dropped"]]

    def sample(self, most: int) -> Iterator[Piece]:
        """Give a random part of the pairs, about `most` of them, in order; all where there are no more."""
        everything = len(self) <= most
        limit = np.uint64(0 if everything else most / len(self) * 2**64)
        for part in range(self.n_parts):
            out = self._out
            if not everything:
                here, hashes = self._hashes_of(part)
                out = np.ones(len(self._out), np.bool_)
                out[here] = self._out[here] | (rank_pairs(hash_pairs(*hashes), self._seed, _SAMPLE) >= limit)
            yield from self._pieces(part, ~out)

    def pieces(self, part: int) -> list[Piece]:
        """Give the pairs of a part that are still in."""
        return list(self._pieces(part, ~self._out))

    def remove(self, part: int) -> None:
        for kind in ("text", "raw"):
            for side in SIDES:
                (self._steps.scratch / file_name(kind, part, side)).unlink(missing_ok=True)

    def _pieces(self, part: int, taken: Mask, *, raw: bool = False) -> Iterator[Piece]:
        kind = "raw" if raw and self._parts[part] and len(self._parts[part][0]) > 4 else "text"
        columns = slice(4, 6) if kind == "raw" else slice(2, 4)
        files = tuple(self._steps.scratch / file_name(kind, part, side) for side in SIDES)
        here, hashes = self._hashes_of(part) if self._case_copies and not raw else (self._slice(part), None)
        starts = [0, 0]
        position = here.start
        for number, chunk in enumerate(self._parts[part], start=part * PART_CHUNKS):
            origin, pairs = chunk[:2]
            sizes = chunk[columns]
            own = slice(position, position + pairs)
            copies = np.zeros(pairs, np.uint8)
            if hashes is not None:
                local = slice(own.start - here.start, own.stop - here.start)
                copies = self._choose_copies(hash_pairs(hashes[0][local], hashes[1][local]))
            yield Piece(
                files=(files[0], files[1]),
                starts=(starts[0], starts[1]),
                sizes=(sizes[0], sizes[1]),
                langs=self._langs,
                taken=taken[own],
                copies=copies,
                weight=self._weights[origin],
                origin=origin,
                number=number,
            )
            starts = [start + size for start, size in zip(starts, sizes, strict=True)]
            position += pairs

    def _choose_copies(self, hashes: Hashes) -> npt.NDArray[np.uint8]:
        shares = rank_pairs(hashes, self._seed, _CASE) / 2**64  # from 0 to 1
        kinds = np.zeros(len(hashes), np.uint8)
        kinds[shares < self._case_copies] = TITLE
        kinds[shares < self._case_copies / 2] = UPPER
        return kinds

    def _find_repeats(self) -> Mask:
        """Mark each pair whose like came before; those that are out count too."""
        hashes = np.empty(len(self._out), np.uint64)
        for here, sides in self._hashes():
            hashes[here] = hash_pairs(*sides)
        return find_repeats(hashes)

    def _drop(self, reason: str, mask: Mask) -> None:
        mask = mask & ~self._out
        self._out |= mask
        position = 0
        for part in self._parts:
            for origin, pairs, *_ in part:
                self.dropped[origin][reason] += int(mask[position : position + pairs].sum())
                position += pairs

    def _hashes(self) -> Iterator[tuple[slice, tuple[Hashes, Hashes]]]:
        """Give the hashes of both sides, part by part, with their place."""
        for part in range(self.n_parts):
            yield self._hashes_of(part)

    def _hashes_of(self, part: int) -> tuple[slice, tuple[Hashes, Hashes]]:
        here = self._slice(part)
        hashes = load_array(self._steps.scratch / hashes_name(part), (2, here.stop - here.start))
        return here, (hashes[0], hashes[1])

    def _slice(self, part: int) -> slice:
        start = sum(chunk[1] for earlier in self._parts[:part] for chunk in earlier)
        return slice(start, start + sum(chunk[1] for chunk in self._parts[part]))

    def _take_up(self, part: dict[str, Any]) -> None:
        self._parts.append(part["chunks"])
        for total, dropped in zip(self.dropped, part["dropped"], strict=True):
            total.update(dropped)
        n_pairs = sum(chunk[1] for chunk in part["chunks"])
        self._out = np.concatenate([self._out, np.zeros(n_pairs, np.bool_)])


@dataclass(frozen=True)
class _Cleaned:
    """A chunk without what the rules claimed."""

    number: int
    origin: int
    pairs: Chunk
    hashes: tuple[Hashes, Hashes]
    dropped: dict[str, int]


def _clean(number: int, origin: int, src: list[str], tgt: list[str], rules: TextRules) -> _Cleaned:
    claims, *hashes = rules.claim(src, tgt)
    keep = ~np.logical_or.reduce(list(claims.values()))
    dropped = {reason: int(claim.sum()) for reason, claim in claims.items() if claim.any()}
    return _Cleaned(number, origin, pick((src, tgt), keep), (hashes[0][keep], hashes[1][keep]), dropped)


def _process(
    chunks: Iterator[_Cleaned],
    processing: tuple[Callable[..., Callable[[Chunk], Chunk]], tuple[object, ...]] | None,
    workers: int,
) -> Iterator[tuple[_Cleaned, Chunk]]:
    if processing is None:
        for chunk in chunks:
            yield chunk, chunk.pairs
    else:
        make, arguments = processing
        yield from map_in_order(_OnPairs(make), arguments, chunks, workers)


@dataclass(frozen=True)
class _OnPairs:
    """Makes work on a chunk's text into work on a _Cleaned."""

    make: Callable[..., Callable[[Chunk], Chunk]]

    def __call__(self, *arguments: object) -> Callable[[_Cleaned], Chunk]:
        work = self.make(*arguments)
        return lambda chunk: work(chunk.pairs)
