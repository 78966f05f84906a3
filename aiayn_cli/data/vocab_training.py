"""Learns a joint sub-word vocabulary (byte-pair encoding, paper, Section 5.1) from the words of a text.

The pairs that byte-pair encoding merges never reach over a blank, so that words with their counts say as much as the
text. They take far less memory, and the result depends neither on the order of the text nor on threads.
"""

import io
from collections import Counter
from collections.abc import Iterable, Mapping

import sentencepiece

from aiayn_cli.data.vocab import readable
from aiayn_cli.errors import DataError
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS, PAD_ID, UNK_ID

COUNTED_WORDS = 5_000_000  # different words held at once; about 600 MB
LONGEST_WORD_BYTES = 4_192  # SentencePiece's own limit; what is longer is hardly a word


class WordCounter:
    """Counts the words of a text in bounded memory.

    Attributes:
        counts: occurrences by word.
        forgotten: words with one occurrence that were given up to keep memory bounded.
    """

    def __init__(self, limit: int = COUNTED_WORDS) -> None:
        self.counts: Counter[str] = Counter()
        self.forgotten = 0
        self._limit = limit

    def add(self, records: Iterable[str]) -> None:
        """Count the words of some records."""
        self.counts.update(readable(" ".join(records)).split(" "))
        del self.counts[""]
        if len(self.counts) > self._limit:
            before = len(self.counts)
            self.counts = Counter({word: n for word, n in self.counts.items() if n > 1})
            self.forgotten += before - len(self.counts)


def train_vocab(counts: Mapping[str, int], size: int) -> bytes:
    """Learn a vocabulary; the same counts give the same bytes.

    Args:
        counts: occurrences by word, of both languages together.
        size: sub-words wanted, special tokens included. Where the text does not have that many, the result has fewer.
    Returns:
        A serialised SentencePiece model.
    Raises:
        DataError: there are no words, or `size` is below the number of different characters.
    """
    words = {word: n for word, n in counts.items() if len(word.encode()) <= LONGEST_WORD_BYTES}
    if not words:
        raise DataError("there is no word to learn a vocabulary from", "check the training text")
    needed = len(set().union(*words)) + 1 + N_SPECIAL_TOKENS  # 1 for the blank
    if size < needed:
        raise DataError(
            f"a vocabulary of {size:,} sub-words cannot hold the {needed:,} different characters of the text",
            f"take --vocab-size {needed:,} or more".replace(",", ""),
        )
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{n}" for word, n in sorted(words.items())),
        input_format="tsv",
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        hard_vocab_limit=False,  # fewer where the text has fewer
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        pad_piece="<pad>",
        unk_surface="\u2047",
        num_threads=1,  # written into the file, which must not depend on the machine; more threads gain nothing here
        minloglevel=2,  # errors only: SentencePiece would tell its whole story on stderr
    )
    return model.getvalue()
