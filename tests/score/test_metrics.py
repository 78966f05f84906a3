"""Each metric gives the sacrebleu command's score and signature, over its options."""

import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu_command import TEXT, noisy, results, run_sacrebleu, written

from aiayn_cli.errors import AiaynError
from aiayn_cli.score import metrics
from aiayn_cli.score.metrics import (
    METRICS,
    MetricOptions,
    SacreMetric,
    bleu,
    compound_split_bleu,
    find_metrics,
    is_written_in_characters,
    split_tokens,
    tokenizer_of,
)
from aiayn_cli.score.significance import Comparison, compare, with_confidence

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
        monkeypatch.setattr(metrics, limit, lines)
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
    assert bleu([line.lower() for line in TEXT], [TEXT]).score < 90, "case counts"


def test_names_of_metrics_are_read_with_commas_each_once() -> None:
    assert find_metrics("bleu") == ["bleu"]
    assert find_metrics("BLEU, ter,chrf++,bleu") == ["bleu", "ter", "chrf++"]
    with pytest.raises(AiaynError, match="unknown metric 'blue'") as error:
        find_metrics("chrf,blue")
    assert error.value.hint == "did you mean bleu?"


@given(noise=st.lists(st.sampled_from(["\t", "\r", " ", "\u2028", "\x0b", "\x85"]), min_size=1, max_size=4))
@settings(max_examples=30)
def test_tabs_carriage_returns_and_other_white_space_inside_a_line_change_nothing(noise: list[str]) -> None:
    hypotheses = noisy(TEXT, seed=5)
    stirred = [line.replace(" ", "".join(noise)) for line in hypotheses]
    assert bleu(stirred, [TEXT]) == bleu(hypotheses, [TEXT])


# ---- tokenisers


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"), ("", "13a"), (None, "13a"), ("zh", "zh"), ("zh-TW", "zh"), ("zh_Hans", "zh"), ("ZH", "zh"),
        ("ja", "ja-mecab"), ("jpn", "ja-mecab"), ("ko", "ko-mecab"), ("kok", "13a"), ("zha", "13a"),
    ],
)  # fmt: skip
def test_the_tokeniser_follows_the_target_language(language: str | None, tokenizer: str) -> None:
    assert tokenizer_of(language) == tokenizer
    assert is_written_in_characters(language) == (tokenizer in ("zh", "ja-mecab"))


def test_chinese_is_not_scored_with_13a() -> None:
    reference, hypothesis = ["我喜欢喝绿茶和咖啡。"], ["我喜欢喝红茶和咖啡。"]
    assert "tok:zh" in bleu(hypothesis, [reference], tgt_lang="zh").signature
    assert bleu(hypothesis, [reference], tgt_lang="zh").score > 40 > bleu(hypothesis, [reference]).score
    named = SacreMetric("bleu", [reference], MetricOptions(tokenize="13a", tgt_lang="zh"))
    assert "tok:13a" in str(named.backend.get_signature())


@pytest.mark.parametrize(("tokenizer", "language"), [("ja-mecab", "ja"), ("ko-mecab", "ko")])
def test_a_tokeniser_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tokenizer: str, language: str
) -> None:
    for module in ("MeCab", "mecab_ko", f"sacrebleu.tokenizers.tokenizer_{language}_mecab"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(AiaynError) as caught:
        bleu(["x"], [["x"]], tgt_lang=language)
    assert tokenizer in caught.value.problem
    assert f'pip install "sacrebleu[{language}]"' in caught.value.hint
    assert "--set training.best_metric=loss --set training.validation_bleu_pairs=0" in caught.value.hint


def test_an_unknown_tokeniser_is_answered_with_the_nearest() -> None:
    with pytest.raises(AiaynError, match="unknown BLEU tokeniser '13b'") as caught:
        SacreMetric("bleu", [["x"]], MetricOptions(tokenize="13b"))
    assert caught.value.hint == "did you mean 13a?"


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
    assert found.p_bootstrap == found.p_randomisation == 1


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


def multi_bleu(hypotheses: list[str], references: list[list[str]]) -> tuple[float, int, int]:
    """What multi-bleu.perl does: BLEU, and both lengths."""
    correct, total, hyp_length, ref_length = [0] * 4, [0] * 4, 0, 0
    for number, hypothesis in enumerate(hypotheses):
        words = hypothesis.split()
        refs = [reference[number].split() for reference in references]
        hyp_length += len(words)
        ref_length += min((abs(len(ref) - len(words)), len(ref)) for ref in refs)[1]
        for n in range(4):

            def ngrams(tokens: list[str], n: int = n) -> Counter[tuple[str, ...]]:
                return Counter(tuple(tokens[i : i + n + 1]) for i in range(len(tokens) - n))

            known: Counter[tuple[str, ...]] = Counter()
            for ref in refs:
                known |= ngrams(ref)
            found = ngrams(words)
            correct[n] += sum((found & known).values())
            total[n] += sum(found.values())
    if not all(correct):
        return 0.0, hyp_length, ref_length
    penalty = min(0.0, 1 - ref_length / hyp_length)
    mean = sum(math.log(c / t) for c, t in zip(correct, total, strict=True)) / 4
    return 100 * math.exp(penalty + mean), hyp_length, ref_length


@pytest.mark.parametrize("n_references", [1, 2])
def test_it_is_multi_bleu_on_split_moses_tokens(n_references: int) -> None:
    hypotheses, references = noisy(TEXT * 5, seed=1), [noisy(TEXT * 5, seed) for seed in range(2, 2 + n_references)]
    found = compound_split_bleu(hypotheses, references, "de")
    split = [split_tokens(lines, "de") for lines in (hypotheses, *references)]
    expected = multi_bleu(split[0], split[1:])
    assert (found.score, found.hyp_length, found.ref_length) == (pytest.approx(expected[0]), *expected[1:])
    assert f"hyp_len={expected[1]}, ref_len={expected[2]})" in found.detail


def test_hyphens_between_letters_are_set_apart_as_in_the_authors_script() -> None:
    lines = ["Die E-Mail-Adresse, bitte.", "a-b-c", "- nicht -", "3-4 Ost-West"]
    assert split_tokens(lines, "de") == [
        "Die E ##AT##-##AT## Mail ##AT##-##AT## Adresse , bitte .",
        "a ##AT##-##AT## b-c",  # matches do not overlap
        "- nicht -",
        "3 ##AT##-##AT## 4 Ost ##AT##-##AT## West",
    ]


def test_it_is_never_mistaken_for_a_sacrebleu_figure_and_gives_credit_for_parts() -> None:
    text = str(compound_split_bleu(TEXT, [TEXT], "de"))
    assert text.startswith("compound-split tokenised BLEU = 100.00")
    assert "not sacreBLEU" in text
    assert "nrefs" not in text
    assert "sacremoses" in text
    reference = ["Der Ost-West-Konflikt prägte die Nachkriegs-Zeit in Mittel-Europa sehr."]
    hypothesis = ["Der Ost-West-Streit prägte die Nachkriegs-Phase in Mittel-Europa sehr."]
    assert compound_split_bleu(hypothesis, [reference], "de").score > bleu(hypothesis, [reference]).score + 5


def test_no_match_of_one_length_gives_0_and_the_language_must_be_known() -> None:
    assert compound_split_bleu(["eins zwei drei"], [["eins zwei drei"]], "de").score == 0
    with pytest.raises(AiaynError, match="needs the target language") as error:
        compound_split_bleu(["a"], [["a"]], "")
    assert "--langs" in error.value.hint
