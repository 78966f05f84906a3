"""BPE-dropout (Provilkov et al. 2020): words split at random, so that a model learns what sub-words are made of.

SentencePiece can do this too, but differently in each process, whatever the seed. Here the seed, the word and a number
decide alone, so that a corpus comes out the same on any machine with any number of processes.
"""

import heapq
import random
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from aiayn_cli.errors import DataError
from aiayn_cli.text.vocab import BLANK_MARK, FlatIds, Vocab, readable

VARIANTS = 64  # ways to split a word that are drawn from; each is remembered once it was used


def merge(word: str, ids: Mapping[str, int], dropout: float, rng: random.Random) -> list[str]:
    """Join a word's characters into sub-words, the most frequent pair first, and leave out some of the merges.

    Args:
        word: with a sign for the blank before it.
        ids: id of each sub-word; a lower one was learnt earlier, so it is merged earlier.
        dropout: probability that a merge is left out; 0 gives byte-pair encoding's usual result.
        rng: decides which.
    Returns:
        The sub-words, some perhaps not in the vocabulary: characters that it does not know.
    """
    symbols = list(word)
    before, after = list(range(-1, len(symbols) - 1)), list(range(1, len(symbols) + 1))
    agenda: list[tuple[int, int, str]] = []  # id and place of each pair that may be joined, and what it would become

    def propose(left: int) -> None:
        if left >= 0 and after[left] < len(symbols):
            joined = symbols[left] + symbols[after[left]]
            if joined in ids:
                heapq.heappush(agenda, (ids[joined], left, joined))

    for place in range(len(symbols) - 1):
        propose(place)
    while agenda:
        _, left, joined = heapq.heappop(agenda)
        right = after[left]
        # One of the two may have been joined with another one since, which leaves "" in its place.
        if right >= len(symbols) or not symbols[left] or symbols[left] + symbols[right] != joined:
            continue
        if dropout and rng.random() < dropout:
            continue
        symbols[left], symbols[right] = joined, ""
        after[left] = after[right]
        if after[left] < len(symbols):
            before[after[left]] = left
        propose(before[left])
        propose(left)
    return [symbol for symbol in symbols if symbol]


class RandomSplitter:
    """Splits text into the sub-words of a vocabulary, in a new way each time.

    Args:
        vocab: of byte-pair encoding.
        dropout: probability that a merge is left out.
        seed: of all randomness.
        cached_words: splits that are remembered at most.
    Raises:
        DataError: the vocabulary is of another kind.
    """

    def __init__(self, vocab: Vocab, dropout: float, seed: int, cached_words: int) -> None:
        ids = vocab.sub_words()
        rng = random.Random()
        if not (vocab.is_bpe and vocab.words_are_independent) or any(
            merge(word, ids, 0.0, rng) != [word] for word in ids
        ):
            raise DataError(f"{vocab.name} is not of byte-pair encoding", "leave out --bpe-dropout with it")
        self._vocab = vocab
        self._seed = seed
        self._splits = _Splits(vocab, ids, dropout, seed, cached_words)

    def encode_flat(self, records: Sequence[str], draw: tuple[int, ...]) -> FlatIds:
        """Split records as `Vocab.encode_flat` does, but at random.

        Args:
            records: text.
            draw: numbers; others split the same text in another way.
        """
        words = [readable(record).split(" ") if record else [] for record in records]
        rng = np.random.default_rng((self._seed, *draw))
        variants = iter(rng.integers(VARIANTS, size=sum(map(len, words))).tolist())
        split = self._splits.__getitem__
        # zip takes from the shorter first, so that no variant is lost between two records.
        return self._vocab.flatten([b"".join(map(split, zip(record, variants, strict=False))) for record in words])


class _Splits(dict[tuple[str, int], bytes]):
    """The ids of each word and variant that was looked up, as an array's bytes."""

    def __init__(self, vocab: Vocab, ids: Mapping[str, int], dropout: float, seed: int, most: int) -> None:
        super().__init__()
        self._vocab = vocab
        self._ids = ids
        self._dropout = dropout
        self._seed = seed
        self._most = most

    def __missing__(self, key: tuple[str, int]) -> bytes:
        if len(self) >= self._most:
            self.clear()
        encoded = self[key] = np.array(self._split(*key), self._vocab.dtype).tobytes()
        return encoded

    def _split(self, word: str, variant: int) -> list[int]:
        if not word:
            return [self._ids[BLANK_MARK]]
        rng = random.Random(zlib.crc32(f"{self._seed} {variant} {word}".encode()))
        parts = merge(BLANK_MARK + word, self._ids, self._dropout, rng)
        if all(part in self._ids for part in parts):
            return [self._ids[part] for part in parts]
        return self._vocab.encode([word])[0]  # with unknown characters, whose way is SentencePiece's own
