"""Confidence intervals and paired tests, by sacreBLEU's own resampling: its numbers and its signatures.

* Confidence: bootstrap resampling of the lines (Koehn 2004).
* Comparison: paired bootstrap resampling (Koehn 2004) and paired approximate randomisation (Riezler and Maxwell 2005;
  two-sided), each against the first system. The seed is sacreBLEU's, 12345, or that of SACREBLEU_SEED.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from aiayn_cli.score.comet import Metric
from aiayn_cli.score.metrics import Score, Statistics

RESAMPLES = 1_000  # sacreBLEU's default for the bootstrap
TRIALS = 10_000  # sacreBLEU's default for approximate randomisation


@dataclass(frozen=True)
class Comparison:
    """A system against the first one, by one metric."""

    system: str
    baseline: str  # the first system
    metric: str  # such as "BLEU"
    difference: float  # its score minus the baseline's
    # Probability of a difference of at least this size if both systems are equally good.
    p_bootstrap: float
    p_randomisation: float
    bootstrap_signature: str  # sacreBLEU's, for reports
    randomisation_signature: str


def with_confidence(metric: Metric, statistics: Statistics, resamples: int) -> Score:
    """Score a system, with a 95 % confidence interval from bootstrap resamples."""
    signature, [result] = _paired_test("bs", metric, [""], [statistics], resamples)
    score = metric.score(statistics)
    return replace(score, signature=signature, mean=float(result.mean), interval=float(result.ci))


def compare(
    metric: Metric,
    names: Sequence[str],
    statistics: Sequence[Statistics],
    resamples: int = RESAMPLES,  # of the paired bootstrap
    trials: int = TRIALS,  # of approximate randomisation
) -> list[Comparison]:
    """Test each system but the first against the first, given the statistics that `metric` took of each."""
    bootstrap_signature, by_bootstrap = _paired_test("bs", metric, names, statistics, resamples)
    randomisation_signature, by_randomisation = _paired_test("ar", metric, names, statistics, trials)
    return [
        Comparison(
            name, names[0], metric.label, difference=float(bootstrap.score - by_bootstrap[0].score),
            p_bootstrap=_p_value(by_bootstrap[0], bootstrap),
            p_randomisation=_p_value(by_randomisation[0], randomisation),
            bootstrap_signature=bootstrap_signature, randomisation_signature=randomisation_signature,
        )
        for name, bootstrap, randomisation in zip(names[1:], by_bootstrap[1:], by_randomisation[1:], strict=True)
    ]  # fmt: skip


def bootstrap_p(metric: Metric, baseline: Statistics, system: Statistics) -> float:
    """The p-value of one comparison by paired bootstrap alone."""
    _, results = _paired_test("bs", metric, ("baseline", "system"), (baseline, system), RESAMPLES)
    return _p_value(*results)


def _p_value(baseline: Any, system: Any) -> float:
    """sacreBLEU's p-value; it counts only larger differences, so that equal scores would have 0.001 instead of 1."""
    return float(system.p_value) if system.score != baseline.score else 1.0


def _paired_test(
    kind: Literal["bs", "ar"], metric: Metric, names: Sequence[str], statistics: Sequence[Statistics], number: int
) -> tuple[str, Sequence[Any]]:
    """sacreBLEU's signature of a test with `number` samples, and its results in the order of the systems."""
    # Here, because it loads numpy, which takes as long as everything else that a plain score loads.
    test = importlib.import_module("sacrebleu.significance").PairedTest
    known = _KnownStatistics(metric.backend, statistics)
    systems = list(zip(names, known.stand_ins, strict=True))
    signatures, scores = test(systems, {"": known}, None, kind, number)()
    [signature] = signatures.values()
    return str(signature), next(results for name, results in scores.items() if name != "System")


class _KnownStatistics:
    """A metric that has already read its systems; a range stands for the lines of each, which sacreBLEU passes on."""

    def __init__(self, metric: Any, statistics: Sequence[Statistics]) -> None:
        self._metric, self._statistics = metric, statistics
        self.stand_ins = [range(number, number + len(each)) for number, each in enumerate(statistics)]

    def _extract_corpus_statistics(self, hypotheses: range, references: None) -> Statistics:
        return self._statistics[hypotheses.start]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metric, name)
