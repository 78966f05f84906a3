"""Between lines of text and token ids: the vocabularies of both sides, and processing by Moses."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.moses import MosesText
from aiayn_cli.text.normalise import normalise
from aiayn_cli.text.vocab import CACHED_WORDS, Vocab

VOCAB, TGT_VOCAB = "vocab.model", "vocab.tgt.model"  # the second only where the sides have separate ones


class Codec:
    """Lines of the source language to ids, and ids to lines of the target language; both sides can share one Vocab."""

    def __init__(self, src: Vocab, tgt: Vocab, text: TextConfig, src_lang: str, tgt_lang: str) -> None:
        self.text, self.src_lang, self.tgt_lang = text, src_lang, tgt_lang
        self.src_size, self.tgt_size = src.size, tgt.size  # ids of each side
        self.size = max(src.size, tgt.size)  # rows of an embedding matrix for either side
        self.is_separate = src.sha256 != tgt.sha256
        self.sha256 = joint_sha256(src, tgt)
        self._src, self._tgt = src, tgt
        self._before, self._after = MosesText(text, src_lang), MosesText(text, tgt_lang)

    @classmethod
    def load(cls, folder: Path, text: TextConfig, src_lang: str, tgt_lang: str) -> "Codec":
        """Read the vocabularies of prepared data or of a checkpoint."""
        return cls(*load_vocabs(folder), text, src_lang, tgt_lang)

    def normalise(self, line: str) -> str:
        """A line in the form that the model was trained on; as it is for a model of earlier versions."""
        return normalise(line) if self.text.normalises else line

    def is_blank(self, line: str) -> bool:
        return is_blank(self.normalise(line))

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Split source lines into sub-words: the ids of each, without <s> and </s>."""
        return self._src.encode(self._before.apply(map(self.normalise, lines)))

    def encode_tgt(self, lines: Sequence[str]) -> list[list[int]]:
        return self._tgt.encode(self._after.apply(map(self.normalise, lines)))

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        known = [[i if i < self._tgt.size else UNK_ID for i in ids] for ids in sequences]
        return self._after.undo(self._tgt.decode(known))

    def tgt_written(self) -> list[bytes] | None:
        """What each target sub-word writes, as in Vocab.written(); None if some reach over blanks."""
        return self._tgt.written() if self._tgt.words_are_independent else None

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._src.pieces(ids)

    def tgt_pieces(self, ids: Sequence[int]) -> list[str]:
        return self._tgt.pieces([i if i < self._tgt.size else UNK_ID for i in ids])


def load_vocabs(folder: Path, cached_words: int = CACHED_WORDS) -> tuple[Vocab, Vocab]:
    """Read the vocabularies of both sides, perhaps the same, from prepared data or a checkpoint."""
    src = Vocab.load(folder / VOCAB, cached_words)
    return src, Vocab.load(folder / TGT_VOCAB, cached_words) if (folder / TGT_VOCAB).exists() else src


def joint_sha256(src: Vocab, tgt: Vocab) -> str:
    """One hash for the vocabularies of both sides: the file's own if they share it."""
    return src.sha256 if src is tgt else hashlib.sha256(f"{src.sha256} {tgt.sha256}".encode()).hexdigest()
