"""What stands between lines of text and token ids: the vocabularies of both sides, and what is done to text before."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from aiayn_cli.config import TextConfig
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.moses import MosesText
from aiayn_cli.text.vocab import CACHED_WORDS, Vocab

VOCAB, TGT_VOCAB = "vocab.model", "vocab.tgt.model"  # the second only where the sides have separate ones


class Codec:
    """Lines of the source language to ids, and ids to lines of the target language.

    Args:
        src: vocabulary of the source side.
        tgt: vocabulary of the target side, the same where both sides share one.
        text: what is done to text before it is split into sub-words, and undone after.
        src_lang: code of the source language.
        tgt_lang: code of the target language.

    Attributes:
        size: rows of an embedding matrix for either side.
        src_size, tgt_size: ids that each side knows.
        is_separate: whether each side has a vocabulary of its own.
        sha256: names the vocabulary, or both.
        text, tgt_lang: as given.
    """

    def __init__(self, src: Vocab, tgt: Vocab, text: TextConfig, src_lang: str, tgt_lang: str) -> None:
        self.src_size, self.tgt_size = src.size, tgt.size
        self.size = max(src.size, tgt.size)
        self.is_separate = src.sha256 != tgt.sha256
        self.sha256 = joint_sha256(src, tgt)
        self._src, self._tgt = src, tgt
        self.text, self.tgt_lang = text, tgt_lang
        self._before, self._after = MosesText(text, src_lang), MosesText(text, tgt_lang)

    @classmethod
    def load(cls, folder: Path, text: TextConfig, src_lang: str, tgt_lang: str) -> "Codec":
        """Read the vocabularies of prepared data or of a checkpoint.

        Raises:
            DataError: a file is missing or no vocabulary, or the text needs a package that is not installed.
        """
        return cls(*load_vocabs(folder), text, src_lang, tgt_lang)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Split lines of the source language into sub-words: the ids of each, without <s> and </s>."""
        return self._src.encode(self._before.apply(lines))

    def encode_tgt(self, lines: Sequence[str]) -> list[list[int]]:
        """Split lines of the target language into sub-words, likewise."""
        return self._tgt.encode(self._after.apply(lines))

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Join the sub-words of each sequence into a line of the target language."""
        known = [[i if i < self._tgt.size else UNK_ID for i in ids] for ids in sequences]
        return self._after.undo(self._tgt.decode(known))

    def tgt_written(self) -> list[bytes] | None:
        """What each sub-word of the target side writes, as in Vocab.written(); None where some reach over blanks."""
        return self._tgt.written() if self._tgt.words_are_independent else None

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Show each sub-word of the source side as SentencePiece writes it."""
        return self._src.pieces(ids)

    def tgt_pieces(self, ids: Sequence[int]) -> list[str]:
        """Show each sub-word of the target side likewise."""
        return self._tgt.pieces([i if i < self._tgt.size else UNK_ID for i in ids])


def load_vocabs(folder: Path, cached_words: int = CACHED_WORDS) -> tuple[Vocab, Vocab]:
    """Read the vocabularies of the source and target side, which may be one and the same.

    Args:
        folder: prepared data, or a checkpoint.
        cached_words: words whose ids are remembered at most.
    Raises:
        DataError: a file is missing, or no vocabulary.
    """
    src = Vocab.load(folder / VOCAB, cached_words)
    return src, Vocab.load(folder / TGT_VOCAB, cached_words) if (folder / TGT_VOCAB).exists() else src


def joint_sha256(src: Vocab, tgt: Vocab) -> str:
    """Name the vocabularies of both sides by one hash: the file's own where there is only one."""
    return src.sha256 if src is tgt else hashlib.sha256(f"{src.sha256} {tgt.sha256}".encode()).hexdigest()
