"""What `aiayn score` does: read references and hypotheses, look for signs of a false score, compute what was asked."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiayn_cli.errors import UsageError
from aiayn_cli.score.brackets import run_score_brackets as run_score_brackets  # for the command
from aiayn_cli.score.breakdown import Part, parts_by_label, parts_by_length
from aiayn_cli.score.comet import COMET_MODEL, CometMetric
from aiayn_cli.score.compound_split import compound_split_bleu
from aiayn_cli.score.metrics import Metric, MetricOptions, SacreMetric, Smoothing, Statistics, find_metrics
from aiayn_cli.score.page import check_place, write_page
from aiayn_cli.score.remarks import remark_on_language, warn
from aiayn_cli.score.result import PartScores, ScoreResult, Sentence, SystemScores
from aiayn_cli.score.significance import RESAMPLES, TRIALS, compare, with_confidence
from aiayn_cli.score.texts import Texts, load_set, read_texts, target_language
from aiayn_cli.score.tokenizers import is_written_in_characters
from aiayn_cli.text.lines import read_file, write_records


@dataclass(frozen=True, kw_only=True)
class _Scored:
    """A metric, and what it counted in each system's lines."""

    metric: Metric
    statistics: list[Statistics]


def run_score(
    references: Sequence[Path] = (),
    *,
    hypotheses: Sequence[str] = ("-",),
    metrics: str = "bleu",
    tokenize: str | None = None,
    lowercase: bool = False,
    smooth: Smoothing = "exp",
    smooth_value: float | None = None,
    langs: str | None = None,
    test_set: str | None = None,
    from_folder: Path | None = None,
    source: str | None = None,
    with_intervals: bool = False,
    with_comparison: bool = False,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    compound_split: bool = False,
    by: str | None = None,
    worst: int = 0,
    html: Path | None = None,
    sentences: bool = False,
    comet_model: str = COMET_MODEL,
) -> ScoreResult:
    """Score one or more systems against one or more references.

    Args:
        references: text files, compressed or not, line by line the same sentences; or nothing, with a test set.
        hypotheses: each system's translations: files, or "-" for stdin.
        metrics: what to compute, such as "bleu,chrf++".
        tokenize, lowercase, smooth, smooth_value: as in MetricOptions.
        langs: language pair, such as "en-de"; None = the target language is taken from the first reference's name
            (test.de, test.de.gz).
        test_set: one of sacreBLEU's instead of references.
        from_folder: where its archive is already.
        source: a file with what was translated.
        with_intervals: 95 % confidence intervals.
        with_comparison: test each system against the first one.
        resamples, trials: of the bootstrap and of approximate randomisation.
        compound_split: BLEU in the paper's convention too.
        by: "length", or a file with a label for each line: scores of parts.
        worst: how many of the worst lines to give.
        html: a page to write, for one or two systems.
        sentences: write one JSON object for each line to stdout.
        comet_model: of the metric comet.
    Raises:
        AiaynError: a file is missing or not text, line counts differ, an unknown metric, tokeniser or set.
    """
    names = find_metrics(metrics)
    _check_usage(references, hypotheses, test_set, from_folder, source, with_comparison, html)
    if smooth_value is not None and smooth not in ("floor", "add-k"):
        raise UsageError(f"--smooth-value {smooth_value:g} with --smooth {smooth}", "it is for floor and add-k")
    if html is not None:
        labels = () if by in (None, "length") else (by,)
        check_place(html, [*map(str, references), *hypotheses, *filter(None, (source, *labels))])
    options = MetricOptions(
        tokenize=tokenize,
        tgt_lang=target_language(langs, references),
        lowercase=lowercase,
        smooth=smooth,
        smooth_value=smooth_value,
    )
    loaded = None if test_set is None else load_set(test_set, langs, from_folder)
    if by == "-" and "-" in (*hypotheses, source, *map(str, references)):
        raise UsageError("stdin is named more than once", "give the labels with --by FILE")
    texts = read_texts(references, hypotheses, loaded, source)
    remark_on_language(options, names, texts.reference_lines[0])
    warnings = warn(texts)
    scored = [_count(name, texts, options, comet_model) for name in names]
    systems = []
    for number, (name, lines) in enumerate(texts.systems.items()):
        split = compound_split_bleu(lines, texts.reference_lines, options.tgt_lang or "") if compound_split else None
        scores = tuple(
            with_confidence(each.metric, each.statistics[number], resamples)
            if with_intervals
            else each.metric.score(each.statistics[number])
            for each in scored
        )
        systems.append(SystemScores(name, scores, split, tuple(warnings[number])))
    result = ScoreResult(
        references=tuple(texts.references),
        lines=texts.lines,
        systems=tuple(systems),
        comparisons=tuple(
            comparison
            for each in (scored if with_comparison else ())
            for comparison in compare(each.metric, list(texts.systems), each.statistics, resamples, trials)
        ),
        parts=tuple(_part_scores(part, scored) for part in _parts(by, texts, options.tgt_lang)),
        worst=tuple(_sentence(number, texts, scored) for number in _worst(scored[0], worst)),
        html=html,
    )
    if html is not None:
        parts = _parts("length" if by is None else by, texts, options.tgt_lang)
        everything = [_sentence(number, texts, scored) for number in range(texts.lines)]
        write_page(html, result, [_part_scores(part, scored) for part in parts], everything)
    if sentences:
        _write_sentences(texts, scored)
    return result


def run_echo(test_set: str, langs: str | None, side: str, from_folder: Path | None = None) -> None:
    """Write one side of a test set to stdout.

    Args:
        test_set: sacreBLEU's name.
        langs: language pair.
        side: "src", or "ref" for the (first) reference.
        from_folder: where its archive is already.
    Raises:
        AiaynError: there is no such set, or it cannot be had.
    """
    found = load_set(test_set, langs, from_folder)
    write_records(sys.stdout.buffer, found.source if side == "src" else next(iter(found.references.values())))
    sys.stdout.buffer.flush()


def _check_usage(
    references: Sequence[Path],
    hypotheses: Sequence[str],
    test_set: str | None,
    from_folder: Path | None,
    source: str | None,
    with_comparison: bool,
    html: Path | None,
) -> None:
    if test_set is None and not references:
        raise UsageError("there is nothing to score against", "name a reference, or one of sacreBLEU's sets with -t")
    if test_set is not None and (references or source is not None):
        raise UsageError(f"-t {test_set} brings its own references and source", "leave out the files, or -t")
    if test_set is None and from_folder is not None:
        raise UsageError(
            f"--from {from_folder} without -t", "it is where a test set's archive is: add -t, or leave it out"
        )
    if with_comparison and len(hypotheses) < 2:
        raise UsageError("--compare needs two systems", "add another --hyp")
    if html is not None and len(hypotheses) > 2:
        raise UsageError(f"--html shows one or two systems, not {len(hypotheses)}", "name two with --hyp")


def _count(name: str, texts: Texts, options: MetricOptions, comet_model: str) -> _Scored:
    metric: Metric
    if name == "comet":
        metric = CometMetric(texts.reference_lines, texts.source, comet_model)
    else:
        metric = SacreMetric(name, texts.reference_lines, options, workers=None)
    return _Scored(metric=metric, statistics=metric.statistics(list(texts.systems.values())))


def _parts(by: str | None, texts: Texts, tgt_lang: str | None) -> list[Part]:
    if by is None:
        return []
    if by == "length":
        return parts_by_length(texts.reference_lines[0], is_written_in_characters(tgt_lang))
    return parts_by_label(read_file(by), by, texts.lines)


def _part_scores(part: Part, scored: Sequence[_Scored]) -> PartScores:
    return PartScores(
        part.label,
        len(part.lines),
        tuple(
            tuple(each.metric.score([statistics[line] for line in part.lines]).score for statistics in each.statistics)
            for each in scored
        ),
    )


def _worst(scored: _Scored, wanted: int) -> list[int]:
    """The lines with the worst mean over the systems, by the first metric; the worst first."""
    if not wanted:
        return []

    def badness(number: int) -> float:
        mean = sum(scored.metric.sentence(statistics[number]) for statistics in scored.statistics)
        return -mean if scored.metric.lower_is_better else mean

    return sorted(range(len(scored.statistics[0])), key=badness)[:wanted]


def _sentence(number: int, texts: Texts, scored: Sequence[_Scored]) -> Sentence:
    return Sentence(
        line=number + 1,
        scores={
            each.metric.label: tuple(each.metric.sentence(statistics[number]) for statistics in each.statistics)
            for each in scored
        },
        source=None if texts.source is None else texts.source[number],
        references=tuple(reference[number] for reference in texts.reference_lines),
        hypotheses=tuple(lines[number] for lines in texts.systems.values()),
    )


def _write_sentences(texts: Texts, scored: Sequence[_Scored]) -> None:
    """Write JSON lines: with one system plain values, with several lists in their order."""

    def record(number: int) -> str:
        sentence = _sentence(number, texts, scored)
        single = len(texts.systems) == 1
        content = {
            "line": sentence.line,
            "scores": {label: values[0] if single else values for label, values in sentence.scores.items()},
            "hypothesis" if single else "hypotheses": sentence.hypotheses[0] if single else sentence.hypotheses,
            "references": sentence.references,
        }
        if sentence.source is not None:
            content["source"] = sentence.source
        return json.dumps(content, ensure_ascii=False)

    write_records(sys.stdout.buffer, map(record, range(texts.lines)))
    sys.stdout.buffer.flush()
