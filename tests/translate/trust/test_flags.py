import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.recipe_keys import MOST_HYPOTHESES, DecodingConfig, TextConfig
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.translate.formats import report_record
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.line_translator import ModelPass, Translation
from aiayn_cli.translate.options import Sampling, SearchOptions
from aiayn_cli.translate.session import TranslateResult
from aiayn_cli.translate.trust.flags import (
    FLAGS,
    OutputChecks,
    confidence,
    confidence_threshold,
    is_looping,
    lost_addresses,
    lost_numbers,
)
from aiayn_cli.translate.trust.retry import Judge, Judged, OnSuspect


def translation(
    text: str, src: tuple[int, ...] = (5, 6, 7), tgt: tuple[int, ...] = (8, 9), is_cut: bool = False
) -> Translation:
    return Translation(text, -1.0, -1.0, (ModelPass(src, tgt, is_cut),))


@pytest.fixture(scope="module")
def checks() -> OutputChecks:
    return OutputChecks("en", "de")


@pytest.mark.parametrize(
    ("source", "output", "flags"),
    [
        ("Two dogs play.", translation("Zwei Hunde spielen."), ()),
        ("", translation(""), ()),
        ("\u3000", translation(""), ()),
        ("Two dogs play.", translation(" \u2003"), ("empty",)),
        ("a b", translation("x", tgt=(8, 9) * 4), ("looping",)),
        ("a b", translation("x", src=(5,) * 4, tgt=(8,) * 4), ()),  # the source loops too
        ("two dogs play with a ball", translation("two dogs play with a ball"), ("copied",)),
        ("Two dogs play with balls", translation("Two dogs play mit Balls"), ("copied",)),
        ("Bank of England", translation("Bank of England"), ()),  # a name
        ("The Hague", translation("The Hague"), ()),
        ("a", translation("ein", is_cut=True), ("truncated",)),
        ("a", translation("ein", src=tuple(range(10, 22)), tgt=(1, 2, 3)), ("truncated",)),
        ("a", translation("ein", src=tuple(range(10, 22)), tgt=(1, 2, 3, 4)), ()),
        ("two dogs", translation("две собаки"), ("wrong_script",)),
        ("two dogs", translation("zwei Hunde, две соб"), ()),  # fewer than half of the letters
        ("αβγ 1", translation("αβγ 1"), ()),  # three letters say nothing
        ("since 1984", translation("seit 1948"), ("number_lost",)),
        ("see https://a.org/x?y=1.", translation("siehe https://a.org/x"), ("url_lost",)),
        ("two \u4e2d dogs", translation("zwei Hunde", src=(5, UNK_ID, 7)), ("unknown_symbols",)),
        ("two dogs", translation("zwei \u2047 Hunde"), ("unknown_symbols",)),
        ("since 1984 and 1985", translation("αβγδ", tgt=(3,) * 9, is_cut=True),
         ("looping", "truncated", "wrong_script", "number_lost")),
    ],
)  # fmt: skip
def test_each_flag_is_raised_by_its_fault_alone(
    checks: OutputChecks, source: str, output: Translation, flags: tuple[str, ...]
) -> None:
    assert checks.flags(source, output) == flags
    assert set(flags) <= set(FLAGS)


@pytest.mark.parametrize(
    ("line", "flags"),
    [("W", ("too_long",)), ("two W dogs", ("too_long",)), ("two dogs W play with balls", ("too_long", "copied"))],
)
def test_a_word_too_long_for_the_model_is_flagged_as_that_and_nothing_else(
    checks: OutputChecks, line: str, flags: tuple[str, ...]
) -> None:
    word = "w" * 5_000
    output = translation(line if "copied" in flags else line.replace("two", "zwei").replace("dogs", "Hunde"))
    output = replace(output, parts=(*output.parts, ModelPass((), (), is_cut=False, word=word)))
    output = replace(output, text=output.text.replace("W", word))
    assert checks.flags(line.replace("W", word), output) == flags


def test_one_language_may_copy_and_an_unlisted_one_may_use_any_script() -> None:
    copied = translation("two dogs play with a ball")
    assert OutputChecks("en_GB", "en_US").flags(copied.text, copied) == ()
    assert OutputChecks("en", "tlh").flags("two dogs", translation("две собаки")) == ()
    assert OutputChecks("en", "zh").flags("two dogs", translation("two Hunde")) == ("wrong_script",)


def test_of_what_is_no_text_only_cuts_unknown_symbols_and_repairs_are_looked_at() -> None:
    checks = OutputChecks("en", "en", trees=TreeText(TextConfig(trees=True)))
    output = translation("(S IN CD )S", tgt=(8,) * 30, is_cut=True)
    assert checks.flags("since 1984", output) == ("truncated",)
    assert checks.flags("since 1984", translation("(S IN CD )S", tgt=(8,) * 30)) == ()
    address = translation("(NP NN )NP", src=(4,) * 40, tgt=(8, 9, 10))  # one word, and all of its tree
    assert checks.flags("https://example.org/a", address) == ()
    assert checks.flags("since \u2603", translation("(S IN CD )S", src=(5, UNK_ID))) == ("unknown_symbols",)
    assert checks.flags("since 1984", translation("(S IN )S")) == ("tree_repaired",)
    assert checks.flags("since 1984", translation("")) == ("empty",)
    assert checks.flags("since 1984", Translation("", is_skipped=True)) == ("too_long",)


@pytest.mark.parametrize(
    ("passes", "log_prob", "expected"),
    [
        ([ModelPass((5,), (8, 9), is_cut=False)], -1.5, -0.5),
        ([ModelPass((5,), (8, 9), is_cut=False), ModelPass((6,), (7,), is_cut=False)], -10.0, -2.0),  # two end tokens
        ([ModelPass((5,), (), is_cut=False), ModelPass((), (), is_cut=False, word="x" * 999)], -3.0, -3.0),
    ],
)
def test_confidence_is_the_mean_over_all_tokens_and_the_end_of_each_part(
    passes: list[ModelPass], log_prob: float, expected: float
) -> None:
    assert confidence(Translation("x", log_prob, 0.0, tuple(passes))) == pytest.approx(expected)


def test_what_no_model_wrote_has_no_confidence() -> None:
    word = ModelPass((), (), is_cut=False, word="x" * 999)
    for output in (Translation(""), Translation("x", parts=(word,)), Translation("", -math.inf, 0.0)):
        assert math.isnan(confidence(output))
        assert "low_confidence" not in OutputChecks("en", "de", thresholds=[0.0]).flags("two dogs", output)


@pytest.mark.parametrize(
    ("outputs", "threshold"),
    [
        (19, None),  # too few
        (20, -20.0),  # the lowest
        (99, -99.0),
        (199, -198.0),  # the second lowest
        (1_099, -1_089.0),  # ten have less
    ],
)
def test_the_threshold_is_the_first_percentile_and_of_fewer_than_100_the_lowest(
    outputs: int, threshold: float | None
) -> None:
    values = [-float(number) for number in range(1, outputs + 1)]
    assert confidence_threshold([math.nan, *values, -math.inf]) == pytest.approx(threshold, abs=0.011)


def test_a_threshold_is_rounded_down_so_that_it_flags_no_output_that_it_was_taken_from() -> None:
    assert confidence_threshold([-0.123456] * 20) == -0.13


@pytest.mark.parametrize(
    ("thresholds", "is_flagged"),
    [([], False), ([None], False), ([-0.4], False), ([-0.3], True), ([-0.2, -0.4], False), ([-0.1, None], False)],
)
def test_an_output_is_flagged_below_the_lowest_threshold_of_all_models(
    thresholds: list[float | None], is_flagged: bool
) -> None:
    output = translation("Zwei Hunde spielen.")  # log p -1 of three tokens
    flags = OutputChecks("en", "de", thresholds=thresholds).flags("Two dogs play.", output)
    assert flags == (("low_confidence",) if is_flagged else ())


def loops_by_definition(ids: list[int]) -> bool:
    for period in range(1, 21):
        times = 3 if period >= 3 else 4
        for start in range(len(ids) - period * times + 1):
            if ids[start : start + period * times] == ids[start : start + period] * times:
                return True
    return False


@given(ids=st.lists(st.integers(4, 5), max_size=30) | st.lists(st.integers(4, 7), max_size=90))
def test_a_loop_is_what_comes_often_enough_in_a_row(ids: list[int]) -> None:
    assert is_looping(ids) == loops_by_definition(ids)


@given(period=st.integers(1, 20), before=st.lists(st.integers(100, 200), max_size=9))
def test_a_long_loop_is_found_wherever_it_stands(period: int, before: list[int]) -> None:
    loop = list(itertools.islice(itertools.cycle(range(period)), 4 * period))
    assert is_looping([*before, *loop, 99])
    assert not is_looping([*range(300, 300 + period), *range(300, 300 + period), 99])


@pytest.mark.parametrize(
    ("source", "text", "lost"),
    [
        ("1,000.50 and 7 men", "1.000,50 und sieben Männer", []),
        ("1\u00a0000\u202f000 men", "1.000.000 Männer", []),
        ("13 and 13", "13", ["13"]),
        ("12", "zwölf", []),
        ("on 24.12.2020", "am 24. Dezember 2020", []),
        ("on 24.12.2020 at 17:45", "am 24. Dezember 2021 um 17:54 Uhr", ["24122020", "1745"]),
        ("03.05.2026, 5/3/2026, 2026-05-03", "2026/5/3, 3. 5. 2026 und 2026年5月3日", []),
        ("17:45, 5:45 pm, 17.45 Uhr, 17h45", "5:45 p.m., 17.45 Uhr, 17:45, 17:45", []),
        ("um 17 Uhr", "at 5 pm", []),
        ("at 5:45 pm", "um 17:40 Uhr", ["545"]),
        ("1 234 567,50 €", "€1,234,567.5", []),
        ("١٬٢٣٤٫٥ and १२,३४५", "1'234.5 und 12 345", []),
        ("1’000 and 20 000", "1 000 und 20.000", []),
        ("1 000 men", "1 Mann", ["1000"]),
        ("in 2020 300 men", "2020 waren es 300", []),
        ("the 12 300 men", "die 12 und 300", []),
        ("17,00 Euro", "17 euros", []),
        ("192.168.10.20 costs 12.99", "192.168.10.21 kostet 12,98", ["1921681020", "1299"]),
        ("٤٢ رجال", "42 Männer", []),
        ("room 101", "Raum 1O1", ["101"]),
        ("0012 and 013", "12", ["013"]),
        ("7" * 5_000, "", ["7" * 5_000]),
    ],
)
def test_numbers_are_compared_by_their_digits(source: str, text: str, lost: list[str]) -> None:
    assert lost_numbers(source, text) == lost


def test_addresses_have_to_stand_as_they_are() -> None:
    source = 'Write to a.b@c-d.org or see (https://x.y/z_(q)), www.x.org/a, "http://ü.de".'
    assert list(lost_addresses(source, source)) == []
    assert list(lost_addresses(source, "a.b@c-d.org https://x.y/z_(q http://ü.de")) == ["www.x.org/a"]
    assert list(lost_addresses("no address @ all, www. is none. http:// neither", "")) == []
    assert list(lost_addresses("see www.x.org/a", "siehe:www.x.org/a_b")) == []  # as a part of something else


def test_very_many_addresses_take_no_time_to_speak_of() -> None:
    source = " ".join(f"https://example.org/{number}" for number in range(100_000))
    started = time.process_time()
    assert list(lost_addresses(source, source)) == []
    text = source.replace("/1", "/x1")
    assert next(lost_addresses(source, text)) == "https://example.org/1"
    assert time.process_time() - started < 5  # it grew with the square of their number


def attempt(text: str, tokens: Sequence[int] = (8, 9), src: Sequence[int] = (5, 6, 7)) -> Translation:
    return Translation(text, -2.0, -1.5, (ModelPass(tuple(src), tuple(tokens), False),))


GOOD, LOOP, EMPTY = attempt("zwei Hunde"), attempt("zwei zwei", [8] * 9), attempt("")


class ScriptedTranslator:
    """Answers as a list says, by how it is told to search, and notes what it was asked."""

    def __init__(self, answers: dict[str, dict[str, Translation]]) -> None:
        self.answers = answers
        self.decoding, self.options = DecodingConfig(), SearchOptions()
        self.longest_source = 0
        self.asked: list[tuple[str, list[str]]] = []
        self.prefixes: list[list[str]] = []

    def variant(
        self,
        *,
        decoding: DecodingConfig | None = None,
        options: SearchOptions | None = None,
        longest_source: int | None = None,
    ) -> "ScriptedTranslator":
        other = ScriptedTranslator(self.answers)
        other.asked, other.prefixes = self.asked, self.prefixes
        other.decoding, other.options = decoding or self.decoding, options or self.options
        other.longest_source = longest_source or 0
        return other

    def count_sub_words(self, line: str) -> int:
        return 30

    def translate_n_best(
        self, lines: Sequence[str], first_line: int | None = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Translation]]:
        assert first_line is None, "what was said of a line is not said again, by another number"
        assert replace(self.options, sampling=None) == SearchOptions(no_repeat_ngram=3, min_length=1)
        way = "split" if self.longest_source else "larger_beam" if self.decoding.beam_size == 8 else "no_repeat"
        assert self.longest_source in (0, 15)
        self.asked.append((way, list(lines)))
        self.prefixes.append(list(prefixes))
        return [[self.answers[way].get(line, LOOP)] for line in lines]


def judge(
    on_suspect: OnSuspect, answers: dict[str, dict[str, Translation]], lines: list[str], outputs: list[Translation],
    prefixes: Sequence[str] = (),
) -> tuple[list[Judged], ScriptedTranslator]:  # fmt: skip
    translator = ScriptedTranslator(answers)
    checks = OutputChecks("en", "de")
    judged = Judge(translator, checks, on_suspect).judge(lines, [[output] for output in outputs], prefixes)  # type: ignore[arg-type]
    return judged, translator


NONE: dict[str, dict[str, Translation]] = {"no_repeat": {}, "larger_beam": {}, "split": {}}


def test_no_search_is_wasted_on_what_looks_right_or_none_can_mend() -> None:
    for on_suspect in ("keep", "retry", "empty", "copy", "fail"):
        judged, translator = judge(on_suspect, NONE, ["two dogs", ""], [GOOD, EMPTY])  # type: ignore[arg-type]
        assert [each.outputs for each in judged] == [[GOOD], [EMPTY]]
        assert all(each == Judged(each.outputs, ()) for each in judged)
        assert translator.asked == []
    unknown = attempt("x", src=(5, 1))
    [judged], translator = judge("retry", NONE, ["a"], [unknown])
    assert judged.flags == ("unknown_symbols",)
    assert translator.asked == []


def test_the_ladder_is_climbed_only_as_far_as_needed_and_says_what_helped() -> None:
    answers = {"no_repeat": {"a": GOOD}, "larger_beam": {"b": GOOD}, "split": {"c": GOOD}}
    judged, translator = judge("retry", answers, ["a", "b", "ok", "c", "d"], [LOOP, LOOP, GOOD, EMPTY, LOOP])
    assert translator.asked == [
        ("no_repeat", ["a", "b", "c", "d"]), ("larger_beam", ["b", "c", "d"]), ("split", ["c"]), ("split", ["d"]),
    ]  # fmt: skip
    assert [each.helped for each in judged] == ["no_repeat", "larger_beam", None, "split", None]
    assert [each.flags for each in judged] == [(), (), (), (), ("looping",)]
    assert [each.first_flags for each in judged] == [("looping",), ("looping",), (), ("empty",), ("looping",)]
    assert judged[4].tried == ("no_repeat", "larger_beam", "split")
    assert [each.outputs[0] for each in judged] == [GOOD, GOOD, GOOD, GOOD, LOOP]
    _, translator = judge("retry", NONE, ["a", "b"], [GOOD, LOOP], ["p", "q"])
    assert translator.prefixes == [["q"], ["q"], ["q"]]


def test_of_attempts_that_all_look_wrong_the_one_with_the_fewest_flags_is_kept() -> None:
    first = attempt("x", [8] * 9, src=range(5, 99))  # loops, and is too short
    better = attempt("y", [8] * 60, src=range(5, 99))
    answers = {"no_repeat": {"a": better}, "larger_beam": {"a": first}, "split": {"a": first}}
    [judged], _ = judge("retry", answers, ["a"], [first])
    assert judged.outputs == [better]
    assert (judged.flags, judged.first_flags, judged.helped) == (("looping",), ("looping", "truncated"), "no_repeat")


def test_an_output_of_low_confidence_gives_way_to_a_more_probable_one() -> None:
    translator = ScriptedTranslator({"no_repeat": {}, "larger_beam": {"a": replace(GOOD, log_prob=-0.9)}, "split": {}})
    checks = OutputChecks("en", "de", thresholds=[-0.5])  # GOOD has -2 / 3
    [judged] = Judge(translator, checks, "retry").judge(["a"], [[GOOD]])  # type: ignore[arg-type]
    assert (judged.first_flags, judged.flags, judged.helped) == (("low_confidence",), (), "larger_beam")


def test_the_largest_beam_is_tried_again_as_it_is_and_samples_have_none() -> None:
    translator = ScriptedTranslator(NONE)
    translator.decoding = DecodingConfig(beam_size=MOST_HYPOTHESES)
    [judged] = Judge(translator, OutputChecks("en", "de"), "retry").judge(["a"], [[LOOP]])  # type: ignore[arg-type]
    assert "larger_beam" in judged.tried
    translator = ScriptedTranslator(NONE)
    translator.options = SearchOptions(sampling=Sampling())
    [judged] = Judge(translator, OutputChecks("en", "de"), "retry").judge(["a"], [[LOOP]])  # type: ignore[arg-type]
    assert judged.tried == ("no_repeat", "split")


@pytest.mark.parametrize(("on_suspect", "text"), [("empty", ""), ("copy", "two dogs"), ("keep", "zwei zwei")])
def test_what_looks_wrong_is_replaced_as_asked(on_suspect: OnSuspect, text: str) -> None:
    [judged], _ = judge(on_suspect, NONE, ["two dogs"], [LOOP])
    assert judged.outputs[0].text == text
    assert judged.flags == ("looping",)
    assert judged.replaced_by == (None if on_suspect == "keep" else on_suspect)
    assert math.isnan(judged.outputs[0].score) == (on_suspect != "keep")


def test_a_report_holds_what_there_is_to_know_on_a_line() -> None:
    [judged], _ = judge("retry", {**NONE, "split": {"a": GOOD}}, ["a"], [LOOP])
    assert json.loads(report_record(InputLine(7, "a", fields={"id": "x7"}), judged)) == {
        "line": 7, "id": "x7", "flags": [], "score": -1.5, "log_prob": -2.0, "length_ratio": 0.667, "parts": 1,
        "first_flags": ["looping"], "tried": ["no_repeat", "larger_beam", "split"], "helped": "split",
        "source": "a", "translation": "zwei Hunde",
    }  # fmt: skip
    blank = Judged([Translation("")], ())
    assert json.loads(report_record(InputLine(8, ""), blank)) == {
        "line": 8, "flags": [], "score": None, "log_prob": None, "length_ratio": None, "parts": 0, "source": "",
        "translation": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "suspect", "mended", "flags", "said"),
    [
        (4, 0, 0, {}, ""),
        (
            4,
            2,
            1,
            {"looping": 2, "copied": 1},
            "2 of 4 lines look wrong: 2 looping, 1 copied; another search fixed 1 line",
        ),
        (1, 1, 0, {"empty": 1}, "1 of 1 line looks wrong: 1 empty output"),
        (3, 2, 0, {"empty": 2, "looping": 1}, "2 of 3 lines look wrong: 2 empty outputs, 1 looping"),
    ],
)
def test_the_summary_counts_lines_and_flags(
    lines: int, suspect: int, mended: int, flags: dict[str, int], said: str
) -> None:
    result = TranslateResult(("m",), lines, suspect_lines=suspect, mended_lines=mended, flags=Counter(flags))
    assert result.suspects() == said
