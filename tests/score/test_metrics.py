"""Each metric gives the sacrebleu command's score and signature, over its options."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sacrebleu_command import TEXT, noisy, results, run_sacrebleu, written

from aiayn_cli.errors import AiaynError
from aiayn_cli.score import metrics as module
from aiayn_cli.score.metrics import METRICS, MetricOptions, SacreMetric, find_metrics
from aiayn_cli.score.significance import with_confidence

REFERENCES = [noisy(TEXT * 6, seed) for seed in (1, 2, 3)]
HYPOTHESES = noisy(TEXT * 6, seed=42)

# What is asked of the metric, and of the command, with the number of references.
CASES: list[tuple[str, dict[str, Any], str, int]] = [
    ("bleu", {}, "-m bleu", 1),
    ("bleu", {}, "-m bleu", 3),
    ("bleu", {"lowercase": True}, "-lc", 2),
    ("bleu", {"tokenize": "13a"}, "-tok 13a", 2),
    ("bleu", {"tokenize": "intl"}, "-tok intl", 1),
    ("bleu", {"tokenize": "char"}, "-tok char", 1),
    ("bleu", {"tokenize": "zh"}, "-tok zh", 2),
    ("bleu", {"tokenize": "none"}, "-tok none", 1),
    ("bleu", {"tgt_lang": "zh"}, "-tok zh", 1),
    ("bleu", {"smooth": "floor"}, "-s floor", 1),
    ("bleu", {"smooth": "floor", "smooth_value": 0.5}, "-s floor -sv 0.5", 1),
    ("bleu", {"smooth": "add-k", "smooth_value": 2.0}, "-s add-k -sv 2.0", 1),
    ("bleu", {"smooth": "none", "lowercase": True, "tokenize": "intl"}, "-s none -lc -tok intl", 3),
    ("chrf", {}, "-m chrf", 1),
    ("chrf", {"lowercase": True}, "-m chrf --chrf-lowercase", 2),
    ("chrf+", {}, "-m chrf --chrf-word-order 1", 1),
    ("chrf++", {}, "-m chrf --chrf-word-order 2", 2),
    ("ter", {}, "-m ter", 1),
    ("ter", {"lowercase": True, "tgt_lang": "de"}, "-m ter", 3),
    ("ter", {"tgt_lang": "ja"}, "-m ter --ter-asian-support --ter-normalized", 1),
]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, Any]]:
    """What the command says to each of CASES."""
    folder = tmp_path_factory.mktemp("sacrebleu")
    references = [written(folder / f"ref{number}", lines) for number, lines in enumerate(REFERENCES)]
    hypotheses = written(folder / "hyp", HYPOTHESES)
    calls = [
        [*references[:number], "-i", hypotheses, "-w", "9", "--confidence", "-cin", "40", *options.split()]
        for _, _, options, number in CASES
    ]
    found = run_sacrebleu(folder, calls)
    return lambda number: results(found[number])[0]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case[0]} {case[2]} {case[3]}" for case in CASES])
def test_score_interval_and_signature_are_those_of_the_sacrebleu_command(
    command: Callable[[int], dict[str, Any]], number: int
) -> None:
    name, options, _, n_references = CASES[number]
    metric = SacreMetric(name, REFERENCES[:n_references], MetricOptions(**options))
    [statistics] = metric.statistics([HYPOTHESES])
    found, expected = with_confidence(metric, statistics, resamples=40), command(number)
    assert found.metric == expected["name"]
    assert found.signature == expected["signature"]
    assert found.score == pytest.approx(expected["score"], abs=1e-8)
    # The command takes the mean of float32 numbers.
    assert found.mean == pytest.approx(expected["confidence_mean"], abs=1e-5)
    assert found.interval == pytest.approx(expected["confidence_var"], abs=1e-5)
    assert found.detail == expected.get("verbose_score", "")
    assert 0 < found.score < 100
    plain = metric.score(statistics)
    assert "|bs:" not in plain.signature
    assert plain.score == found.score


def test_a_sentence_s_score_is_that_of_the_sacrebleu_command(tmp_path: Path) -> None:
    names = ("bleu", "chrf", "ter")
    files = [written(tmp_path / "ref", REFERENCES[0]), "-i", written(tmp_path / "hyp", HYPOTHESES)]
    outputs = run_sacrebleu(tmp_path, [[*files, "-sl", "-b", "-w", "6", "-m", name] for name in names])
    for name, output in zip(names, outputs, strict=True):
        metric = SacreMetric(name, REFERENCES[:1])
        [statistics] = metric.statistics([HYPOTHESES])
        expected = [float(word) for word in output.split()]
        assert len(expected) == len(HYPOTHESES)
        assert [metric.sentence(counts) for counts in statistics] == pytest.approx(expected, abs=1e-6)


def test_several_systems_are_counted_as_if_each_were_alone() -> None:
    systems = [noisy(TEXT, seed) for seed in (5, 6, 7)]
    for name in METRICS:
        metric = SacreMetric(name, [noisy(TEXT, seed) for seed in (1, 2)])
        assert metric.statistics(systems) == [metric.statistics([system])[0] for system in systems]


@pytest.mark.parametrize("name", ["bleu", "ter"])
def test_more_processes_count_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, lines in (("_LINES_WORTH_A_PROCESS", 20), ("_LINES_OF_BLEU_WORTH_A_PROCESS", 20), ("_BATCH_LINES", 7)):
        monkeypatch.setattr(module, limit, lines)
    systems = [noisy(TEXT * 6, seed) for seed in (5, 6)]
    references = [noisy(TEXT * 6, seed) for seed in (7, 8)]
    alone, together = (SacreMetric(name, references, workers=workers) for workers in (1, 2))
    assert together.statistics(systems) == alone.statistics(systems)


def test_all_metrics_agree_on_the_perfect_translation() -> None:
    for name in METRICS:
        metric = SacreMetric(name, [TEXT])
        [statistics] = metric.statistics([TEXT])
        assert metric.score(statistics).score == pytest.approx(0 if metric.lower_is_better else 100)
        assert metric.lower_is_better == (name == "ter")
        assert metric.score(statistics).metric == metric.label


def test_names_of_metrics_are_read_with_commas_each_once() -> None:
    assert find_metrics("bleu") == ["bleu"]
    assert find_metrics("BLEU, ter,chrf++,bleu") == ["bleu", "ter", "chrf++"]
    with pytest.raises(AiaynError, match="unknown metric 'blue'") as error:
        find_metrics("chrf,blue")
    assert error.value.hint == "did you mean bleu?"
