"""Each rule claims exactly the pairs that its description says."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.prepare import drop_rules
from aiayn_cli.prepare.drop_rules import (
    RATIO_SLACK,
    REASONS,
    LengthRules,
    Profiler,
    ScoredText,
    TextRules,
    find_repeats,
    hash_pairs,
    hash_records,
)
from aiayn_cli.recipe_keys import DataConfig

Pair = tuple[str, str]

pairs = st.lists(st.tuples(st.text("ab ", max_size=3), st.text("ab ", max_size=3)), max_size=40)
NOTHING = ScoredText.of(())


def int32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


def hashes_of(pairs: Sequence[Pair]) -> drop_rules.Hashes:
    return hash_pairs(hash_records([src for src, _ in pairs]), hash_records([tgt for _, tgt in pairs]))


def claimed(pairs: Sequence[Pair], scored: ScoredText = NOTHING, **settings: Any) -> list[str]:
    """Which rule claims each pair; "" for none."""
    rules = TextRules(DataConfig(**settings), "en", "ru", scored)
    claims, *_ = rules.claim([src for src, _ in pairs], [tgt for _, tgt in pairs])
    assert set(claims) <= set(REASONS)
    owners = [[reason for reason, mask in claims.items() if mask[i]] for i in range(len(pairs))]
    assert all(len(owner) <= 1 for owner in owners)
    return ["".join(owner) for owner in owners]


EXAMPLES: dict[str, tuple[list[Pair], list[Pair]]] = {  # claimed, not claimed
    "blank": ([("", "да"), ("yes", " \u3000\t"), ("", "")], [(".a", "б.")]),
    "too_many_words": ([("a " * 8, "б"), ("a", " б" * 8)], [("a " * 7, "б " * 7)]),
    "identical": ([("URL", " URL ")], [("URL", "url я")]),
    "no_letters": ([("12 %", "а 12 %"), ("a", "–")], [("1 a", "2 б")]),
    "wrong_script": (
        [("this is", "the same"), ("это оно", "это то")],
        [("a я", "я a"), ("Windows", "Windows и я, да-да-да")],
    ),
    "overlap": ([("a man", "новый"), ("new", " один ")], [("A man", "новый"), ("один", "a man я")]),
}
SCORED = ScoredText.of([(["a man", "", "two"], ["человек", "", "два"]), ([" one "], ["один"])])


@pytest.mark.parametrize("reason", EXAMPLES)
def test_each_rule_claims_what_it_says_and_can_be_turned_off(reason: str) -> None:
    bad, good = EXAMPLES[reason]
    settings = {"max_words": 7}
    assert claimed(bad, SCORED, **settings) == [reason] * len(bad)
    assert reason not in claimed(good, SCORED, **settings)
    off = {"max_words": 0} if reason == "too_many_words" else {f"drop_{reason}": False}
    if reason != "blank":  # a blank side can teach nothing, so that this rule always holds
        assert reason not in claimed(bad, SCORED, **(settings | off))


def test_a_pair_goes_to_the_first_rule_that_claims_it() -> None:
    pairs = [("", ""), ("1", "1"), ("12 3", "4 5"), ("да", "да нет"), ("yes", "да")]
    assert claimed(pairs) == ["blank", "identical", "no_letters", "wrong_script", ""]


def test_the_script_of_a_language_that_is_not_known_is_free() -> None:
    claims, *_ = TextRules(DataConfig(), "xx", "ru", NOTHING).claim(["это", "это"], ["да", "yes"])
    assert claims["wrong_script"].tolist() == [False, True]


def test_blank_scored_lines_claim_nothing() -> None:
    rules = TextRules(DataConfig(), "en", "ru", ScoredText.of([(["", " "], ["", "x"])]))
    claims, *_ = rules.claim([" "], [""])
    assert not claims["overlap"].any()
    assert claims["blank"].all()


@given(pairs, st.booleans())
def test_a_pair_is_repeated_when_it_came_before(pairs: list[Pair], small_sorts: bool) -> None:
    stripped = [(src.strip(), tgt.strip()) for src, tgt in pairs]
    with pytest.MonkeyPatch.context() as patch:
        if small_sorts:
            patch.setattr(drop_rules, "_PAIRS_SORTED", 3)
        repeats = find_repeats(hashes_of(pairs))
    assert repeats.tolist() == [pair in stripped[:i] for i, pair in enumerate(stripped)]


def test_hashes_are_the_same_on_every_machine_and_know_where_a_side_ends() -> None:
    # BLAKE2b with 64 bits over "a" and "漢", from `b2sum -l 64` of the coreutils; splitmix64's finaliser in Python.
    expected = [int.from_bytes(bytes.fromhex(digest), "little") for digest in ("40f89e395b66422f", "3fe329c23364b3ad")]
    assert hash_records(["a", " 漢\t"]).tolist() == expected

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        return x ^ (x >> 31)

    assert hashes_of([("a", "漢")]).tolist() == [mix((mix(expected[0]) + expected[1]) % 2**64)]
    a, b, c = hashes_of([("ab", "c"), ("a", "bc"), ("c", "ab")])
    assert len({a, b, c}) == 3


def test_too_long_counts_either_side() -> None:
    rules = LengthRules(max_length=7, max_ratio=9.0)
    assert rules.claim(int32(7, 8, 1), int32(7, 1, 8))[0].tolist() == [False, True, True]


@pytest.mark.parametrize(("shorter", "longest"), [(0, 7), (1, 9), (5, 15), (10, 22), (100, 157)])
def test_the_ratio_leaves_room_to_short_pairs(shorter: int, longest: int) -> None:
    assert longest == int(1.5 * (shorter + RATIO_SLACK))
    src, tgt = int32(shorter, longest, shorter, longest + 1), int32(longest, shorter, longest + 1, shorter)
    too_long, unbalanced = LengthRules(max_length=999, max_ratio=1.5).claim(src, tgt)
    assert not too_long.any()
    assert unbalanced.tolist() == [False, False, True, True]


# ---- letters, scripts and words

GERMAN, JAPANESE, UNKNOWN = Profiler("de"), Profiler("ja"), Profiler("xx")

RECORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20), max_size=9)


@given(RECORDS)
def test_words_and_letters_are_those_that_python_finds(records: list[str]) -> None:
    profile = GERMAN.profile(records)
    assert profile.words.tolist() == [len(record.split()) for record in records]
    assert profile.letters.tolist() == [sum(map(str.isalpha, record)) for record in records]
    assert (profile.own + profile.foreign <= profile.letters).all()


@given(RECORDS)
def test_a_letter_named_latin_is_latin(records: list[str]) -> None:
    latin = [sum(c.isalpha() and unicodedata.name(c, "").startswith("LATIN ") for c in r) for r in records]
    assert (GERMAN.profile(records).own >= np.array(latin, np.int64)).all()
    assert not UNKNOWN.profile(records).own.any()
    assert not UNKNOWN.profile(records).foreign.any()


@pytest.mark.parametrize(
    ("profiler", "record", "wrong"),
    [
        (GERMAN, "Ein Satz über Größe.", False),
        (GERMAN, "Das Wort мир ist Russisch.", False),
        (GERMAN, "Это не по-немецки", True),
        (GERMAN, "これはドイツ語ではありません。", True),
        (GERMAN, "12.5 % – !?", False),
        (GERMAN, "", False),
        (JAPANESE, "これは日本語です。", False),
        (JAPANESE, "iPhoneを買った", False),  # 6 letters of Latin, 5 of Japanese
        (JAPANESE, "This is not Japanese 語", True),
        (UNKNOWN, "Это не по-немецки", False),
    ],
)
def test_the_script_of_most_letters_decides(profiler: Profiler, record: str, wrong: bool) -> None:
    assert profiler.find_wrong_script(profiler.profile([record])).tolist() == [wrong]
