"""BLEU, chrF, chrF++ and TER of plain text, computed by sacreBLEU and printed with its signature.

All four are functions of sums over lines: of counts that each line gives by itself. They are taken once for a system
(`Metric.statistics`); from them come its score, that of any part of the lines, and every resampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from aiayn_cli.errors import AiaynError, did_you_mean
from aiayn_cli.score.line_counts import count_lines
from aiayn_cli.score.tokenizers import check_tokenizer, is_written_in_characters, tokenizer_of

METRICS = ("bleu", "chrf", "chrf+", "chrf++", "ter")
Smoothing = Literal["exp", "floor", "add-k", "none"]
Statistics = Sequence[Sequence[float]]  # [lines][counts of the metric]


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
        mean, interval: of bootstrap resamples; the true mean is in mean ± interval with 95 % confidence; None where
            that was not asked for.
    """

    metric: str
    score: float
    signature: str
    detail: str = ""
    mean: float | None = None
    interval: float | None = None

    @property
    def line(self) -> str:
        """The score as sacreBLEU prints it, without the signature."""
        return " ".join(filter(None, (f"{self.metric} = {self.score:.2f}", self.confidence, self.detail)))

    @property
    def confidence(self) -> str:
        """The interval, in sacreBLEU's words; "" without one."""
        return "" if self.mean is None else f"(μ = {self.mean:.2f} ± {self.interval:.2f})"

    def __str__(self) -> str:
        return f"{self.line}\n{self.signature}"


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
    """What scores a system's lines against references that it holds."""

    label: str
    lower_is_better: bool

    def statistics(self, systems: Sequence[Sequence[str]]) -> list[Statistics]:
        """Take the counts of each line of each system.

        Args:
            systems: each with one line for each line of the references.
        Raises:
            AiaynError: line counts differ.
        """

    def score(self, statistics: Statistics) -> Score:
        """Compute the metric from the counts of one or more lines."""

    def sentence(self, counts: Sequence[float]) -> float:
        """Compute the metric of one line, as sacreBLEU does for sentences."""

    @property
    def backend(self) -> Any:
        """The metric as sacreBLEU's significance tests use it."""


class SacreMetric:
    """One of sacreBLEU's metrics, with references.

    Args:
        name: one of METRICS.
        references: one or more translations of the whole, each with one line for each sentence: detokenised and cased.
        options: how to compute it.
        workers: processes that may count, as in count_lines().

    Attributes:
        label: such as "BLEU" or "chrF2++".
        lower_is_better: TER counts errors.
    Raises:
        AiaynError: no reference, references of different lengths, an unknown metric or tokeniser.
    """

    def __init__(
        self, name: str, references: Sequence[Sequence[str]], options: MetricOptions = DEFAULTS, workers: int | None = 1
    ) -> None:
        _check_references(references)
        self._references, self._workers = references, workers
        self._lines_worth_a_process = 5_000 if name == "bleu" else 200
        self._metric: Any = _make(name, options)
        self._metric.num_refs = len(references)
        # A sentence shorter than four words has no 4-gram: sacreBLEU leaves such orders out, for sentences only.
        self._of_sentence: Any = _make(name, options, effective_order=True) if name == "bleu" else self._metric
        self.label = "TER" if name == "ter" else "BLEU" if name == "bleu" else "chrF2" + name[4:]
        self.lower_is_better = name == "ter"

    def statistics(self, systems: Sequence[Sequence[str]]) -> list[Statistics]:
        """Take the counts of each line of each system, as in Metric."""
        for hypotheses in systems:
            if len(hypotheses) != len(self._references[0]):
                raise AiaynError(
                    f"the hypotheses have {len(hypotheses):,} lines, but the references have "
                    f"{len(self._references[0]):,}",
                    "score the same test set that was translated, line by line",
                )
        return list(count_lines(self._metric, self._references, systems, self._workers, self._lines_worth_a_process))

    def score(self, statistics: Statistics) -> Score:
        """Compute the metric from counts, as in Metric."""
        found = self._metric._aggregate_and_compute(statistics)
        common: dict[str, Any] = {
            "metric": found.name,
            "score": found.score,
            "signature": str(self._metric.get_signature()),
            "detail": found._verbose,
        }
        if not isinstance(self._metric, BLEU):
            return Score(**common)
        return BleuScore(
            **common,
            precisions=tuple(found.precisions),
            brevity_penalty=found.bp,
            hyp_length=found.sys_len,
            ref_length=found.ref_len,
        )

    def sentence(self, counts: Sequence[float]) -> float:
        """Compute the metric of one line, as in Metric."""
        return float(self._of_sentence._compute_score_from_stats(counts).score)

    @property
    def backend(self) -> Any:
        """The metric as sacreBLEU's significance tests use it."""
        return self._metric


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


def _make(name: str, options: MetricOptions, effective_order: bool = False) -> Any:
    match name:
        case "bleu":
            return _make_bleu(options, effective_order)
        case "chrf" | "chrf+" | "chrf++":
            return CHRF(word_order=name.count("+"), lowercase=options.lowercase)
        case "ter":
            in_characters = is_written_in_characters(options.tgt_lang)
            return TER(normalized=in_characters, asian_support=in_characters)
        case _:
            raise AiaynError(f"unknown metric {name!r}", did_you_mean(name, METRICS))


def _make_bleu(options: MetricOptions, effective_order: bool) -> BLEU:
    tokenizer = options.tokenize or tokenizer_of(options.tgt_lang)
    check_tokenizer(tokenizer)
    try:
        return BLEU(
            tokenize=tokenizer,
            lowercase=options.lowercase,
            smooth_method=options.smooth,
            smooth_value=options.smooth_value,
            force=True,  # the stage itself warns of text that looks tokenised (score/checks.py)
            effective_order=effective_order,
        )
    except (ImportError, RuntimeError) as error:
        language = tokenizer.split("-")[0]
        raise AiaynError(
            f"BLEU tokeniser {tokenizer} needs a package that is not installed",
            f'pip install "sacrebleu[{language}]"; or score with --tokenize char, '
            "and train with --set training.best_metric=loss --set training.validation_bleu_pairs=0",
        ) from error
