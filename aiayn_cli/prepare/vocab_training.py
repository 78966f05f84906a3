"""Learns a joint sub-word vocabulary from the words of a text: byte-pair encoding (paper, Section 5.1) or a unigram
language model (Kudo 2018).

No sub-word reaches over a blank, so words with their counts say as much as the text. They take far less memory, and the
result depends neither on the order of the text nor on threads.
"""

import io
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import sentencepiece

from aiayn_cli import logs
from aiayn_cli.errors import DataError
from aiayn_cli.recipe_keys import DataConfig, VocabType
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS, PAD_ID, UNK_ID
from aiayn_cli.text.vocab import Vocab, readable

COUNTED_WORDS = 1_000_000  # different words held at once; about 200 MB
COUNTED_CHARACTERS = 16_000_000  # in these words; text without blanks has few but long ones
LONGEST_WORD_BYTES = 4_192  # SentencePiece's own limit; anything longer is hardly a word
COVERAGE = 0.9995  # of the text's characters, if there are too many different ones for the vocabulary
BYTES = 256  # sub-words that byte fallback takes

_MOST_LEFT_OUT = 0.01  # share of the text's characters without a sub-word; a vocabulary that lacks more is refused
_LOOK_AFTER = 50_000  # new words between two looks at how many characters they hold


class WordCounter:
    """Counts the words of a text in bounded memory.

    If there are too many different words, half of the rarest are dropped, chosen by a hash, and the others count
    double, so that what rare words have in common keeps its share.
    """

    def __init__(self, most_words: int = COUNTED_WORDS, most_characters: int = COUNTED_CHARACTERS) -> None:
        self.counts: Counter[str] = Counter()
        self.forgotten = 0  # words that were dropped
        self._most_words, self._most_characters = most_words, most_characters
        self._look_at = min(_LOOK_AFTER, most_words)
        self._rounds = 0
        self._characters: set[str] = set()  # of words that were dropped

    def add(self, records: Iterable[str], times: int = 1) -> None:
        words = readable(" ".join(records)).split(" ")
        self.counts.update(words if times == 1 else {word: times * n for word, n in Counter(words).items()})
        del self.counts[""]
        if len(self.counts) > self._look_at:
            if not self._fits(1.0):
                self._thin_out(0.5)
            self._look_at = max(len(self.counts), min(len(self.counts) + _LOOK_AFTER, self._most_words))

    def words(self) -> dict[str, int]:
        """The words to learn from, at most half of those that are held at once; no character is missing."""
        self._thin_out(0.5)
        return dict.fromkeys(sorted(self._characters), 1) | self.counts

    def _fits(self, share: float) -> bool:
        characters = sum(map(len, self.counts))
        return len(self.counts) <= share * self._most_words and characters <= share * self._most_characters

    def _thin_out(self, share: float) -> None:
        rare = 1  # occurrences, at most
        while not self._fits(share):
            bit = 1 << self._rounds % 32  # a fresh one in each round
            self._rounds += 1
            gone = [word for word, n in self.counts.items() if n <= rare and zlib.crc32(word.encode()) & bit]
            self._characters.update(*gone)
            for word in gone:
                del self.counts[word]
            for word, n in self.counts.items():
                if n <= rare:
                    self.counts[word] = 2 * n
            self.forgotten += len(gone)
            rare *= 2


def learn_vocab(path: Path, side: str, config: DataConfig, words: WordCounter) -> int:
    """Learn the vocabulary of a side ("source", "target", or "" for both); return how many characters it lacks.

    Raises DataError if it has no room for the characters that most of the text consists of.
    """
    counts = words.words()
    logs.detail(f"learning sub-words from {len(counts):,} different words, without {words.forgotten:,} rare ones")
    mixed, fallback, wanted = config.trees and side != "source", config.byte_fallback, config.vocab_size
    text = f"the {side} text" if side else "the text"
    left_out, share = choose_left_out(counts, wanted, byte_fallback=fallback)
    if share > _MOST_LEFT_OUT and not fallback:
        least = N_SPECIAL_TOKENS + 1 + len(set().union(*counts))
        problem = f"{wanted:,} sub-words are too few for {text}: {100 * share:.0f} % of its characters would be unknown"
        raise DataError(problem, f"take --vocab-size {least} or more")
    path.write_bytes(train_vocab(counts, wanted, config.vocab_type, byte_fallback=fallback, mixed_scripts=mixed))
    size = Vocab.load(path).size
    if left_out:
        rare = logs.counted(len(left_out), "rare character")
        fate = "written as bytes" if fallback else "<unk> (--set data.byte_fallback=true keeps them)"
        logs.notice(f"{rare}, {100 * share:.2g} % of {text}, without a sub-word: {fate}")
    if size < wanted:
        logs.notice(f"{text} has only {size:,} sub-words, so the vocabulary has that many, not {wanted:,}")
    return len(left_out)


def train_vocab(
    counts: Mapping[str, int],
    size: int,
    vocab_type: VocabType = "bpe",
    *,
    byte_fallback: bool = False,
    mixed_scripts: bool = False,
) -> bytes:
    """Learn a vocabulary from the occurrences of words, as a serialised SentencePiece model, the same in every run.

    It has fewer than `size` entries, special tokens included, if the text has fewer sub-words. `byte_fallback` adds one
    for each byte; `mixed_scripts` lets letters join signs, so that a bracket of a tree, such as `(NP`, becomes one.
    """
    words = {word: n for word, n in counts.items() if len(word.encode()) <= LONGEST_WORD_BYTES}
    if not words:
        raise DataError("the training text has no words to learn a vocabulary from", "check the training text")
    left_out, _ = choose_left_out(words, size, byte_fallback=byte_fallback)
    if left_out:  # keep the start of each word
        pattern = re.compile("[" + "".join(map(re.escape, sorted(left_out))) + "]")
        starts = Counter[str]()
        for word, n in words.items():
            starts[pattern.split(word, 1)[0]] += n
        words = {word: n for word, n in starts.items() if word}
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{n}" for word, n in sorted(words.items())),
        input_format="tsv",
        model_writer=model,
        model_type=vocab_type,
        vocab_size=size,
        hard_vocab_limit=False,  # the text may have fewer sub-words
        byte_fallback=byte_fallback,
        split_by_unicode_script=not mixed_scripts,
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
        minloglevel=2,  # errors only
    )
    return model.getvalue()


def choose_left_out(counts: Mapping[str, int], size: int, *, byte_fallback: bool = False) -> tuple[set[str], float]:
    """Choose the characters that get no sub-word; return them and their share of all characters of the text.

    If all would take more than half of the vocabulary, the rarest are left out as COVERAGE allows and `size` demands.
    """
    room = max(size - N_SPECIAL_TOKENS - 1 - BYTES * byte_fallback, 0)  # 1 for the blank
    codes = np.frombuffer("".join(counts).encode("utf-32-le"), np.uint32)
    lengths = np.fromiter(map(len, counts), np.int64, len(counts))
    by_code = np.bincount(codes, np.repeat(np.fromiter(counts.values(), np.int64, len(counts)), lengths))
    order = np.argsort(-by_code, kind="stable")[: np.count_nonzero(by_code)]  # the most frequent first
    if len(order) <= room // 2:
        return set(), 0.0
    covered = np.concatenate([[0.0], np.cumsum(by_code[order]) / by_code.sum()])
    enough = int(np.searchsorted(covered, COVERAGE))
    kept = min(max(enough, room // 2), room, len(order))
    return {chr(code) for code in order[kept:]}, float(1 - covered[kept])
