"""What `aiayn score` does: read references and hypotheses, look for signs of misleading scores, compute, write."""

import importlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.corpora.named_corpora import parse_langs
from aiayn_cli.corpora.test_sets import TestSet, load_test_set
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.files import check_writable, read_place, write_output
from aiayn_cli.parsing.evalb import run_score_brackets as run_score_brackets  # for the command
from aiayn_cli.processes import default_workers
from aiayn_cli.score.checks import remark_on_language, warn
from aiayn_cli.score.comet import COMET_MODEL, CometMetric, Metric
from aiayn_cli.score.metrics import (
    DEFAULTS,
    SacreMetric,
    Statistics,
    compound_split_bleu,
    find_metrics,
    is_written_in_characters,
)
from aiayn_cli.score.metrics import MetricOptions as MetricOptions  # for the command
from aiayn_cli.score.result import PartScores, ScoredLine, ScoreResult, SystemScores
from aiayn_cli.score.significance import RESAMPLES, TRIALS, compare, with_confidence
from aiayn_cli.text.compression import compression_of_name
from aiayn_cli.text.lines import check_lines, display_name, read_file, write_records

_UPPER_ENDS = (10, 20, 30, 40, 50)  # words of the reference, of --by length

Parts = dict[str, list[int]]  # line numbers, from 0, by the label of a part of the test set


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """The options of `aiayn score`, explained by its help."""

    references: Sequence[Path] = ()  # empty with a test set
    hypotheses: Sequence[str] = ("-",)  # of each system; "-" is stdin
    metrics: str = "bleu"  # with commas
    how: MetricOptions = DEFAULTS  # without the target language
    langs: str | None = None  # None = the target language is the suffix of the first reference's name
    test_set: str | None = None  # one of sacreBLEU's
    from_folder: Path | None = None  # has the test set's archive
    source: str | None = None
    confidence: bool = False
    compare: bool = False
    resamples: int = RESAMPLES
    trials: int = TRIALS
    compound_split: bool = False
    by: str | None = None  # "length" or a file
    worst: int = 0
    html: Path | None = None
    sentences: bool = False
    comet_model: str = COMET_MODEL


@dataclass(frozen=True)
class Texts:
    """What is scored; all have the same number of lines."""

    systems: dict[str, list[str]]  # lines by name
    references: dict[str, list[str]]  # lines by name; one or more
    source: list[str] | None  # None = unknown

    @property
    def reference_lines(self) -> list[list[str]]:
        return list(self.references.values())

    @property
    def lines(self) -> int:
        return len(self.reference_lines[0])


@dataclass(frozen=True)
class _Scored:
    """A metric, and its counts of each system's lines."""

    metric: Metric
    statistics: list[Statistics]

    def of_line(self, number: int) -> tuple[float, ...]:
        """Each system's score of one line."""
        return tuple(self.metric.sentence(of_system[number]) for of_system in self.statistics)


def run_score(options: ScoreOptions) -> ScoreResult:
    """Score one or more systems against one or more references.

    Raises:
        AiaynError: a file is missing, empty or not text, line counts differ, a metric, tokeniser or set is unknown, or
            options contradict each other.
    """
    names = find_metrics(options.metrics)
    _check_usage(options)
    tgt_lang = _target_language(options.langs, options.references)
    how = replace(options.how, tgt_lang=tgt_lang)
    texts = read_texts(options)
    parts = _parts(options.by, texts, tgt_lang)
    remark_on_language(how, names, texts.reference_lines[0])
    warnings = warn(texts.systems, texts.reference_lines, texts.source)
    scored = [_count(name, texts, how, options.comet_model) for name in names]
    systems = []
    for number, (name, lines) in enumerate(texts.systems.items()):
        scores = [
            with_confidence(each.metric, each.statistics[number], options.resamples)
            if options.confidence
            else each.metric.score(each.statistics[number])
            for each in scored
        ]
        split = compound_split_bleu(lines, texts.reference_lines, tgt_lang) if options.compound_split else None
        systems.append(SystemScores(name, tuple(scores), split, tuple(warnings[number])))
    comparisons = [
        test
        for each in (scored if options.compare else ())
        for test in compare(each.metric, list(texts.systems), each.statistics, options.resamples, options.trials)
    ]
    result = ScoreResult(
        references=tuple(texts.references), lines=texts.lines, systems=tuple(systems), comparisons=tuple(comparisons),
        parts=_part_scores(parts, scored),
        worst=tuple(_scored_line(number, texts, scored) for number in _worst(scored[0], options.worst)),
        html=options.html,
    )  # fmt: skip
    if options.html is not None:
        parts = parts or _parts("length", texts, tgt_lang)
        all_lines = [_scored_line(number, texts, scored) for number in range(texts.lines)]
        write_output(options.html, result.page(_part_scores(parts, scored), all_lines), "give another --html")
    if options.sentences:
        _write_sentences(texts, scored)
    return result


def run_echo(test_set: str, langs: str | None, side: str, from_folder: Path | None = None) -> None:
    """Write one side of a test set, "src" or its first "ref", to stdout; raises AiaynError as load_test_set() does."""
    found = load_set(test_set, langs, from_folder)
    write_records(sys.stdout.buffer, found.source if side == "src" else next(iter(found.references.values())))
    sys.stdout.buffer.flush()


def _check_usage(options: ScoreOptions) -> None:
    test_set, how, html = options.test_set, options.how, options.html
    if test_set is None and not options.references:
        raise UsageError("no reference is named", "name a file, or one of sacreBLEU's test sets with -t")
    if test_set is not None and (options.references or options.source is not None):
        raise UsageError(f"-t {test_set} has its own references and source", "remove the files, or -t")
    if test_set is None and options.from_folder is not None:
        raise UsageError("--from needs -t", "add -t: --from has the archive of a test set")
    if options.compare and len(options.hypotheses) < 2:
        raise UsageError("--compare needs at least two systems", "add another --hyp")
    if html is not None and len(options.hypotheses) > 2:
        raise UsageError(f"--html shows one or two systems, not {len(options.hypotheses)}", "name two with --hyp")
    if how.smooth_value is not None and how.smooth not in ("floor", "add-k"):
        raise UsageError(f"--smooth-value {how.smooth_value:g} with --smooth {how.smooth}", "it needs floor or add-k")
    labels = None if options.by == "length" else options.by
    inputs = [*map(str, options.references), *options.hypotheses, *filter(None, (options.source, labels))]
    if html is not None:
        _check_page(html, inputs)
    if inputs.count("-") > 1:
        hint = "give the labels with --by FILE" if options.by == "-" else "give the hypotheses with --hyp FILE"
        raise UsageError("stdin is named more than once", hint)
    for names, what in ((options.hypotheses, "--hyp"), (options.references, "reference")):
        if twice := [name for name, count in Counter(map(str, names)).items() if count > 1]:
            raise UsageError(f"{what} {twice[0]} is named twice", "name each once")


def _check_page(path: Path, inputs: Sequence[str]) -> None:
    if str(path) == "-":
        raise UsageError("--html - is not a file: stdout has the scores", "name a file, such as --html compare.html")
    check_writable(path)
    place = read_place(path, inputs)
    if place is not None:
        first = "" if place == path else f": its temporary file {place}"
        raise UsageError(f"--html {path}{first} is one of the input files", "give the page another name")


def read_texts(options: ScoreOptions) -> Texts:
    """Read everything that is scored; AiaynError if a file cannot be read or is empty, or line counts differ."""
    if options.test_set is None:
        references = {display_name(path): read_file(path) for path in options.references}
        source = None if options.source is None else read_file(options.source)
    else:
        test_set = load_set(options.test_set, options.langs, options.from_folder)
        name = f"{test_set.name} {test_set.langs}"
        references = {f"{name} {field}": lines for field, lines in test_set.references.items()}
        source = test_set.source
    if "-" in options.hypotheses and sys.stdin is not None and sys.stdin.isatty():
        logs.notice("type the translations, and Ctrl-D at the end; --hyp FILE reads them from a file")
    systems = {display_name(path): read_file(path) for path in options.hypotheses}
    if systems.get("stdin") == []:
        hint = "give them with < FILE or --hyp FILE; files without an option are references"
        raise DataError("stdin is empty: there are no translations", hint)
    sources = {} if source is None else {display_name(options.source or "the test set's source"): source}
    check_lines({**references, **systems, **sources})
    return Texts(systems=systems, references=references, source=source)


def load_set(name: str, langs: str | None, from_folder: Path | None) -> TestSet:
    """One of sacreBLEU's test sets, downloaded if necessary; raises AiaynError as load_test_set() does."""
    # Here, because it loads requests, which takes as long as everything else that a plain score loads.
    download = importlib.import_module("aiayn_cli.corpora.download")
    return load_test_set(name, langs, download.Downloads(download.DOWNLOADS_FOLDER, from_folder))


def _target_language(langs: str | None, references: Sequence[Path]) -> str:
    """The language after the dash of a pair, else the suffix of a file name such as test.de.gz; "" if neither is."""
    if langs is not None:
        return parse_langs(langs)[1]
    path = references[0] if references else Path()
    return (path.with_suffix("") if compression_of_name(path) else path).suffix[1:]


def _count(name: str, texts: Texts, how: MetricOptions, comet_model: str) -> _Scored:
    metric: Metric
    if name == "comet":
        metric = CometMetric(texts.reference_lines, texts.source, comet_model)
    else:
        workers = 1 if "torch" in sys.modules else default_workers()  # COMET loads it, and its threads forbid forks
        metric = SacreMetric(name, texts.reference_lines, how, workers)
    return _Scored(metric, metric.statistics(list(texts.systems.values())))


def _parts(by: str | None, texts: Texts, tgt_lang: str) -> Parts:
    if by is None:
        return {}
    if by == "length":
        return parts_by_length(texts.reference_lines[0], in_characters=is_written_in_characters(tgt_lang))
    return parts_by_label(read_file(by), display_name(by), texts.lines)


def parts_by_length(reference: Sequence[str], in_characters: bool = False) -> Parts:
    """Divide a test set by the length of its (first) reference, in characters or in words between blanks."""
    unit = "characters" if in_characters else "words"
    lengths = [len(line.replace(" ", "")) if in_characters else len(line.split()) for line in reference]
    parts: Parts = {}
    least = 0
    for most in _UPPER_ENDS:
        parts[f"{least}-{most} {unit}"] = [n for n, length in enumerate(lengths) if least <= length <= most]
        least = most + 1
    parts[f"{least} {unit} or more"] = [n for n, length in enumerate(lengths) if length >= least]
    return {label: lines for label, lines in parts.items() if lines}


def parts_by_label(labels: Sequence[str], name: str, lines: int) -> Parts:
    """Divide a test set by a label of each line, such as its domain or document; `name` is that of their file."""
    if len(labels) != lines:
        found = logs.counted(len(labels), "label")
        raise DataError(f"{name} has {found}, but there are {lines:,} references", "give one label for each line")
    parts: Parts = {}
    for number, label in enumerate(labels):
        parts.setdefault(label.strip() or "(no label)", []).append(number)
    return parts


def _part_scores(parts: Parts, scored: Sequence[_Scored]) -> tuple[PartScores, ...]:
    def scores(each: _Scored, lines: Sequence[int]) -> tuple[float, ...]:
        return tuple(each.metric.score([of_system[n] for n in lines]).score for of_system in each.statistics)

    return tuple(
        PartScores(label, len(lines), tuple(scores(each, lines) for each in scored)) for label, lines in parts.items()
    )


def _worst(scored: _Scored, wanted: int) -> list[int]:
    """The lines with the worst mean over the systems, by the first metric; the worst first."""
    if not wanted:
        return []
    sign = -1 if scored.metric.lower_is_better else 1
    return sorted(range(len(scored.statistics[0])), key=lambda number: sign * sum(scored.of_line(number)))[:wanted]


def _scored_line(number: int, texts: Texts, scored: Sequence[_Scored]) -> ScoredLine:
    return ScoredLine(
        number + 1, {each.metric.label: each.of_line(number) for each in scored},
        source=None if texts.source is None else texts.source[number],
        references=tuple(reference[number] for reference in texts.reference_lines),
        hypotheses=tuple(lines[number] for lines in texts.systems.values()),
    )  # fmt: skip


def _write_sentences(texts: Texts, scored: Sequence[_Scored]) -> None:
    """Write JSON lines: with one system plain values, with several lists in their order."""
    single = len(texts.systems) == 1

    def record(number: int) -> str:
        line = _scored_line(number, texts, scored)
        content = {
            "line": line.line,
            "scores": {label: values[0] if single else values for label, values in line.scores.items()},
            "hypothesis" if single else "hypotheses": line.hypotheses[0] if single else line.hypotheses,
            "references": line.references,
        }
        if line.source is not None:
            content["source"] = line.source
        return json.dumps(content, ensure_ascii=False)

    write_records(sys.stdout.buffer, map(record, range(texts.lines)))
    sys.stdout.buffer.flush()
