"""Parts of training text on the disk: clean plain text of both sides, and the hashes of its pairs.

A part has a marker once it is whole. Its text goes when its token ids are written; its hashes stay to the end. Pairs
are read back with copies of some of them in upper case and in title case, so that a model knows text that SHOUTS and
Text Like Headlines."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from aiayn_cli.prepare.drop_rules import Hashes, Mask
from aiayn_cli.prepare.pairs import Chunk
from aiayn_cli.prepare.partial_folder import Steps, damaged
from aiayn_cli.text.lines import join_records, split_records

# The first letter or digit of a word, after quotes and brackets. An apostrophe inside a word starts no new one.
_FIRST = re.compile(r"(?<!\S)([^\w\s]*)(\w)")
_DOTTED = ("tr", "az")  # the capital of i keeps its dot
_STRIPPED = ("el", "grc")  # capitals have no accent


def make_copy(record: str, lang: str, kind: int) -> str:
    """Write a record in upper case (UPPER) or with a capital at the start of each word (TITLE)."""
    code = lang.lower().replace("-", "_").split("_")[0]
    if kind == TITLE:
        return _FIRST.sub(lambda match: match[1] + _capital(match[2], code), record)
    return _upper(record, code)


def _upper(text: str, code: str) -> str:
    if code in _DOTTED:
        text = text.replace("i", "İ")
    elif code in _STRIPPED:
        decomposed = unicodedata.normalize("NFD", text)
        text = unicodedata.normalize("NFC", decomposed.replace("\u0301", ""))
    return text.upper()


def _capital(letter: str, code: str) -> str:
    if code in _DOTTED and letter == "i":
        return "İ"
    return letter.title()


UPPER, TITLE = 1, 2  # what kind of copy
SIDES = ("src", "tgt")


class TrainingPairs(NamedTuple):
    """Text to learn from: pairs as they were, then copies in upper case, then copies in title case."""

    src: list[str]
    tgt: list[str]
    n_upper: int
    n_title: int


@dataclass(frozen=True)
class Piece:
    """A chunk of training text on the disk, and what of it is taken.

    Attributes:
        files: source sides and target sides.
        starts: first byte in each file.
        sizes: bytes in each file.
        langs: codes of both languages.
        taken: [pairs].
        copies: the kind of copy to make of each, or 0: [pairs].
        weight: how often each pair is in the training data.
        origin: number of the origin it comes from.
        number: of the chunk, from 0 on.
    """

    files: tuple[Path, Path]
    starts: tuple[int, int]
    sizes: tuple[int, int]
    langs: tuple[str, str]
    taken: Mask
    copies: npt.NDArray[np.uint8]
    weight: int
    origin: int
    number: int

    def load(self) -> TrainingPairs:
        """Read it, without weights.

        Raises:
            DataError: the text is not what was written.
        """
        src, tgt = pick(self._read(), self.taken)
        kinds = self.copies[self.taken]
        counts = []
        for kind in (UPPER, TITLE):
            copies = [self._copy(src[i], tgt[i], kind) for i in np.flatnonzero(kinds == kind)]
            made = [copy for copy in copies if copy is not None]
            src += [copy[0] for copy in made]
            tgt += [copy[1] for copy in made]
            counts.append(len(made))
        return TrainingPairs(src, tgt, *counts)

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
                raise damaged(path, f"it has {len(records):,} records where {len(self.taken):,} were written")
            sides.append(records)
        return sides[0], sides[1]

    def _copy(self, src: str, tgt: str, kind: int) -> tuple[str, str] | None:
        copy = make_copy(src, self.langs[0], kind), make_copy(tgt, self.langs[1], kind)
        return None if copy == (src, tgt) else copy


class PartWriter:
    """Writes one part.

    Args:
        steps: where to, and what marks it as done.
        number: of the part.
        n_origins: origins of the pairs.
        keep_raw: write down pairs as they were before any processing, too.
    """

    def __init__(self, steps: Steps, number: int, n_origins: int, keep_raw: bool) -> None:
        self.number = number
        self._steps = steps
        kinds = ("text", "raw") if keep_raw else ("text",)
        self._paths = [steps.scratch / file_name(kind, number, side) for kind in kinds for side in SIDES]
        self._files = [path.open("wb") for path in self._paths]
        self._chunks: list[list[int]] = []
        self._hashes: list[tuple[Hashes, Hashes]] = []
        self._dropped: list[Counter[str]] = [Counter() for _ in range(n_origins)]

    def add(
        self, origin: int, learnt: Chunk, raw: Chunk, hashes: tuple[Hashes, Hashes], dropped: Mapping[str, int]
    ) -> None:
        """Append a chunk.

        Args:
            origin: number of the origin that it comes from.
            learnt: pairs to learn from.
            raw: the same before any processing.
            hashes: of the raw pairs' sides.
            dropped: pairs that are not among them, by rule.
        """
        sides = [*learnt, *raw][: len(self._files)]
        sizes = []
        for file, records in zip(self._files, sides, strict=True):
            content = join_records(records)
            file.write(content)
            sizes.append(len(content))
        self._chunks.append([origin, len(learnt[0]), *sizes])
        self._hashes.append(hashes)
        self._dropped[origin].update(dropped)

    def finish(self) -> dict[str, Any]:
        """Mark the part as done, and describe it: of each chunk its origin, pairs, and bytes of each file; drops."""
        for file in self._files:
            file.close()
        path = self._steps.scratch / hashes_name(self.number)
        np.save(path, np.stack([np.concatenate(side) for side in zip(*self._hashes, strict=True)]))
        content = {"chunks": self._chunks, "dropped": self._dropped}
        return self._steps.finish(part_name(self.number), content, [*self._paths, path])


def load_array(path: Path, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Read an array that was written on the way.

    Raises:
        DataError: it is not what was written.
    """
    try:
        array: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    except (FileNotFoundError, EOFError, ValueError) as error:
        raise damaged(path, str(error)) from error
    if array.shape != shape:
        raise damaged(path, f"it has the shape {array.shape}, not {shape}")
    return array


def part_name(part: int) -> str:
    """Name the marker of a part."""
    return f"text-{part:05d}"


def file_name(kind: str, part: int, side: str) -> str:
    """Name a file of a part: its "text", or its "raw" text, of one side."""
    return f"{kind}-{part:05d}.{side}"


def hashes_name(part: int) -> str:
    """Name the file of a part's hashes: [2 sides, pairs]."""
    return f"hashes-{part:05d}.npy"


def pick(chunk: Chunk, picked: Mask) -> Chunk:
    """Give some of a chunk's pairs."""
    if picked.all():
        return chunk
    selectors = picked.tolist()
    return list(compress(chunk[0], selectors)), list(compress(chunk[1], selectors))
