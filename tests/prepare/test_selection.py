"""What is held out, repeated or scored leaves the training text; the rest keeps its order, also after a kill."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn_cli.prepare import partial_folder, selection
from aiayn_cli.prepare.drop_rules import LengthRules, ScoredText, TextRules
from aiayn_cli.prepare.formats import Chunk
from aiayn_cli.prepare.partial_folder import Steps
from aiayn_cli.prepare.selection import TrainingText
from aiayn_cli.prepare.text_shards import TITLE, UPPER, PairsWithCopies, Piece, encode_chunk, make_copy
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.recipe_keys import DataConfig, TextConfig
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import load_vocabs
from aiayn_cli.text.vocab import Vocab

RAW, PROCESSED = TextConfig(), TextConfig(normalise_punctuation=True)
NOTHING = ScoredText.of(())
Pair = tuple[str, str]

pairs_of_text = st.lists(st.tuples(*[st.sampled_from(["a", "b", "c d", "", " ", "1"])] * 2), max_size=30)


def rules(scored: ScoredText = NOTHING) -> TextRules:
    return TextRules(DataConfig(drop_identical=False, drop_wrong_script=False), "en", "de", scored)


def split_up(pairs: Sequence[Pair], size: int) -> list[Chunk]:
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return [([src for src, _ in part], [tgt for _, tgt in part]) for part in parts]


def join(pieces: Iterable[Piece]) -> list[Pair]:
    return [pair for piece in pieces for pair in zip(*piece.load()[:2], strict=True)]


def left(text: TrainingText) -> list[Pair]:
    return join(piece for shard in range(text.n_shards) for piece in text.pieces(shard))


def collected(
    folder: Path, pairs: Sequence[Pair], scored: ScoredText = NOTHING, *, chunk: int = 7, **options: Any
) -> TrainingText:
    text = TrainingText(Steps(folder, {}), ("en", "de"), **options)
    text.collect(((0, chunk) for chunk in split_up(pairs, chunk)), rules(scored), RAW)
    return text


def numbered(n: int) -> list[Pair]:
    return [(f"source {i}", f"target {i}") for i in range(n)]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "SHARD_CHUNKS", 5)
    monkeypatch.setattr(
        partial_folder, "flush_to_disk", lambda path: None
    )  # tests survive no power cut, but end sooner


@settings(max_examples=40)
@given(pairs=pairs_of_text, scored=pairs_of_text, chunk=st.integers(1, 9))
def test_each_rule_claims_its_pairs_in_turn(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], scored: list[Pair], chunk: int
) -> None:
    text = collected(tmp_path_factory.mktemp("text"), pairs, ScoredText.of(split_up(scored, 99)), chunk=chunk)
    text.drop_repeats()
    usable = [(s, t) for s, t in pairs if s.strip() and t.strip()]
    lettered = [(s, t) for s, t in usable if "1" not in (s, t)]
    scored_src, scored_tgt = {s.strip() for s, _ in scored} - {""}, {t.strip() for _, t in scored} - {""}
    unseen = [(s, t) for s, t in lettered if s not in scored_src and t not in scored_tgt]
    kept = list(dict.fromkeys(unseen))
    assert left(text) == kept
    assert len(text) == len(kept)
    assert {reason: n for reason, n in text.dropped[0].items() if n} == {
        reason: n
        for reason, n in {
            "blank": len(pairs) - len(usable),
            "no_letters": len(usable) - len(lettered),
            "overlap": len(lettered) - len(unseen),
            "repeated": len(unseen) - len(kept),
        }.items()
        if n
    }


def test_held_out_pairs_and_their_like_leave_the_training_text(tmp_path: Path) -> None:
    pairs = [*numbered(200), *numbered(50), *((f"source {i}", "said otherwise") for i in range(200))]
    text = collected(tmp_path, pairs, seed=3)
    src, tgt = text.hold_out(most=20, share=0.5)
    held_out = list(zip(src, tgt, strict=True))
    assert len(set(held_out)) == 20
    assert held_out == [pair for pair in dict.fromkeys(pairs) if pair in held_out]  # in the order of the text
    assert left(text) == [(s, t) for s, t in pairs if s not in src and t not in tgt]
    assert text.dropped[0]["overlap"] == len(pairs) - 20 - len(left(text))


def test_what_overlaps_with_held_out_pairs_can_stay(tmp_path: Path) -> None:
    pairs = [*numbered(100), *((f"source {i}", "said otherwise") for i in range(100))]
    text = collected(tmp_path, pairs)
    text.hold_out(most=20, share=0.5, drop_overlap=False)
    assert len(text) == 180
    assert not text.dropped[0]["overlap"]


@pytest.mark.parametrize(
    ("n_pairs", "most", "share", "n"), [(200, 30, 0.05, 10), (1_000, 30, 0.05, 30), (7, 30, 0.05, 1), (2, 9, 0.05, 1)]
)
def test_as_many_are_held_out_as_asked(tmp_path: Path, n_pairs: int, most: int, share: float, n: int) -> None:
    text = collected(tmp_path, numbered(n_pairs))
    assert len(text.hold_out(most, share)[0]) == n
    assert len(text) == n_pairs - n


@pytest.mark.parametrize("pairs", [[], numbered(1), numbered(1) * 9])
def test_nothing_is_held_out_of_one_pair(tmp_path: Path, pairs: list[Pair]) -> None:
    text = collected(tmp_path, pairs)
    assert text.hold_out(most=9, share=0.5) == ([], [])
    assert len(text) == len(pairs)


def test_the_seed_decides_what_is_held_out_and_the_order_does_not(tmp_path: Path) -> None:
    def held_out(pairs: list[Pair], seed: int) -> set[Pair]:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        src, tgt = collected(folder, pairs, seed=seed).hold_out(most=30, share=0.5)
        return set(zip(src, tgt, strict=True))

    first = held_out(numbered(300), 1)
    assert held_out(numbered(300)[::-1], 1) == first
    assert len(held_out(numbered(300), 2) & first) < 15


def test_a_sample_is_a_part_of_the_text_in_order(tmp_path: Path) -> None:
    pairs = numbered(2_000)
    text = collected(tmp_path, pairs, chunk=100)
    sample = join(text.sample(500))
    assert 420 < len(sample) < 580  # 500 expected, standard deviation 19
    positions = [pairs.index(pair) for pair in sample]
    assert positions == sorted(positions)
    assert join(text.sample(500)) == sample
    assert join(text.sample(2_000)) == pairs


def test_sampling_and_holding_out_are_independent(tmp_path: Path) -> None:
    text = collected(tmp_path, numbered(2_000), chunk=500)
    sample = set(join(text.sample(1_000)))
    held_out = set(zip(*text.hold_out(most=1_000, share=0.5), strict=True))
    assert 420 < len(sample & held_out) < 580


def test_copies_in_other_case_follow_the_pairs_they_are_of(tmp_path: Path) -> None:
    pairs = numbered(1_000)
    text = collected(tmp_path, pairs, chunk=250, case_copies=0.2)
    n_upper = n_title = 0
    for number, piece in enumerate(text.pieces(0)):
        loaded = piece.load()
        n_upper, n_title = n_upper + loaded.n_upper, n_title + loaded.n_title
        found = list(zip(loaded.src, loaded.tgt, strict=True))
        own, copies = found[:250], found[250:]
        assert own == pairs[250 * number : 250 * (number + 1)]
        upper, title = copies[: loaded.n_upper], copies[loaded.n_upper :]
        assert set(upper) <= {(src.upper(), tgt.upper()) for src, tgt in own}
        assert set(title) <= {(src.title(), tgt.title()) for src, tgt in own}
    assert 72 < n_upper < 128  # 100 expected, standard deviation 9
    assert 72 < n_title < 128


def test_only_pairs_that_are_in_are_copied_and_none_that_would_not_change(tmp_path: Path) -> None:
    text = collected(tmp_path, numbered(100) * 3, chunk=300, case_copies=0.5)
    with_repeats = sum(len(piece.load().src) for piece in text.pieces(0)) - 300
    text.drop_repeats()
    assert sum(len(piece.load().src) for piece in text.pieces(0)) - 100 == with_repeats // 3
    (tmp_path / "other").mkdir()
    text = collected(tmp_path / "other", [(f"语言 {i}", f"ΦΙΛΟΣ {i}") for i in range(100)], case_copies=0.9)
    assert all(sum(piece.load()[2:]) == 0 for piece in text.pieces(0))
    text.drop_repeats()


def test_each_origin_has_its_own_counts_and_weight(tmp_path: Path) -> None:
    text = TrainingText(Steps(tmp_path, {}), ("en", "de"), weights=(1, 4))
    chunks = [(0, (["a", "b", ""], ["x", "y", "z"])), (1, (["", "a", "c"], ["", "x", "y"]))]
    text.collect(chunks, rules(), RAW)
    text.drop_repeats()
    assert [dict(dropped) for dropped in text.dropped] == [{"blank": 1, "repeated": 0}, {"blank": 1, "repeated": 1}]
    assert [(piece.origin, piece.weight, piece.load().src) for piece in text.pieces(0)] == [
        (0, 1, ["a", "b"]),
        (1, 4, ["c"]),
    ]


def test_text_is_processed_but_what_is_held_out_stays_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_shouting(*_: object) -> Callable[[Chunk], Chunk]:
        return lambda chunk: ([src.upper() + "!" for src in chunk[0]], [tgt.upper() + "!" for tgt in chunk[1]])

    monkeypatch.setattr(selection, "make_processor", make_shouting)
    text = TrainingText(Steps(tmp_path, {}), ("en", "de"))
    pairs = numbered(50)
    text.collect(((0, chunk) for chunk in split_up(pairs, 6)), rules(), PROCESSED)
    src, tgt = text.hold_out(most=9, share=0.5)
    held_out = list(zip(src, tgt, strict=True))
    assert len(held_out) == 9
    assert set(held_out) <= set(pairs)
    shouted = [(s.upper() + "!", t.upper() + "!") for s, t in pairs if (s, t) not in held_out]
    assert left(text) == shouted


LETTERS = "abcdefgABCDEFG"
VOCAB_SIZE = 4 + 1 + len(LETTERS)  # special tokens, the blank, and each letter: as many tokens as characters, and one
RULES = LengthRules(max_length=30, max_ratio=1.5)


@pytest.fixture(scope="module")
def vocab_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocab")
    (folder / "vocab.model").write_bytes(train_vocab({LETTERS: 3}, VOCAB_SIZE))
    return folder


def test_the_rules_drop_whole_pairs_and_count_them_once(vocab_folder: Path) -> None:
    vocab = Vocab.load(vocab_folder / "vocab.model")
    src = ["a" * 20, "b" * 30, "c" * 2, "d" * 29, "e" * 40, ""]
    tgt = ["ab" * 5, "c" * 29, "d" * 20, "eg" * 14, "f", ""]
    encoded = encode_chunk((vocab, vocab), RULES, PairsWithCopies(src, tgt, 0, 0))
    assert (encoded.too_many_tokens, encoded.length_ratio, len(encoded.src_lengths)) == (2, 1, 3)
    assert (encoded.src_lengths.tolist(), encoded.tgt_lengths.tolist()) == ([21, 30, 0], [11, 29, 0])
    assert vocab.decode([encoded.src[:21].tolist(), encoded.src[21:].tolist()]) == ["a" * 20, "d" * 29]
    assert vocab.decode([encoded.tgt[:11].tolist(), encoded.tgt[11:].tolist()]) == ["ab" * 5, "eg" * 14]


def test_copies_that_the_rules_claim_have_no_count_and_unknown_tokens_that_are_kept_have(vocab_folder: Path) -> None:
    src = ["a", "b" * 40, "A", "B" * 40, "A" * 40, "A"]
    encoded = encode_chunk(load_vocabs(vocab_folder), RULES, PairsWithCopies(src, src, n_upper=3, n_title=1))
    assert (encoded.too_many_tokens, encoded.length_ratio) == (1, 0)
    assert (len(encoded.src_lengths), encoded.n_upper, encoded.n_title) == (3, 1, 1)
    text = PairsWithCopies(["xa", "a", "x" + "a" * 50], ["b", "yby", "z"], 0, 0)
    encoded = encode_chunk(load_vocabs(vocab_folder), RULES, text)
    assert encoded.unknown == 3
    assert UNK_ID in encoded.src


# ---- copies


@pytest.mark.parametrize(
    ("record", "lang", "copy"),
    [
        ("they're on the 1st floor", "en", "They're On The 1st Floor"),
        ("“quoted” (in brackets) ice-cream", "en", "“Quoted” (In Brackets) Ice-cream"),
        ("der große McDonald", "de", "Der Große McDonald"),
        ("izmir ırmak", "tr", "İzmir Irmak"),
        ("我们 are", "zh", "我们 Are"),
        ("", "en", ""),
    ],
)
def test_title_case_begins_each_word_with_a_capital(record: str, lang: str, copy: str) -> None:
    assert make_copy(record, lang, TITLE) == copy


@pytest.mark.parametrize(
    ("record", "lang", "copy"),
    [
        ("they're on the 1st floor", "en", "THEY'RE ON THE 1ST FLOOR"),
        ("die große Straße", "de", "DIE GROSSE STRASSE"),
        ("izmir ırmak", "tr", "İZMİR IRMAK"),
        ("izmir", "az_Latn", "İZMİR"),
        ("Καλημέρα κόσμε", "el", "ΚΑΛΗΜΕΡΑ ΚΟΣΜΕ"),
        ("我们", "zh", "我们"),
    ],
)
def test_upper_case_follows_the_language(record: str, lang: str, copy: str) -> None:
    assert make_copy(record, lang, UPPER) == copy


@given(st.text(st.characters(codec="utf-8")))
def test_a_title_case_copy_has_the_same_words(record: str) -> None:
    copy = make_copy(record, "en", TITLE)
    assert [word.casefold() for word in copy.split()] == [word.casefold() for word in record.split()]
