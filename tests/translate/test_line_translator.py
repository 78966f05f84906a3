import copy
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from known_words import WORDS, random_lines
from translation_models import ModelMaker, TranslatorMaker

from aiayn_cli.device import Device
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.forced_decoding import Forced, ForcedDecoder
from aiayn_cli.translate.line_translator import Cutting, LineTranslator, Translation, segments, split_points
from aiayn_cli.translate.options import SearchOptions
from aiayn_cli.translate.search.beam import Hypothesis
from aiayn_cli.translate.search.scorer import Stopped
from aiayn_cli.translate.search.sentence_search import LONGEST_SOURCE, SearchInput, SearchSetup
from aiayn_cli.translate.trust.flags import OutputChecks


@given(lines=st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=9)), max_size=9))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_has_one_output_and_blank_lines_stay_blank(translator: LineTranslator, lines: list[str]) -> None:
    found = translator.translate(lines)
    assert len(found) == len(lines)
    assert all(text == "" for line, text in zip(lines, found, strict=True) if not line.strip())


@given(lines=st.lists(st.text(st.characters(categories=["N", "P", "S"]), min_size=1, max_size=30), max_size=5))
@example(lines=["42", "17:45", "-", "...", "1", "2026", "3,14", "(1) 2 % + 3 €", "😀", "9" * 2_000])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_without_letters_stay_as_they_are(translator: LineTranslator, lines: list[str]) -> None:
    lines = [line for line in lines if not any(map(str.isalpha, line))]
    found = translator.translate_n_best(lines)
    assert [[output.text for output in outputs] for outputs in found] == [[line] for line in lines]


def test_a_prefix_is_kept_before_a_line_without_letters(translator: LineTranslator) -> None:
    [[output]] = translator.translate_n_best(["42"], prefixes=["hund"])
    assert output.text.startswith("hund")


def test_the_model_never_sees_a_blank_line(make_model: ModelMaker, make_translator: TranslatorMaker) -> None:
    model = make_model()
    seen = []
    original = model.encode

    def encode(src: torch.Tensor, src_mask: torch.Tensor | None) -> torch.Tensor:
        seen.append(len(src))
        return original(src, src_mask)

    model.encode = encode  # type: ignore[method-assign]
    translator = make_translator(model, options=SearchOptions(n_best=2))
    blanks = ["", " ", "\t \r", "\u00a0\u2003", "\u3000"]
    assert translator.translate_n_best(blanks) == [[Translation("")] * 2] * 5
    assert seen == []
    translator.translate_n_best([*blanks, "der hund", *blanks])
    assert seen == [1]


def test_a_long_line_is_cut_at_its_sentences_with_a_notice(
    translator: LineTranslator, capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = [
        " ".join(filter(str.isalpha, each.split())).capitalize() + "." for each in random_lines(90, longest=18)
    ]
    sentences = [sentence for sentence in sentences if sentence.count(" ") > 11]
    line = " ".join(sentences)
    found = translator.translate(["der hund", line])
    assert found == [translator.translate(["der hund"])[0], " ".join(translator.translate(sentences))]
    assert "line 2 has" in capsys.readouterr().err


@pytest.mark.parametrize(("trained", "limit"), [(15, 250), (600, 600), (5_000, 1_000)])
def test_no_line_is_cut_that_is_as_short_as_those_of_training(
    make_translator: TranslatorMaker, capsys: pytest.CaptureFixture[str], trained: int, limit: int
) -> None:
    translator = make_translator(cutting=Cutting(trained))
    passes: list[int] = []

    def search(sources: Sequence[SearchInput]) -> list[list[Hypothesis]]:
        passes.extend(len(source.ids) for source in sources)
        return [[Hypothesis((), -1.0, -1.0)] for _ in sources]

    translator._search.search = search  # type: ignore[method-assign]
    translator.translate([" ".join(["katze"] * count) for count in (limit, limit + 1)])
    assert max(passes) == limit
    assert len(passes) == 3
    assert f"sub-words, more than {limit}" in capsys.readouterr().err


def test_parts_of_a_long_chinese_line_are_joined_without_blanks(make_translator: TranslatorMaker, vocab: Codec) -> None:
    line = " ".join(random_lines(60, longest=18))
    two = SearchOptions(n_best=2)
    [plain] = make_translator(options=two).translate_n_best([line])
    to_chinese = copy.copy(vocab)
    to_chinese.tgt_lang = "zh_Hans"
    [chinese] = make_translator(codec=to_chinese, options=two).translate_n_best([line])
    for one, other in zip(plain, chinese, strict=True):
        assert len(one.text) > len(other.text)
        assert one.text.replace(" ", "") == other.text.replace(" ", "")


def test_many_long_lines_are_named_only_at_first(
    translator: LineTranslator, capsys: pytest.CaptureFixture[str]
) -> None:
    translator._search._search_band = lambda sources, at_once, stop: [[Hypothesis((), -1.0, -1.0)] for _ in sources]  # type: ignore[method-assign]
    translator.translate_n_best(["a " * LONGEST_SOURCE] * 9, first_line=1001)
    err = capsys.readouterr().err
    assert err.count("sub-words, more than 250") == 5
    assert "line 1,001 has" in err


def test_a_word_of_200_000_characters_is_left_as_it_is_and_what_stands_around_it_is_translated(
    make_translator: TranslatorMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    translator = make_translator(options=SearchOptions(n_best=2))
    word = "".join(random.Random(1).choices("abcdefghij", k=200_000))
    before, after = translator.translate_n_best(["der hund", "die katze läuft"])
    [found, alone] = translator.translate_n_best([f"der hund  {word} die katze läuft", word])
    expected = [f"{one.text} {word} {two.text}" for one, two in zip(before, after, strict=True)]
    assert [each.text.replace(word, "W") for each in found] == [text.replace(word, "W") for text in expected]
    assert [each.text for each in alone] == [word] * 2
    assert found[0].log_prob == pytest.approx(before[0].log_prob + after[0].log_prob, rel=1e-4)
    assert [part.word for part in found[0].parts] == ["", word, ""]
    assert math.isnan(alone[0].score)
    assert OutputChecks("de", "en").flags(word, alone[0]) == ("too_long",)
    details = ForcedDecoder(translator).details(found, with_alignment=True)
    assert [piece for piece, _ in details[0].tokens].count(f"\u2581{word}") == 1
    n_before = len(before[0].text.split())
    assert details[0].alignment[n_before] == (2, n_before)
    assert len(details[0].alignment) == len(found[0].text.split())
    err = capsys.readouterr().err
    assert "warning: line 1: a word of 200,000 characters is too long for the model and stays as it is" in err


def test_the_attention_to_a_very_long_line_is_held_in_portions(
    translator: LineTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["der hund läuft", "die katze", "", "eine maus sieht die katze"]
    found = [outputs[0] for outputs in translator.translate_n_best(lines)]
    decoder = ForcedDecoder(translator)
    expected = decoder.details(found, with_alignment=True)
    asked = []
    force = ForcedDecoder.force

    def counted(self: ForcedDecoder, pairs: Sequence[Any], *, with_attention: bool = False) -> list[Forced]:
        asked.append(len(pairs))
        return force(self, pairs, with_attention=with_attention)

    monkeypatch.setattr(ForcedDecoder, "force", counted)
    monkeypatch.setattr("aiayn_cli.translate.forced_decoding.MOST_WEIGHTS", 1)
    portions = decoder.details(found, with_alignment=True)
    assert [each.alignment for each in portions] == [each.alignment for each in expected]
    for ours, theirs in zip(portions, expected, strict=True):
        assert dict(ours.tokens) == pytest.approx(dict(theirs.tokens), abs=1e-4)
    assert asked == [1, 1, 1]
    decoder.details(found)
    assert asked == [1, 1, 1, 3]


def test_chinese_without_marks_is_no_long_word(translator: LineTranslator) -> None:
    def search(sources: Sequence[Any], at_once: int, stop: object) -> list[list[Hypothesis]]:
        longest = max(len(source.ids) for source in sources) + 1
        assert at_once * longest <= max(200, LONGEST_SOURCE + 1)
        return [[Hypothesis(tuple(source.ids), -1.0, -1.0)] for source in sources]

    translator._search._search_band = search  # type: ignore[method-assign]
    [[found]] = translator.translate_n_best(["中a国b人c" * 1_000])
    assert len(found.parts) > 1
    assert not any(part.word for part in found.parts)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_search_ends_where_nobody_wants_its_outputs_any_more(
    threads: int, make_translator: TranslatorMaker, cpu: Device
) -> None:
    class AfterThreeSteps:
        looks = 0

        def __call__(self) -> bool:
            self.looks += 1
            return self.looks > 3

    stop = AfterThreeSteps()
    translator = make_translator(device=replace(cpu, threads=threads), setup=SearchSetup(stop=stop))
    with pytest.raises(Stopped):
        translator.translate(["ab cd"] * 40)
    assert stop.looks <= 3 + threads


def test_learned_positions_are_never_overrun(
    make_model: ModelMaker, make_translator: TranslatorMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    translator = make_translator(make_model(positions="learned", max_positions=19), beam_size=2, max_extra=50)
    found = translator.translate(["der hund läuft", " ".join(random_lines(9))])
    assert all(found)
    assert "line 2 has" in capsys.readouterr().err


# ---- what one call asks for beside the recipe's settings


def test_outputs_begin_as_their_prefix_says(translator: LineTranslator, capsys: pytest.CaptureFixture[str]) -> None:
    lines = random_lines(6)
    prefixes = ["die maus", "", "springt und läuft und", "katze \u4e2d", " ", "x"]
    free = translator.translate_n_best(lines)
    found = translator.translate_n_best(lines, 11, prefixes)
    for line, (prefix, [before], [after]) in enumerate(zip(prefixes, free, found, strict=True)):
        assert after.text.startswith(prefix.replace("\u4e2d", "").strip())
        if not prefix.strip():
            assert after == before, line
    assert "line 14: characters of its prefix that the vocabulary lacks are dropped" in capsys.readouterr().err


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_a_prefix_too_long_for_one_pass_is_cut_and_named(
    make_model: ModelMaker, make_translator: TranslatorMaker, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, positions: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("aiayn_cli.translate.search.sentence_search.LONGEST_PASS", 25)
    limit = 18 if positions == "learned" else 24
    translator = make_translator(make_model(positions=positions, max_positions=19))
    [[found]] = translator.translate_n_best(["hund"], 7, ["maus " * 3_000])
    assert found.text.startswith("maus maus")
    assert len(found.parts[0].tgt) <= limit
    assert f"line 7: its prefix is cut to {limit} sub-words" in capsys.readouterr().err


def test_lines_that_are_translated_again_are_not_named_again(
    translator: LineTranslator, capsys: pytest.CaptureFixture[str]
) -> None:
    translator.translate_n_best([" ".join(random_lines(60, longest=18))], None, ["\u4e2d"])
    assert capsys.readouterr().err == ""


def test_the_prefix_of_a_split_line_begins_its_first_part_only(translator: LineTranslator) -> None:
    line = " ".join(random_lines(60, longest=18))
    [[found]] = translator.translate_n_best([line], 1, ["maus maus maus"])
    assert len(found.parts) > 1
    assert found.text.startswith("maus maus maus")
    assert found.parts[1:] == translator.translate_n_best([line])[0][0].parts[1:]


def test_a_variant_searches_otherwise_and_leaves_the_first_as_it_was(translator: LineTranslator) -> None:
    lines = random_lines(5)
    before = translator.translate_n_best(lines)
    variant = translator.variant(options=SearchOptions(max_length=2), longest_source=4)
    assert all(
        len(part.tgt) <= 2 and len(part.src) <= 4 for [each] in variant.translate_n_best(lines) for part in each.parts
    )
    assert translator.translate_n_best(lines) == before


@given(
    pieces=st.lists(st.text(st.sampled_from('▁a.,!?"”。、…'), min_size=1, max_size=3), max_size=60),
    limit=st.integers(1, 25),
)
def test_parts_join_to_the_whole_and_none_is_empty_or_too_long(pieces: list[str], limit: int) -> None:
    ends = split_points(pieces, limit)
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert all(1 <= size <= limit for size in sizes)
    assert sum(sizes) == len(pieces)


def test_a_sentence_that_is_too_long_is_cut_after_a_clause_else_between_words_else_anywhere() -> None:
    clauses = ["▁a"] * 14 + [","] + ["▁a"] * 9
    assert split_points(clauses, limit=20) == [15, 24]
    assert split_points(["▁a", "b", "c"] * 5, limit=7) == [6, 12, 15]
    assert split_points(["▁a", *"b" * 12], limit=5) == [5, 10, 13]


@pytest.mark.parametrize("piece", ["a", "▁a", ".", ","])
def test_a_hundred_thousand_pieces_take_no_long_time(piece: str) -> None:
    started = time.perf_counter()
    assert len(split_points([piece] * 100_000, limit=250)) >= 400
    assert time.perf_counter() - started < 5


@given(
    words=st.lists(st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=40), max_size=9),
    blank=st.sampled_from([" ", "  ", "\u3000"]),
)
def test_segments_hold_every_word_in_order_and_only_long_ones_stand_alone(words: list[str], blank: str) -> None:
    text = blank.join(words)
    found = list(segments(text, 20, len))
    assert " ".join(part for part, _ in found).split() == text.split()
    long = [word for word in text.split() if len(word) > 20]
    named = [part for part, is_word in found if is_word]
    dense = [word for word in long if 4 * sum(c.isalpha() and c > "\u0e00" for c in word) > len(word)]
    assert [word for word in long if word not in dense] == [word for word in named if word not in dense]


def test_a_text_without_long_words_is_one_segment_as_it_is() -> None:
    assert list(segments(" a  b ", 3, len)) == [(" a  b ", False)]
    assert list(segments("aaaa", 3, len)) == [("aaaa", True)]
    assert list(segments("b aaaa aaaa  ", 3, len)) == [("b", False), ("aaaa", True), ("aaaa", True)]
    assert list(segments("中国人中国人", 3, len)) == [("中国人中国人", False)]
    assert list(segments("🙂" * 5, 3, len)) == [("🙂" * 5, True)]
