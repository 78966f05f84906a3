"""A vocabulary gives back what it was given, knows nothing but its file, and never takes text for a special token."""

import hashlib
import io
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.errors import DataError
from aiayn_cli.prepare.vocab_training import WordCounter, choose_left_out, train_vocab
from aiayn_cli.recipe_keys import TextConfig, VocabType
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import Vocab, readable

ALPHABET = "abcdefghijklmnopqrstuvwxyzäöüßABCDEÄ0123456789.,;!?'\"<>/()-漢字😀\u0301\u3000\xa0"
WORDS = [
    "".join(random.Random(i).choices(ALPHABET, weights=[9] * 26 + [1] * (len(ALPHABET) - 26), k=1 + i % 9))
    for i in range(700)
]
LINES = [" ".join(WORDS[i : i + 7]) for i in range(600)]
COUNTS = {word: 1 + i % 13 for i, word in enumerate(WORDS)} | dict.fromkeys(ALPHABET, 1)
MODEL = train_vocab(COUNTS, 400)
VOCAB = Vocab(MODEL, "vocab.model")
BYTES = Vocab(train_vocab(COUNTS, 600, byte_fallback=True), "bytes.model")
UNIGRAM = Vocab(train_vocab(COUNTS, 400, "unigram"), "unigram.model")

known_texts = st.text(st.sampled_from(ALPHABET + "   "))
any_texts = st.text(
    st.sampled_from(ALPHABET + "   \t▁\u2047") | st.characters(codec="utf-8", exclude_characters="\0\n")
)


def train_elsewhere(text: Iterable[str] = LINES, **options: Any) -> bytes:
    """Train with SentencePiece itself, as another program would."""
    model = io.BytesIO()
    defaults: dict[str, Any] = {
        "vocab_size": 300,
        "model_type": "bpe",
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": 2,
        "eos_id": 3,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, minloglevel=2, **(defaults | options)
    )
    return model.getvalue()


@given(known_texts, st.sampled_from([VOCAB, BYTES, UNIGRAM]))
def test_decoding_gives_back_the_text(text: str, vocab: Vocab) -> None:
    assert vocab.decode(vocab.encode([text])) == [text]


@given(any_texts)
def test_decoding_gives_back_any_text_but_for_characters_that_it_does_not_have(text: str) -> None:
    has = set(ALPHABET) | {" "}
    (decoded,) = VOCAB.decode(VOCAB.encode([text]))
    # A run of unknown characters is one <unk>.
    expected = "".join(c if c in has else "\u2047" for c in readable(text))
    while "\u2047\u2047" in expected:
        expected = expected.replace("\u2047\u2047", "\u2047")
    assert decoded == expected


def assert_fast_way_gives_the_same_ids(vocab: Vocab, texts: list[str]) -> None:
    expected = vocab.encode(texts)
    flat, lengths = vocab.encode_flat(texts)
    assert lengths.tolist() == [len(ids) for ids in expected]
    assert flat.tolist() == [i for ids in expected for i in ids]
    assert (flat.dtype, lengths.dtype) == (vocab.dtype, np.dtype(np.int32))


@given(st.lists(any_texts), st.sampled_from([VOCAB, BYTES, UNIGRAM]))
def test_the_fast_way_gives_the_same_ids(texts: list[str], vocab: Vocab) -> None:
    assert_fast_way_gives_the_same_ids(vocab, texts)
    assert vocab.dtype == np.dtype(np.uint16)


@pytest.mark.parametrize(
    "options",
    [
        {"normalization_rule_name": "nmt_nfkc"},
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "split_by_whitespace": False},
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "add_dummy_prefix": False},
        {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "treat_whitespace_as_suffix": True},
        {"model_type": "unigram"},
        {"user_defined_symbols": ["<tag>", "a b"]},
    ],
    ids=str,
)
def test_the_fast_way_gives_the_same_ids_with_a_vocabulary_made_elsewhere(options: dict[str, Any]) -> None:
    vocab = Vocab(train_elsewhere(**options), "theirs.model")
    texts = [" ".join(random.Random(i).choices([*WORDS, "", "a", "<tag>", "b"], k=i % 11)) for i in range(300)]
    assert_fast_way_gives_the_same_ids(vocab, texts)


def test_the_fast_way_forgets_words_when_there_are_too_many() -> None:
    vocab = Vocab(MODEL, "vocab.model", cached_words=10)
    assert_fast_way_gives_the_same_ids(vocab, WORDS)
    assert len(vocab._word_ids) <= 10


@given(any_texts, st.sampled_from(["<s>", "</s>", "<pad>", "<unk>"]), any_texts)
def test_text_that_looks_like_a_special_token_is_text(before: str, token: str, after: str) -> None:
    (ids,) = VOCAB.encode([before + token + after])
    assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)
    assert token in VOCAB.decode([ids])[0]


def test_special_ids_leave_nothing_in_text_and_are_named_among_pieces() -> None:
    (ids,) = VOCAB.encode(["abc def"])
    assert VOCAB.decode([[BOS_ID, *ids, EOS_ID, PAD_ID, PAD_ID], [EOS_ID], []]) == ["abc def", "", ""]
    assert VOCAB.decode([[*ids, UNK_ID]]) == ["abc def\u2047"]
    (ids,) = VOCAB.encode(["abc de"])
    assert "".join(VOCAB.pieces(ids)) == "▁abc▁de"
    assert VOCAB.pieces([PAD_ID, UNK_ID, BOS_ID, EOS_ID]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_every_character_can_be_learnt_but_for_four_that_are_read_as_others() -> None:
    characters = [
        chr(code) for code in (*range(1, 0x3000), *range(0xF000, 0x10000), *range(0x1F000, 0x1F800), 0x10FFFF)
    ]
    counter = WordCounter()
    counter.add(characters)
    vocab = Vocab(train_vocab(counter.counts, 2 * len(counter.counts) + 10), "vocab.model")
    ids = vocab.encode(characters)
    assert not [character for character, own in zip(characters, ids, strict=True) if UNK_ID in own]
    changed = {c: decoded for c, decoded in zip(characters, vocab.decode(ids), strict=True) if decoded != c}
    assert changed == {"\t": " ", "\x1f": " ", "\u2581": "_", "\u2585": "\u2586"}


def test_a_vocabulary_is_known_by_the_hash_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "vocab.model"
    path.write_bytes(MODEL)
    loaded = Vocab.load(path)
    assert (loaded.size, loaded.sha256) == (400, hashlib.sha256(MODEL).hexdigest())
    assert loaded.encode(WORDS) == VOCAB.encode(WORDS)


def test_a_missing_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"vocabulary .*none\.model cannot be read: No such file"):
        Vocab.load(tmp_path / "none.model")
    (tmp_path / "empty.model").touch()
    with pytest.raises(DataError, match=r"empty\.model is not a SentencePiece model"):
        Vocab.load(tmp_path / "empty.model")
    (tmp_path / "text.model").write_text("hello")
    with pytest.raises(DataError, match=r"text\.model is not a SentencePiece model"):
        Vocab.load(tmp_path / "text.model")
    with pytest.raises(DataError, match="have the ids -1, 0, 1, 2, but must have 0, 1, 2, 3"):
        Vocab(train_elsewhere(pad_id=-1, unk_id=0, bos_id=1, eos_id=2), "theirs.model")


def test_training_gives_the_same_bytes_for_any_order_of_the_words() -> None:
    shuffled = list(COUNTS.items())
    random.Random(5).shuffle(shuffled)
    assert train_vocab(dict(shuffled), 400) == MODEL


def test_training_learns_what_sentencepiece_learns_from_running_text() -> None:
    words = random.Random(3).choices(WORDS, k=9_000)
    counter = WordCounter()
    counter.add(words)
    text = [" ".join(words[i : i + 10]) for i in range(0, len(words), 10)]
    exact = {"character_coverage": 1.0, "normalization_rule_name": "identity"}
    theirs = Vocab(train_elsewhere(text, vocab_size=350, **exact), "theirs.model")
    ours = Vocab(train_vocab(counter.counts, 350), "ours.model")
    assert ours.encode(text) != [[]] * len(text)
    assert set(ours.pieces(range(350))) == set(theirs.pieces(range(350)))


def test_a_size_that_the_text_cannot_fill_is_clamped() -> None:
    vocab = Vocab(train_vocab({"abc": 5, "abd": 3}, 1_000), "vocab.model")
    assert 4 + 5 <= vocab.size < 20
    assert vocab.decode(vocab.encode(["abc dab"])) == ["abc dab"]


def test_characters_are_left_out_only_where_they_would_take_more_than_half() -> None:
    counts = {"a" * 5_000: 1, "b" * 4_000: 1, "cdefgh": 1}  # each of c to h is one of 9,006 characters
    assert choose_left_out(counts, 4 + 1 + 16) == (set(), 0.0)
    # With room for 15, half is 7: of the eight characters the rarest may go as far as 0.9995 of the text is kept.
    left_out, share = choose_left_out(counts, 4 + 1 + 15)
    assert left_out == {"h"}
    assert math.isclose(share, 1 / 9_006)
    left_out, share = choose_left_out(counts, 4 + 1 + 4)
    assert left_out == set("efgh")  # 0.9995 would leave out two of them, but there is no room for more
    assert math.isclose(share, 4 / 9_006)
    assert choose_left_out(counts, 4 + 1 + 16 + 256, byte_fallback=True) == (set(), 0.0)


@pytest.mark.parametrize("vocab_type", ["bpe", "unigram"])
def test_a_vocabulary_smaller_than_the_alphabet_knows_the_most_frequent_characters(vocab_type: VocabType) -> None:
    counts = {"aab": 900, "ab": 800, "bac": 30, "cab": 20, "d": 1, "eda": 1, "漢字漢字": 1}
    vocab = Vocab(train_vocab(counts, 4 + 1 + 3, vocab_type), "vocab.model")
    assert vocab.size == 8
    assert vocab.decode(vocab.encode(["abc cab", "d漢"])) == ["abc cab", "\u2047"]


@given(any_texts)
def test_with_byte_fallback_any_text_comes_back(text: str) -> None:
    assert BYTES.decode(BYTES.encode([text])) == [readable(text)]
    assert UNK_ID not in BYTES.encode([text])[0]


@pytest.mark.parametrize("counts", [{}, {"x" * 5_000: 2}])
def test_no_words_is_no_vocabulary(counts: dict[str, int]) -> None:
    with pytest.raises(DataError, match="no words to learn a vocabulary from"):
        train_vocab(counts, 100)


def test_sentencepiece_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    train_vocab({"abc": 5, "▅": 1, "x" * 5_000: 1}, 1_000)
    assert capfd.readouterr() == ("", "")


@given(st.lists(st.lists(any_texts)))
def test_words_are_counted_over_all_records(parts: list[list[str]]) -> None:
    counter = WordCounter()
    for part in parts:
        counter.add(part)
    words = [word for part in parts for record in part for word in readable(record).split(" ") if word]
    assert counter.counts == {word: words.count(word) for word in words}


def many_words(n: int) -> list[str]:
    """Different words, of which the first one in ten is frequent."""
    return [word for i in range(n) for word in [f"w{i:05d}"] * (50 if i % 10 == 0 else 1)]


def test_rare_words_are_thinned_out_when_there_are_too_many() -> None:
    counter = WordCounter(most_words=2_000)
    for start in range(0, 29_000, 500):
        counter.add(many_words(5_000)[start : start + 500])
        assert len(counter.counts) <= 2_000
    words = counter.words()
    assert len([word for word in words if len(word) > 1]) <= 1_000
    assert counter.forgotten > 3_000
    frequent = sum(n for word, n in words.items() if word.endswith("0"))
    assert 23_500 < frequent < 26_500  # 25,000
    rare = sum(n for word, n in words.items() if not word.endswith("0"))
    assert 3_300 < rare < 5_700  # 4,500, as if all were there; each stands for several
    assert set("w0123456789") <= set().union(*words)


def test_thinning_out_is_the_same_in_every_run() -> None:
    found = []
    for _ in range(2):
        counter = WordCounter(most_words=300)
        for start in range(0, 5_800, 700):
            counter.add(many_words(1_000)[start : start + 700])
        found.append(counter.words())
    assert found[0] == found[1]


def test_long_words_are_bounded_by_their_characters() -> None:
    counter = WordCounter(most_words=1_000, most_characters=20_000)
    for i in range(600):
        counter.add([chr(0x4E00 + i) + "漢" * 99])
    words = counter.words()
    assert sum(map(len, words)) <= 10_000 + 600
    assert len(set().union(*words)) == 600 + 1 - (chr(0x4E00) == "漢")  # no character is lost
    few = WordCounter()
    few.add(["a b", "a"])
    assert few.words() == {"a": 2, "b": 1}


def test_a_weight_counts_words_several_times() -> None:
    counter = WordCounter()
    counter.add(["a b", "a"], 3)
    counter.add(["b  c"])
    assert counter.counts == {"a": 6, "b": 4, "c": 1}


def test_ids_above_65535_take_four_bytes() -> None:
    least = (1 << 16) - 5
    counts = {chr(0x20000 + i): 1 for i in range(least)}  # 4 special tokens, a blank, and these
    assert Vocab(train_vocab(counts, 1 << 16), "vocab.model").dtype == np.dtype(np.uint16)
    counts |= {"a": 1}
    vocab = Vocab(train_vocab(counts, (1 << 16) + 1), "vocab.model")
    assert (vocab.size, vocab.dtype) == ((1 << 16) + 1, np.dtype(np.int32))
    assert_fast_way_gives_the_same_ids(vocab, [chr(0x20000 + least // 2) + "a", "", chr(0x20000)])


@given(st.one_of(known_texts, any_texts), st.sampled_from([VOCAB, BYTES, UNIGRAM]))
def test_what_sub_words_write_is_what_they_are_decoded_to(text: str, vocab: Vocab) -> None:
    [ids] = vocab.encode([text])
    written = vocab.written()
    assert b"".join(written[i] for i in (PAD_ID, UNK_ID, BOS_ID, EOS_ID)) == b""
    if UNK_ID not in ids:
        assert b"".join(written[i] for i in ids).removeprefix(b" ").decode() == vocab.decode([ids])[0]


def test_a_codec_says_what_its_target_side_writes_unless_that_reaches_over_blanks() -> None:
    over_blanks = Vocab(train_elsewhere(split_by_whitespace=False), "other.model")
    assert Codec(over_blanks, VOCAB, TextConfig(), "en", "de").tgt_written() == VOCAB.written()
    assert Codec(VOCAB, over_blanks, TextConfig(), "en", "de").tgt_written() is None
