"""A chart is well-formed XML whose points stand where their numbers say, and loses no spike."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiayn_cli.pages.page import Line, line_chart, thinned, ticks, without_steep_start


def numbers(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([-\d.]+) ([-\d.]+)", path)]


def drawn(chart: str, number: int = 0) -> list[tuple[float, float]]:
    """Where the points of a line stand on the picture."""
    path = next(p for p in ElementTree.fromstring(chart).iter("path") if p.get("class") == f"line-{number}")
    return numbers(path.get("d", ""))


def test_points_and_labels_stand_in_proportion_to_their_numbers() -> None:
    (x1, y1), (x2, y2), (x3, y3) = drawn(line_chart("t", [Line("a", [(0, 1.0), (100, 3.0), (400, 2.0)])]))
    assert (x2 - x1) / (x3 - x1) == pytest.approx(100 / 400, abs=1e-3)
    assert (y1 - y3) / (y1 - y2) == pytest.approx((2 - 1) / (3 - 1), abs=1e-3)
    assert y2 < y3 < y1  # higher numbers are higher up
    assert 0 <= y2 < y1 <= 250
    chart = line_chart("t", [Line("a", [(0, 0.0), (40, 10.0)])])
    labels = {text.text: float(text.get("x", 0)) for text in ElementTree.fromstring(chart).iter("text")}
    (x1, _), (x2, _) = drawn(chart)
    assert labels["20"] == pytest.approx((x1 + x2) / 2, abs=0.2)


def test_two_lines_have_a_legend_one_has_none_and_many_share_eight_colours() -> None:
    one, two = Line("first", [(1, 1.0), (2, 2.0)]), Line("second", [(1, 3.0)], dotted=True)
    assert "first" not in {text.text for text in ElementTree.fromstring(line_chart("t", [one])).iter("text")}
    chart = line_chart("t", [one, two])
    assert {"first", "second"} <= {text.text for text in ElementTree.fromstring(chart).iter("text")}
    assert [tip.text for tip in ElementTree.fromstring(chart).iter("title")] == ["second: 3 at update 1"]
    chart = ElementTree.fromstring(line_chart("t", [Line(f"a long name {n}", [(1, 1.0), (2, n)]) for n in range(9)]))
    assert [path.get("class") for path in chart.iter("path") if path.get("data-name")][-2:] == ["line-7", "line-0"]
    assert not any(text.text and "long name" in text.text for text in chart.iter("text"))


def test_each_point_that_is_drawn_has_its_numbers_for_the_tooltip() -> None:
    chart = line_chart("t", [Line("a & b", [(100, 2.0), (1_234_567, 0.000123456)])])
    path = next(path for path in ElementTree.fromstring(chart).iter("path") if path.get("data-points"))
    assert path.get("data-name") == "a & b"
    assert path.get("data-points") == "100 2 1234567 0.00012346"
    assert len(numbers(path.get("d", ""))) == 2


def test_what_is_not_finite_is_left_out_and_nothing_at_all_is_no_chart() -> None:
    assert len(drawn(line_chart("t", [Line("a", [(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)])]))) == 2
    assert line_chart("t", [Line("a", [(1, math.nan)]), Line("b", [])]) == ""
    assert line_chart("t", []) == ""


def test_names_are_text_not_markup() -> None:
    chart = line_chart("a < b & c", [Line("<i>", [(1, 1.0), (2, 2.0)], dotted=True), Line('"', [(1, 1.0)])])
    root = ElementTree.fromstring(chart)
    assert root.get("aria-label") == "a < b & c"
    assert "<i>" in {text.text for text in root.iter("text")}


@example(0.0, 5e-324)
@example(1e9, 1e-7)
@example(0.0, 0.0)
@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_ticks_are_few_round_and_cover_the_lowest(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 2 <= len(found) <= 7
    assert found[0] <= low + 1e-6 * abs(low)
    assert found == sorted(set(found))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=300))
def test_any_numbers_give_a_chart_that_can_be_read(values: list[float]) -> None:
    ElementTree.fromstring(line_chart("t", [Line("a", list(enumerate(values)), dotted=True)], marks=[3]))


def test_a_steep_start_is_left_out_but_no_later_spike() -> None:
    assert without_steep_start([(1, 9.0), (4, 2.0), (50, 1.0), (70, 3.0), (100, 1.0)]) == [
        (4, 2.0), (50, 1.0), (70, 3.0), (100, 1.0)
    ]  # fmt: skip
    assert without_steep_start([(10, 9.0), (20, 8.0)]) == [(10, 9.0), (20, 8.0)]
    assert without_steep_start([]) == []


def test_thinning_keeps_the_order_and_every_spike() -> None:
    points = [(float(x), 100.0 if x == 7_777 else -5.0 if x == 123 else float(x % 3)) for x in range(10_000)]
    kept = thinned(points, 400)
    assert len(kept) <= 400
    assert kept == sorted(kept)
    assert {(7_777.0, 100.0), (123.0, -5.0)} <= set(kept)
    assert thinned(points[:400], 400) == points[:400]


def test_ticks_refuse_what_is_no_range() -> None:
    for low, high in ((1.0, 0.0), (math.nan, 1.0), (0.0, math.inf)):
        with pytest.raises(ValueError, match="no ticks"):
            ticks(low, high)
