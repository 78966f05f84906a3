"""The vocabulary: one SentencePiece model file for both languages, the only source of ids.

Text is encoded as it is, without Unicode normalisation or merging of blanks, so decode(encode(x)) == x except for
unknown characters. SentencePiece reserves four characters, which are replaced: a tab and U+001F by a blank, U+2581 (its
own sign for a blank) by "_", and U+2585 by U+2586.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece

from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID

BLANK_MARK = "\u2581"  # SentencePiece's own sign for a blank
UNKNOWN = "\u2047"  # what it writes for <unk>, as many as there are in a row
CACHED_WORDS = 1_000_000  # words whose ids are remembered; about 200 MB at most

# All ids one record after the other, [tokens] of the vocabulary's dtype; the length of each record, [records].
FlatIds = tuple[npt.NDArray[np.integer[Any]], npt.NDArray[np.int32]]

_INVISIBLE_IDS = frozenset((PAD_ID, BOS_ID, EOS_ID))


def readable(record: str) -> str:
    """Replace the four characters that no vocabulary can have (see the top of this file)."""
    # One call for each is faster than str.translate, which looks at every character in Python's way.
    return record.replace("\t", " ").replace("\x1f", " ").replace(BLANK_MARK, "_").replace("\u2585", "\u2586")


class Vocab:
    """A vocabulary from a serialised SentencePiece model, whose name is for messages; see `Vocab.load`."""

    def __init__(self, model: bytes, name: str, cached_words: int = CACHED_WORDS) -> None:
        try:
            if not model:
                raise RuntimeError("an empty file")  # SentencePiece takes it for no argument at all
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise DataError(f"{name} is not a SentencePiece model", "name a vocab.model of `prepare`") from error
        processor = self._processor
        found = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if found != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise DataError(
                f"{name}: <pad>, <unk>, <s>, </s> have the ids {', '.join(map(str, found))}, but must have 0, 1, 2, 3",
                "train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3, or let `prepare` make one",
            )
        self.size: int = processor.get_piece_size()  # sub-words with special tokens; ids are 0 .. size - 1
        self.sha256 = hashlib.sha256(model).hexdigest()
        # The smallest of uint16 and int32 that holds every id.
        self.dtype: np.dtype[np.integer[Any]] = np.dtype("<u2" if self.size <= 1 << 16 else "<i4")
        # Whether the ids of a text are those of its words, in order: true of every vocabulary that `prepare` trains.
        self.words_are_independent = _words_are_independent(processor)
        self._word_ids = _WordIds(processor, self.dtype, cached_words)

    @classmethod
    def load(cls, path: Path | str, cached_words: int = CACHED_WORDS) -> "Vocab":
        try:
            model = Path(path).read_bytes()
        except OSError as error:
            raise DataError(f"vocabulary {path} cannot be read: {error.strerror}", "check the path") from error
        return cls(model, str(path), cached_words)

    def encode(self, records: Sequence[str]) -> list[list[int]]:
        """Split each record into sub-words: their ids, without <s> and </s>."""
        ids: list[list[int]] = self._processor.encode([readable(record) for record in records])
        return ids

    def encode_flat(self, records: Sequence[str]) -> FlatIds:
        """Split many records into the same ids as `encode`, several times faster."""
        if not self.words_are_independent:
            lists = self.encode(records)
            lengths = np.fromiter(map(len, lists), np.int32, len(lists))
            return np.fromiter((i for ids in lists for i in ids), self.dtype, int(lengths.sum())), lengths
        ids_of = self._word_ids.__getitem__
        encoded = [b"".join(map(ids_of, readable(record).split(" "))) if record else b"" for record in records]
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded)) // np.int32(self.dtype.itemsize)
        return np.frombuffer(b"".join(encoded), self.dtype), lengths

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Join the sub-words of each sequence into text, without padding, <s> and </s>; <unk> becomes U+2047."""
        texts: list[str] = self._processor.decode([[i for i in ids if i not in _INVISIBLE_IDS] for ids in sequences])
        return texts

    def written(self) -> list[bytes]:
        """What each id adds to a text, in UTF-8: a blank for U+2581, nothing for special tokens."""
        processor = self._processor
        written = []
        for i, piece in enumerate(processor.id_to_piece(list(range(self.size)))):
            if processor.is_control(i) or processor.is_unknown(i) or processor.is_unused(i):
                written.append(b"")
            elif processor.is_byte(i):
                written.append(bytes([int(piece[3:5], 16)]))  # <0xE2>
            else:
                written.append(piece.replace(BLANK_MARK, " ").encode())
        return written

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each sub-word as SentencePiece writes it, with U+2581 for a blank before it."""
        pieces: list[str] = self._processor.id_to_piece(list(ids))
        return pieces


class _WordIds(dict[str, bytes]):  # of each word looked up, as the bytes of an array; a word holds no blank
    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, dtype: np.dtype[np.integer[Any]], most: int
    ) -> None:
        super().__init__()
        self._processor, self._dtype, self._most = processor, dtype, most

    def __missing__(self, word: str) -> bytes:
        if len(self) >= self._most:
            self.clear()
        ids = self._processor.encode(word) if word else [self._processor.piece_to_id(BLANK_MARK)]
        encoded = self[word] = np.array(ids, self._dtype).tobytes()
        return encoded


def _words_are_independent(processor: sentencepiece.SentencePieceProcessor) -> bool:
    """Whether no sub-word reaches over a blank."""
    pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
    if any(BLANK_MARK in piece[1:] or " " in piece for piece in pieces):
        return False
    a, blank = processor.encode("a"), processor.piece_to_id(BLANK_MARK)
    return blank != UNK_ID and [a + a, [blank, *a], [*a, blank], [*a, blank, *a]] == [
        processor.encode(text) for text in ("a a", " a", "a ", "a  a")
    ]
