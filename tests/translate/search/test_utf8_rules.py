"""Sub-words that are bytes form characters, in any search and at any length."""

import random
from collections.abc import Sequence

import pytest
from table_scorer import Prefix, TableScorer

from aiayn_cli.special_tokens import N_SPECIAL_TOKENS
from aiayn_cli.translate.options import Sampling
from aiayn_cli.translate.search.beam import Hypothesis, beam_search
from aiayn_cli.translate.search.restrictions import Restrictions, Utf8Rules
from aiayn_cli.translate.search.sampling import sample

VALUES = [*[-1] * N_SPECIAL_TOKENS, *range(256), -1, -1, -1]  # three sub-words of text
LENGTHS = [1, 2, 3, 4, 5, 6, 9, 14]


def table(sentence: int, prefix: Prefix) -> list[float]:
    """Prefers bytes that begin a long character, as an untrained model can, and gives the end token little."""
    chance = random.Random(hash((sentence, prefix)))
    row = [chance.gauss(-5, 2) + (4 if value >= 0xE0 else 0) for value in VALUES]
    row[N_SPECIAL_TOKENS - 1] = -9
    return row


def check(found: Sequence[Sequence[Hypothesis]]) -> None:
    for outputs, length in zip(found, LENGTHS, strict=True):
        assert outputs
        for output in outputs:
            assert len(output.tokens) < length
            data = b"".join(bytes([VALUES[i]]) if VALUES[i] >= 0 else b"+" for i in output.tokens)
            assert all(character.isprintable() or ord(character) > 0x9F for character in data.decode("utf-8"))


@pytest.mark.parametrize("no_repeat_ngram", [0, 1, 2])
@pytest.mark.parametrize("beam_size", [1, 4, 0])
def test_bytes_are_characters(beam_size: int, no_repeat_ngram: int) -> None:
    restrictions = Restrictions([], [], no_repeat_ngram, utf8_rules=Utf8Rules(VALUES), max_lengths=LENGTHS)
    scorer = TableScorer(table, list(range(len(LENGTHS))))
    if beam_size:
        check(beam_search(scorer, LENGTHS, beam_size=beam_size, alpha=0.6, restrictions=restrictions))
    else:
        keys = [[i] for i in range(len(LENGTHS))]
        check(sample(scorer, LENGTHS, keys, Sampling(), alpha=0.6, n_samples=50, restrictions=restrictions))


def test_a_forced_beginning_in_the_middle_of_a_character_is_kept() -> None:
    first = N_SPECIAL_TOKENS + 0xE2
    restrictions = Restrictions([], [[first, first]], utf8_rules=Utf8Rules(VALUES), max_lengths=[9])
    [[output]] = beam_search(TableScorer(table, [0]), [9], beam_size=2, alpha=0.6, restrictions=restrictions)
    assert output.tokens[:2] == (first, first)
