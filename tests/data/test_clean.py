"""Each rule claims exactly the pairs that its description says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.data.clean import (
    RATIO_SLACK,
    LengthRules,
    ScoredText,
    find_blank,
    find_repeats,
    hash_pairs,
    rank_pairs,
)

pairs = st.lists(st.tuples(st.text("ab ", max_size=3), st.text("ab ", max_size=3)), max_size=40)


def int32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def test_a_pair_with_a_side_of_white_space_is_blank() -> None:
    blank = find_blank(["a", "", " ", "a", "\u3000\t", "."], ["b", "b", "b", "\xa0", " ", "."])
    assert blank.tolist() == [False, True, True, True, True, False]


@given(pairs)
def test_a_pair_is_repeated_when_it_came_before(pairs: list[tuple[str, str]]) -> None:
    hashes = hash_pairs([src for src, _ in pairs], [tgt for _, tgt in pairs])
    assert find_repeats(hashes).tolist() == [pair in pairs[:i] for i, pair in enumerate(pairs)]


def test_where_one_side_ends_and_the_other_begins_matters() -> None:
    a, b = hash_pairs(["ab", "a"], ["c", "bc"])
    assert a != b


def test_hashes_are_the_same_on_every_machine() -> None:
    # BLAKE2b with 64 bits over "a\nb" and "ä\n漢", from `b2sum -l 64` of the coreutils.
    expected = [bytes.fromhex("a76de9f2d561975f"), bytes.fromhex("6510749aab4ce376")]
    assert hash_pairs(["a", "ä"], ["b", "漢"]).tolist() == [int.from_bytes(digest, "little") for digest in expected]


def test_a_side_that_is_scored_is_overlap_whatever_the_other_side() -> None:
    scored = ScoredText([(["a man", "one"], ["ein Mann", "eins"]), ([" two "], ["zwei"])])
    src = ["a man", "A man", "two", "new", "ein Mann", "one more"]
    tgt = ["ein Mensch", "ein Mensch", "2", " eins", "a man", "noch eins"]
    assert scored.find_overlap(src, tgt).tolist() == [True, False, True, True, False, False]


def test_blank_scored_lines_claim_nothing() -> None:
    assert not ScoredText([(["", " "], ["", "x"])]).find_overlap([" "], [""]).any()


def test_too_long_counts_either_side() -> None:
    rules = LengthRules(max_length=7, max_ratio=9.0)
    assert rules.find_too_long(int32(7, 8, 1), int32(7, 1, 8)).tolist() == [False, True, True]


@pytest.mark.parametrize(("shorter", "longest"), [(0, 7), (1, 9), (5, 15), (10, 22), (100, 157)])
def test_the_ratio_leaves_room_to_short_pairs(shorter: int, longest: int) -> None:
    rules = LengthRules(max_length=999, max_ratio=1.5)
    assert longest == int(1.5 * (shorter + RATIO_SLACK))
    src, tgt = int32(shorter, longest, shorter, longest + 1), int32(longest, shorter, longest + 1, shorter)
    assert rules.find_unbalanced(src, tgt).tolist() == [False, False, True, True]


def test_ranks_depend_on_text_seed_and_purpose_alone() -> None:
    hashes = hash_pairs([str(i) for i in range(500)], ["x"] * 500)
    ranks = rank_pairs(hashes, seed=3, purpose=0)
    assert (rank_pairs(hashes[::-1], seed=3, purpose=0) == ranks[::-1]).all()
    for others in (rank_pairs(hashes, seed=4, purpose=0), rank_pairs(hashes, seed=3, purpose=1)):
        assert not (others == ranks).any()
        assert abs(np.corrcoef(np.argsort(np.argsort(others)), np.argsort(np.argsort(ranks)))[0, 1]) < 0.2


def test_ranks_are_spread_evenly() -> None:
    ranks = rank_pairs(hash_pairs([str(i) for i in range(20_000)], ["x"] * 20_000), seed=1, purpose=0)
    counts = np.histogram(ranks.astype(np.float64) / 2**64, bins=10, range=(0, 1))[0]
    assert counts.min() > 1_800  # 2,000 expected, standard deviation 42
    assert counts.max() < 2_200
