"""Between lines of text and token ids: the vocabularies of both sides, and processing by Moses."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from aiayn_cli.config import TextConfig
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.moses import MosesText
from aiayn_cli.text.normalise import StandIns, normalise
from aiayn_cli.text.vocab import CACHED_WORDS, Vocab

_LANGUAGE_TAG = re.compile(r"(?:<2[\w-]+>|>>[\w-]+<<|__[\w-]+__|(<\w[\w-]*>|\[[\w-]+\]))\s+(?=\S)")
_NO_TEXT = re.compile("[\0\n\r\ufffd]")  # what bytes that are not UTF-8 give, and what no line can hold
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
        self._src_stand_ins = StandIns(lambda character: src.knows(self._before.apply([character])[0]))
        self._tgt_stand_ins = StandIns(lambda character: tgt.knows(self._after.apply([character])[0]))

    @classmethod
    def load(cls, folder: Path, text: TextConfig, src_lang: str, tgt_lang: str) -> "Codec":
        """Read the vocabularies of prepared data or of a checkpoint."""
        return cls(*load_vocabs(folder), text, src_lang, tgt_lang)

    def normalise(self, line: str) -> str:
        """A line in the form that the model was trained on; as it is for a model of earlier versions."""
        return normalise(line) if self.text.normalises else line

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Split source lines into sub-words: the ids of each, without <s> and </s>."""
        return self._src.encode(self._before.apply(self._known(lines, self._src_stand_ins)))

    def encode_tgt(self, lines: Sequence[str]) -> list[list[int]]:
        return self._tgt.encode(self._after.apply(self._known(lines, self._tgt_stand_ins)))

    def _known(self, lines: Sequence[str], stand_ins: StandIns) -> list[str]:
        normal = map(self.normalise, lines)
        return [line.translate(stand_ins) for line in normal] if self.text.normalises else list(normal)

    def symbols(self, line: str) -> set[str]:
        """The characters that the model cannot read and that are no letters; none for models of earlier versions."""
        return self._src_stand_ins.symbols(line) if self.text.normalises else set()

    def language_tag(self, line: str) -> str:
        """A language tag that begins a source line, with its blank, if the vocabulary knows it; else "".

        "<2de>", ">>de<<" or "__de__"; "<de>" and "[de]" only if they are one sub-word.
        """
        match = _LANGUAGE_TAG.match(line)
        return match[0] if match and self._src.knows(match[0].rstrip(), most=1 if match[1] else len(match[0])) else ""

    def decode(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        known = [[i if i < self._tgt.size else UNK_ID for i in ids] for ids in sequences]
        texts = self._tgt.decode(known)
        return self._after.undo([_NO_TEXT.sub("", text) for text in texts] if self._tgt.has_bytes else texts)

    def tgt_bytes(self) -> list[int]:
        """The byte that each target sub-word writes, -1 for text; empty if none writes bytes."""
        return self._tgt.byte_values() + [-1] * (self.size - self.tgt_size) if self._tgt.has_bytes else []

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
