"""BLEU, chrF, chrF++ and TER of plain text, computed by sacreBLEU and printed with its signature.

All four are functions of sums over lines: of counts that each line gives by itself. They are taken once for a system
(`Metric.statistics`); from them come its score, that of any part of the lines, and every resampling.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from aiayn_cli.errors import AiaynError, did_you_mean
from aiayn_cli.processes import Processes

METRICS = ("bleu", "chrf", "chrf+", "chrf++", "ter")
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # sacreBLEU's own names
Smoothing = Literal["exp", "floor", "add-k", "none"]
Statistics = Sequence[Sequence[float]]  # [lines][counts of the metric]

_BATCH_LINES = 100  # counted together: sacreBLEU holds the n-grams of all references that it is given at once
# Lines for which another process pays off: to start one takes about as long as to count them.
_LINES_WORTH_A_PROCESS = 500
_LINES_OF_BLEU_WORTH_A_PROCESS = 10_000

# Languages written without blanks, or with blanks that do not part words: never 13a (sacreBLEU's own choice).
_TOKENIZER_OF_LANGUAGE = {
    "zh": "zh", "zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh",
    "ja": "ja-mecab", "jpn": "ja-mecab",
    "ko": "ko-mecab", "kor": "ko-mecab",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """How the metrics are computed; the defaults are sacreBLEU's.

    Attributes:
        tokenize: sacreBLEU's name of BLEU's tokeniser; None = the one that suits the target language.
        tgt_lang: target language, such as "de" or "zh-TW"; None or unknown = 13a.
        lowercase: compare without case (BLEU and chrF; TER never heeds it).
        smooth: BLEU's smoothing of n-grams that never match.
        smooth_value: of "floor" and "add-k"; None = sacreBLEU's.
    """

    tokenize: str | None = None
    tgt_lang: str | None = None
    lowercase: bool = False
    smooth: Smoothing = "exp"
    smooth_value: float | None = None


DEFAULTS = MetricOptions()


@dataclass(frozen=True, kw_only=True)
class Score:
    """A metric's value for a corpus; str() gives sacreBLEU's line and the signature.

    Attributes:
        metric: such as "BLEU" or "chrF2++".
        score: 0 to 100 (TER may be higher; there, lower is better; COMET is given times 100).
        signature: sacreBLEU's; two scores can be compared only where it is the same.
        detail: what sacreBLEU prints after the score.
        mean, interval: of bootstrap resamples; the true mean is in mean ± interval with 95 % confidence; None without
            --confidence.
    """

    metric: str
    score: float
    signature: str
    detail: str = ""
    mean: float | None = None
    interval: float | None = None

    def __str__(self) -> str:
        confidence = "" if self.mean is None else f"(μ = {self.mean:.2f} ± {self.interval:.2f})"
        line = " ".join(filter(None, (f"{self.metric} = {self.score:.2f}", confidence, self.detail)))
        return f"{line}\n{self.signature}"


@dataclass(frozen=True, kw_only=True)
class BleuScore(Score):
    """BLEU of a corpus.

    Attributes:
        precisions: of 1-grams to 4-grams, in per cent.
        brevity_penalty: factor below 1 where the hypotheses are shorter than the references.
        hyp_length: tokens of the hypotheses.
        ref_length: tokens of the references (of the closest one where there are several).
    """

    precisions: tuple[float, ...]
    brevity_penalty: float
    hyp_length: int
    ref_length: int


class Metric(Protocol):
    """Scores a system's lines against references that it holds."""

    label: str
    lower_is_better: bool

    def statistics(self, systems: Sequence[Sequence[str]]) -> list[Statistics]:
        """The counts of each line of each system; AiaynError where line counts differ from the references'."""

    def score(self, statistics: Statistics) -> Score:
        """The metric of one or more lines, from their counts."""

    def sentence(self, counts: Sequence[float]) -> float:
        """The metric of one line, as sacreBLEU computes it for sentences."""

    @property
    def backend(self) -> Any:
        """The metric as sacreBLEU's significance tests use it."""


class SacreMetric:
    """One of sacreBLEU's metrics, with references; its methods are Metric's.

    Args:
        name: one of METRICS.
        references: one or more translations of the whole, each with one line for each sentence: detokenised and cased.
        options: how to compute it.
        workers: processes that may count at most.

    Attributes:
        label: such as "BLEU" or "chrF2++".
        lower_is_better: TER counts errors.
    Raises:
        AiaynError: no reference, references of different lengths, an unknown metric or tokeniser.
    """

    def __init__(
        self, name: str, references: Sequence[Sequence[str]], options: MetricOptions = DEFAULTS, workers: int = 1
    ) -> None:
        _check_references(references)
        self._name, self._references, self._options = name, references, options
        worth_a_process = _LINES_OF_BLEU_WORTH_A_PROCESS if name == "bleu" else _LINES_WORTH_A_PROCESS
        self._workers = min(workers, len(references[0]) // worth_a_process)
        self._metric = _make(name, options)
        self._metric.num_refs = len(references)
        # A sentence shorter than four words has no 4-gram: sacreBLEU leaves such orders out, for sentences only.
        self._of_sentence = _make(name, options, effective_order=True) if name == "bleu" else self._metric
        self.label = "TER" if name == "ter" else "BLEU" if name == "bleu" else "chrF2" + name[4:]
        self.lower_is_better = name == "ter"

    def statistics(self, systems: Sequence[Sequence[str]]) -> list[Statistics]:
        total = len(self._references[0])
        for hypotheses in systems:
            if len(hypotheses) != total:
                raise AiaynError(
                    f"the hypotheses have {len(hypotheses):,} lines, but the references have {total:,}",
                    "score the same test set that was translated, line by line",
                )
        batches = (
            [[lines[start : start + _BATCH_LINES] for lines in texts] for texts in (systems, self._references)]
            for start in range(0, total, _BATCH_LINES)
        )
        arguments = (self._name, self._options)
        if self._workers < 2:
            counted = map(_counter(*arguments)[1], batches)
            return _joined(counted, len(systems))
        names = [f"worker {number + 1}" for number in range(self._workers)]
        with Processes(_counter, [arguments] * self._workers, names, _killed) as pool:
            return _joined((counts for _, counts in pool.map(batches)), len(systems))

    def score(self, statistics: Statistics) -> Score:
        found = self._metric._aggregate_and_compute(statistics)
        common: dict[str, Any] = {
            "metric": found.name,
            "score": found.score,
            "signature": str(self._metric.get_signature()),
            "detail": found.format().removeprefix(f"{found.name} = {found.score:.2f}").lstrip(),
        }
        if self._name != "bleu":
            return Score(**common)
        return BleuScore(
            **common,
            precisions=tuple(found.precisions),
            brevity_penalty=found.bp,
            hyp_length=found.sys_len,
            ref_length=found.ref_len,
        )

    def sentence(self, counts: Sequence[float]) -> float:
        return float(self._of_sentence._aggregate_and_compute([counts]).score)

    @property
    def backend(self) -> Any:
        return self._metric


def _counter(name: str, options: MetricOptions) -> tuple[None, Callable[[Any], list[Statistics]]]:
    """The work of one process: from a batch, [lines of each system, lines of each reference], to counts."""

    def count(batch: list[list[Sequence[str]]]) -> list[Statistics]:
        systems, references = batch
        metric = _make(name, options, references=references)
        return [metric._extract_corpus_statistics(hypotheses, None) for hypotheses in systems]

    return None, count


def _joined(batches: Iterable[list[Statistics]], systems: int) -> list[Statistics]:
    counts: list[list[Sequence[float]]] = [[] for _ in range(systems)]
    for batch in batches:
        for of_system, found in zip(counts, batch, strict=True):
            of_system += found
    return list(counts)


def _killed(how: str) -> AiaynError:
    return AiaynError(how, "the kernel sends SIGKILL when memory runs out; nothing was written")


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str | None = None,
    tgt_lang: str | None = None,
) -> BleuScore:
    """BLEU (Papineni et al. 2002) of detokenised, cased text, with sacreBLEU's defaults, as `aiayn score` computes it.

    Args:
        hypotheses: one line for each sentence.
        references: one or more translations of the whole, each with one line for each sentence.
        tokenize, tgt_lang: as in MetricOptions.

    Raises:
        AiaynError: line counts differ, there is no line, or the tokeniser is unknown or not installed.
    """
    metric = SacreMetric("bleu", references, MetricOptions(tokenize=tokenize, tgt_lang=tgt_lang))
    [statistics] = metric.statistics([hypotheses])
    score = metric.score(statistics)
    assert isinstance(score, BleuScore)
    return score


def find_metrics(names: str) -> list[str]:
    """Split "bleu,chrf" into names of METRICS or "comet", each once.

    Raises:
        AiaynError: one is unknown.
    """
    found = []
    for name in names.lower().split(","):
        name = name.strip()
        if name not in (*METRICS, "comet"):
            raise AiaynError(f"unknown metric {name!r}", did_you_mean(name, (*METRICS, "comet")))
        if name not in found:
            found.append(name)
    return found


def primary_language(code: str | None) -> str:
    """ "zh" of "zh-TW" or "ZH_Hans"; "" of None."""
    return re.split("[-_]", (code or "").lower())[0]


def tokenizer_of(tgt_lang: str | None) -> str:
    """The tokeniser that suits a language: zh for Chinese, ja-mecab, ko-mecab, and 13a for all others."""
    return _TOKENIZER_OF_LANGUAGE.get(primary_language(tgt_lang), "13a")


def is_written_in_characters(tgt_lang: str | None) -> bool:
    """Whether a language is Chinese or Japanese, of which TER has to count characters instead of words."""
    return tokenizer_of(tgt_lang) in ("zh", "ja-mecab")


def _check_references(references: Sequence[Sequence[str]]) -> None:
    if not references:
        raise AiaynError("there is no reference to score against", "give at least one")
    for number, reference in enumerate(references[1:], start=2):
        if len(reference) != len(references[0]):
            raise AiaynError(
                f"reference 1 has {len(references[0]):,} lines, but reference {number} has {len(reference):,}",
                "all references translate the same test set, line by line",
            )
    if not references[0]:
        raise AiaynError("there is no line to score: the references are empty", "check the files")


def _make(
    name: str,
    options: MetricOptions,
    effective_order: bool = False,
    references: Sequence[Sequence[str]] | None = None,
) -> Any:
    match name:
        case "bleu":
            return _make_bleu(options, effective_order, references)
        case "chrf" | "chrf+" | "chrf++":
            return CHRF(word_order=name.count("+"), lowercase=options.lowercase, references=references)
        case "ter":
            in_characters = is_written_in_characters(options.tgt_lang)
            return TER(normalized=in_characters, asian_support=in_characters, references=references)
        case _:
            raise AiaynError(f"unknown metric {name!r}", did_you_mean(name, METRICS))


def _make_bleu(options: MetricOptions, effective_order: bool, references: Sequence[Sequence[str]] | None) -> BLEU:
    tokenizer = options.tokenize or tokenizer_of(options.tgt_lang)
    if tokenizer not in TOKENIZERS:
        hint = did_you_mean(tokenizer, TOKENIZERS)
        hint += "" if hint.startswith("known") else f" There are {', '.join(TOKENIZERS)}"
        raise AiaynError(f"unknown BLEU tokeniser {tokenizer!r}", hint)
    try:
        return BLEU(
            tokenize=tokenizer,
            lowercase=options.lowercase,
            smooth_method=options.smooth,
            smooth_value=options.smooth_value,
            force=True,  # the command itself warns of text that looks tokenised (score/checks.py)
            effective_order=effective_order,
            references=references,
        )
    except (ImportError, RuntimeError) as error:
        language = tokenizer.split("-")[0]
        raise AiaynError(
            f"BLEU tokeniser {tokenizer} needs a package that is not installed",
            f'pip install "sacrebleu[{language}]"; or score with --tokenize char, '
            "and train with --set training.best_metric=loss --set training.validation_bleu_pairs=0",
        ) from error
