import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from aiayn_cli.config import MOST_HYPOTHESES, DecodingConfig
from aiayn_cli.translate.formats import report_record
from aiayn_cli.translate.input import InputLine
from aiayn_cli.translate.line_translator import ModelPass, Translation
from aiayn_cli.translate.options import Sampling, SearchOptions
from aiayn_cli.translate.session import TranslateResult
from aiayn_cli.translate.trust.flags import OutputChecks
from aiayn_cli.translate.trust.retry import Judge, Judged, OnSuspect


def translation(text: str, tokens: Sequence[int] = (8, 9), src: Sequence[int] = (5, 6, 7)) -> Translation:
    return Translation(text, -2.0, -1.5, (ModelPass(tuple(src), tuple(tokens), False),))


GOOD, LOOP, EMPTY = translation("zwei Hunde"), translation("zwei zwei", [8] * 9), translation("")


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


def test_what_looks_right_is_left_alone_whatever_is_asked() -> None:
    for on_suspect in ("keep", "retry", "empty", "copy", "fail"):
        judged, translator = judge(on_suspect, NONE, ["two dogs", ""], [GOOD, EMPTY])  # type: ignore[arg-type]
        assert [each.outputs for each in judged] == [[GOOD], [EMPTY]]
        assert all(each == Judged(each.outputs, ()) for each in judged)
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


def test_of_attempts_that_all_look_wrong_the_one_with_the_fewest_flags_is_kept() -> None:
    first = translation("x", [8] * 9, src=range(5, 99))  # loops, and is too short
    better = translation("y", [8] * 60, src=range(5, 99))
    answers = {"no_repeat": {"a": better}, "larger_beam": {"a": first}, "split": {"a": first}}
    [judged], _ = judge("retry", answers, ["a"], [first])
    assert judged.outputs == [better]
    assert (judged.flags, judged.first_flags, judged.helped) == (("looping",), ("looping", "truncated"), "no_repeat")


def test_an_output_of_low_confidence_gives_way_to_a_more_probable_one() -> None:
    translator = ScriptedTranslator({"no_repeat": {}, "larger_beam": {"a": replace(GOOD, log_prob=-0.9)}, "split": {}})
    checks = OutputChecks("en", "de", thresholds=[-0.5])  # GOOD has -2 / 3
    [judged] = Judge(translator, checks, "retry").judge(["a"], [[GOOD]])  # type: ignore[arg-type]
    assert (judged.first_flags, judged.flags, judged.helped) == (("low_confidence",), (), "larger_beam")


def test_a_prefix_holds_for_every_attempt() -> None:
    _, translator = judge("retry", NONE, ["a", "b"], [GOOD, LOOP], ["p", "q"])
    assert translator.prefixes == [["q"], ["q"], ["q"]]


def test_the_largest_beam_there_is_is_tried_again_as_it_is() -> None:
    translator = ScriptedTranslator(NONE)
    translator.decoding = DecodingConfig(beam_size=MOST_HYPOTHESES)
    [judged] = Judge(translator, OutputChecks("en", "de"), "retry").judge(["a"], [[LOOP]])  # type: ignore[arg-type]
    assert "larger_beam" in judged.tried


def test_samples_are_not_drawn_again_with_another_beam_since_they_have_none() -> None:
    translator = ScriptedTranslator(NONE)
    translator.options = SearchOptions(sampling=Sampling())
    [judged] = Judge(translator, OutputChecks("en", "de"), "retry").judge(["a"], [[LOOP]])  # type: ignore[arg-type]
    assert judged.tried == ("no_repeat", "split")


def test_no_search_is_wasted_on_what_none_can_mend() -> None:
    unknown = translation("x", src=(5, 1))
    [judged], translator = judge("retry", NONE, ["a"], [unknown])
    assert judged.flags == ("unknown_symbols",)
    assert translator.asked == []


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
        (1, 1, 0, {"empty": 1}, "1 of 1 line looks wrong: 1 empty"),
    ],
)
def test_the_summary_counts_lines_and_flags(
    lines: int, suspect: int, mended: int, flags: dict[str, int], said: str
) -> None:
    result = TranslateResult(("m",), lines, suspect_lines=suspect, mended_lines=mended, flags=Counter(flags))
    assert result.suspects() == said
