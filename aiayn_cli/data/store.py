"""Token ids of many sentence pairs on disk: flat arrays with offsets, memory-mapped, in shards.

SPLIT-00000.src.npy holds the ids of all source sides one after the other, without <s> and </s>;
SPLIT-00000.src.offsets.npy where each begins, and at the end their sum (int64, pairs + 1). The same for tgt.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from aiayn_cli.errors import DataError

Side = Literal["src", "tgt"]
Tokens = npt.NDArray[np.integer[Any]]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
SIDES: tuple[Side, Side] = ("src", "tgt")
_LENGTHS_AT_ONCE = 1 << 17  # pairs, 1 MB of offsets a side
_IDS_AT_ONCE = 1 << 18  # half a megabyte, which stays in a processor's cache between two looks
_AGAIN = "remove the folder, and run `aiayn prepare` again"
_HEADER_BYTES = 128  # of a one-dimensional .npy file, whatever its length


class TokenStore:
    """Reads the pairs of one split ("train", "valid" or "test"), memory-mapped; DataError names a damaged shard."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder = folder
        self.split = split
        numbers = [int(path.name.removeprefix(f"{split}-")[:5]) for path in folder.glob(f"{split}-{'[0-9]' * 5}.*.npy")]
        self._shards = [_Shard.open(folder, split, number) for number in range(max(numbers, default=0) + 1)]
        self._first_pairs = np.cumsum([0, *(shard.n_pairs for shard in self._shards)])  # [shards + 1]

    def __len__(self) -> int:
        return int(self._first_pairs[-1])

    def n_tokens(self, side: Side) -> int:
        """Tokens of all pairs, without </s>."""
        return sum(len(shard.tokens[side]) for shard in self._shards)

    @cached_property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and of the longest target side, without </s>; 0 where there are no pairs."""
        both = [(int(src.max()), int(tgt.max())) for src, tgt in self.length_chunks()]
        return max((src for src, _ in both), default=0), max((tgt for _, tgt in both), default=0)

    def length_chunks(self) -> Iterator[tuple[Int32s, Int32s]]:
        """Tokens of both sides of all pairs in order, without </s>, a bounded number at a time: [n] each."""
        for shard in self._shards:
            for first in range(0, shard.n_pairs, _LENGTHS_AT_ONCE):
                # One more offset than pairs: where the last one ends.
                offsets = (shard.offsets[side][first : first + _LENGTHS_AT_ONCE + 1] for side in SIDES)
                src, tgt = (np.diff(some).astype(np.int32) for some in offsets)
                yield src, tgt

    def lengths(self, indices: npt.ArrayLike, side: Side) -> Int32s:
        """Tokens of one side of some pairs, without </s>, from the offsets on disk: [n]."""
        return self._find(indices, side)[2].astype(np.int32)

    def check_ids(self, vocab_size: int) -> None:
        """Raise DataError if an id is not in the vocabulary. This reads all files, at the speed of memory."""
        for number, shard in enumerate(self._shards):
            for side in SIDES:
                for first in range(0, len(shard.tokens[side]), _IDS_AT_ONCE):
                    ids = shard.tokens[side][first : first + _IDS_AT_ONCE]
                    if ids.min() >= 0 and ids.max() < vocab_size:
                        continue
                    place = first + int(np.flatnonzero((ids < 0) | (ids >= vocab_size))[0])
                    pair = int(np.searchsorted(shard.offsets[side], place, side="right")) - 1
                    why = f"pair {pair:,} holds the id {shard.tokens[side][place]:,}, but the vocabulary has "
                    raise _damaged(self.folder / _file_name(self.split, number, side), f"{why}{vocab_size:,} sub-words")

    def gather(self, indices: npt.ArrayLike, side: Side) -> tuple[Tokens, Int32s]:
        """Read one side of pairs in any order: their ids one after the other [tokens], and their lengths [n]."""
        numbers, starts, lengths = self._find(indices, side)
        used = np.unique(numbers)
        # Position of each token in its shard: its pair's start, and how far it is from the pair's first token.
        ends = np.cumsum(lengths)
        positions = np.arange(ends[-1] if ends.size else 0) + np.repeat(starts - (ends - lengths), lengths)
        if len(used) == 1:
            return self._shards[used[0]].tokens[side][positions], lengths.astype(np.int32)
        flat = np.empty(len(positions), self._shards[0].tokens[side].dtype)
        shard_of_token = np.repeat(numbers, lengths)
        for number in used:
            here = shard_of_token == number
            flat[here] = self._shards[number].tokens[side][positions[here]]
        return flat, lengths.astype(np.int32)

    def _find(self, indices: npt.ArrayLike, side: Side) -> tuple[Int64s, Int64s, Int64s]:
        """Shard of each of some pairs, where one side of it begins there, and how many tokens it has: [n] each."""
        wanted = np.asarray(indices, np.int64)
        if wanted.size and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise IndexError(f"pairs {wanted.min()} to {wanted.max()} of {len(self)}")
        if len(self._shards) == 1:
            offsets = self._shards[0].offsets[side]
            starts = offsets[wanted]
            return np.zeros_like(wanted), starts, offsets[wanted + 1] - starts
        numbers = np.searchsorted(self._first_pairs, wanted, side="right") - 1
        starts, lengths = np.empty_like(wanted), np.empty_like(wanted)
        for number in np.unique(numbers):
            here = numbers == number
            local = wanted[here] - self._first_pairs[number]
            offsets = self._shards[number].offsets[side]
            starts[here] = offsets[local]
            lengths[here] = offsets[local + 1] - starts[here]
        return numbers, starts, lengths


@dataclass(frozen=True)
class _Shard:
    """Some pairs, memory-mapped."""

    tokens: dict[Side, Tokens]
    offsets: dict[Side, npt.NDArray[np.int64]]
    n_pairs: int

    @classmethod
    def open(cls, folder: Path, split: str, number: int) -> "_Shard":
        tokens: dict[Side, Tokens] = {}
        offsets: dict[Side, npt.NDArray[np.int64]] = {}
        for side in SIDES:
            tokens[side] = _map(folder / _file_name(split, number, side))
            path = folder / _file_name(split, number, side, ".offsets")
            found = offsets[side] = _map(path)
            if found.dtype != np.int64:
                raise _damaged(path, f"its offsets are {found.dtype}, not int64")
            if len(found) == 0 or found[0] != 0 or found[-1] != len(tokens[side]):
                raise _damaged(path, f"its offsets do not end at {len(tokens[side]):,} tokens")
            if len(back := np.flatnonzero(found[1:] < found[:-1])):
                begin, end = found[back[0] : back[0] + 2]
                raise _damaged(path, f"pair {back[0]:,} begins at token {begin:,} and ends at {end:,}")
        n_src, n_tgt = (len(offsets[side]) - 1 for side in SIDES)
        if n_src != n_tgt:
            raise _damaged(path, f"{n_src:,} source sides, but {n_tgt:,} target sides")
        return cls(tokens, offsets, n_src)


def _map(path: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing", _AGAIN) from error
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, str(error)) from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise _damaged(path, f"{array.ndim} dimensions of {array.dtype}, not one of whole numbers")
    return array.view(np.ndarray)  # slices of a memmap object are several times slower


def _damaged(path: Path, why: str) -> DataError:
    return DataError(f"{path} is damaged: {why}", _AGAIN)


def _file_name(split: str, shard: int, side: Side, what: str = "") -> str:
    return f"{split}-{shard:05d}.{side}{what}.npy"


class TokenStoreWriter:
    """Writes a shard of one split; memory holds the lengths of its pairs, but not their ids (of Vocab.dtype)."""

    def __init__(self, folder: Path, split: str, dtype: np.dtype[np.integer[Any]], shard: int = 0) -> None:
        self.n_pairs = 0
        self.n_tokens: dict[Side, int] = {"src": 0, "tgt": 0}
        self.paths = [folder / _file_name(split, shard, side, what) for side in SIDES for what in ("", ".offsets")]
        self._dtype = dtype
        self._files: dict[Side, BinaryIO] = {}
        self._lengths: dict[Side, list[Int32s]] = {"src": [], "tgt": []}
        for side, path in zip(SIDES, self.paths[::2], strict=True):
            self._files[side] = path.open("wb", 1 << 20)
            self._files[side].write(bytes(_HEADER_BYTES))

    def add(self, src: Tokens, src_lengths: Int32s, tgt: Tokens, tgt_lengths: Int32s) -> None:
        """Append pairs: the ids of all sides one after the other [tokens], and how many each side has [pairs]."""
        if len(src_lengths) != len(tgt_lengths):
            raise ValueError(f"{len(src_lengths)} source sides, but {len(tgt_lengths)} target sides")
        for side, tokens, lengths in zip(SIDES, (src, tgt), (src_lengths, tgt_lengths), strict=True):
            self._files[side].write(tokens.astype(self._dtype, copy=False).tobytes())
            self._lengths[side].append(lengths.astype(np.int32))
            self.n_tokens[side] += len(tokens)
        self.n_pairs += len(src_lengths)

    def close(self) -> dict[str, int]:
        """Write the offsets and the headers, which hold the numbers of tokens; return the manifest's entry."""
        for side, path in zip(SIDES, self.paths[1::2], strict=True):
            lengths = np.concatenate([np.zeros(1, np.int32), *self._lengths[side]])
            np.save(path, np.cumsum(lengths, dtype=np.int64).astype("<i8"))
            with self._files[side] as file:
                file.seek(0)
                header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.n_tokens[side],)}
                np.lib.format.write_array_header_1_0(file, header)
                if file.tell() != _HEADER_BYTES:
                    raise RuntimeError(f"numpy wrote a header of {file.tell()} bytes, not {_HEADER_BYTES}")
        return {"pairs_kept": self.n_pairs, **{f"{side}_tokens": n for side, n in self.n_tokens.items()}}
