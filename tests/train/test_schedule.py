"""The rate of the paper's equation (3), with its peak where Section 5.3 puts it."""

import math

import pytest

from aiayn_cli.train.schedule import learning_rate


@pytest.mark.parametrize(("d_model", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_base_and_big_peak_where_the_paper_has_it(d_model: int, peak: float) -> None:
    rates = [learning_rate(step, d_model, 4_000) for step in range(1, 12_001)]
    assert max(rates) == pytest.approx(peak, rel=1e-3)
    assert rates.index(max(rates)) + 1 == 4_000


@pytest.mark.parametrize("step", [1, 2, 399, 400, 401, 1_600, 100_000])
def test_rate_is_the_papers_equation(step: int) -> None:
    expected = 1 / math.sqrt(512) * min(1 / math.sqrt(step), step / 400**1.5)
    assert learning_rate(step, 512, 400) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(step, 512, 400, scale=2.5) == pytest.approx(2.5 * expected, rel=1e-12)


def test_rate_rises_evenly_and_then_falls_with_the_root_of_the_step() -> None:
    rising = [learning_rate(step, 64, 50) for step in range(1, 51)]
    assert rising == pytest.approx([step * rising[0] for step in range(1, 51)])
    assert learning_rate(200, 64, 50) == pytest.approx(rising[-1] / 2)
    assert learning_rate(51, 64, 50) == pytest.approx(rising[-1], rel=0.02)  # no jump


def test_without_a_rise_the_first_step_is_the_peak() -> None:
    assert learning_rate(1, 16, 1) == pytest.approx(0.25)
    assert learning_rate(4, 16, 1) == pytest.approx(0.125)
