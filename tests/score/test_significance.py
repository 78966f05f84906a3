"""The tests' p-values are the sacrebleu command's."""

import random
import re
from pathlib import Path

import pytest
from sacrebleu_command import TEXT, noisy, run_sacrebleu, written

from aiayn_cli.score.metrics import SacreMetric
from aiayn_cli.score.significance import Comparison, compare, with_confidence

REFERENCE = TEXT * 8
SYSTEMS = [noisy(REFERENCE, seed) for seed in (1, 2)] + [noisy(noisy(REFERENCE, 3), 4)]


def compared(name: str, systems: list[list[str]], resamples: int = 60, trials: int = 90) -> list[Comparison]:
    metric = SacreMetric(name, [REFERENCE])
    names = [f"system {number}" for number in range(len(systems))]
    return compare(metric, names, metric.statistics(systems), resamples, trials)


@pytest.mark.parametrize(("name", "options"), [("bleu", "-m bleu"), ("chrf", "-m chrf"), ("ter", "-m ter")])
def test_differences_p_values_and_signatures_are_those_of_the_sacrebleu_command(
    tmp_path: Path, name: str, options: str
) -> None:
    files = [written(tmp_path / f"hyp{number}", system) for number, system in enumerate(SYSTEMS)]
    base = [written(tmp_path / "ref", REFERENCE), "-i", *files, "-w", "6", "-f", "text", "--no-color", *options.split()]
    outputs = run_sacrebleu(tmp_path, [[*base, "-pbs", "-pbsn", "60"], [*base, "-par", "-parn", "90"]])
    found = compared(name, SYSTEMS)
    assert [each.system for each in found] == ["system 1", "system 2"]
    for kind, output in zip(("bootstrap", "randomisation"), outputs, strict=True):
        p_values = re.findall(r"\(p = (\S+)\)", output)
        assert [f"{getattr(each, f'p_{kind}'):.4f}" for each in found] == p_values
        scores = [float(score) for score in re.findall(r"│ +(\d+\.\d{6})", output)]
        differences = [score - scores[0] for score in scores[1:]]
        assert [each.difference for each in found] == pytest.approx(differences, abs=2e-6)
        assert all(getattr(each, f"{kind}_signature") in output for each in found)
    assert len({each.p_bootstrap for each in found}) == 2


def test_a_clear_difference_is_significant_and_none_is_not() -> None:
    worse = noisy(noisy(noisy(REFERENCE, 1), 2), 3)
    [found] = compared("bleu", [SYSTEMS[0], worse])
    assert max(found.p_bootstrap, found.p_randomisation) < 0.05
    assert found.difference < -5
    [found] = compared("bleu", [SYSTEMS[0], list(SYSTEMS[0])])
    assert found.difference == 0
    assert min(found.p_bootstrap, found.p_randomisation) > 0.01


def test_p_values_of_systems_that_differ_by_chance_alone_are_spread_out() -> None:
    chance = random.Random(5)
    values = []
    for seed in range(20):
        first, second = noisy(REFERENCE, 2 * seed), noisy(REFERENCE, 2 * seed + 1)
        mixed = [pair if chance.random() < 0.5 else pair[::-1] for pair in zip(first, second, strict=True)]
        [found] = compared("bleu", [list(lines) for lines in zip(*mixed, strict=True)], resamples=2)
        values.append(found.p_randomisation)
    assert sum(value < 0.05 for value in values) <= 4  # 1 is to be expected
    assert 0.3 < sum(values) / len(values) < 0.7


def test_the_interval_holds_the_score_and_shrinks_with_more_lines() -> None:
    intervals = []
    for times in (1, 16):
        metric = SacreMetric("bleu", [REFERENCE * times])
        score = with_confidence(metric, metric.statistics([SYSTEMS[0] * times])[0], resamples=100)
        assert score.mean is not None
        assert score.interval is not None
        assert abs(score.mean - score.score) < score.interval
        intervals.append(score.interval)
    assert 2.5 < intervals[0] / intervals[1] < 6.5  # 4 = the root of 16


def test_the_seed_is_sacrebleu_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = SacreMetric("bleu", [REFERENCE])
    [statistics] = metric.statistics(SYSTEMS[:1])
    usual, again = (with_confidence(metric, statistics, 30) for _ in range(2))
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = with_confidence(metric, statistics, 30)
    assert usual == again
    assert other.mean != usual.mean
    assert "|seed:7|" in other.signature
