"""BLEU, chrF, chrF++ and TER of plain text by sacreBLEU, each with its signature; and BLEU in the paper's convention.

sacreBLEU's four are functions of sums of counts over lines. A system is counted once (`SacreMetric.statistics`); its
score, the score of any subset of the lines, and every resample come from those counts.
"""

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from typing import Any, Literal

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from aiayn_cli.errors import AiaynError, did_you_mean
from aiayn_cli.processes import Processes
from aiayn_cli.recipe_keys import TextConfig
from aiayn_cli.text.languages import primary_language
from aiayn_cli.text.moses import MosesText, rules_of

METRICS = ("bleu", "chrf", "chrf+", "chrf++", "ter")
TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # sacreBLEU's own names
Smoothing = Literal["exp", "floor", "add-k", "none"]
Statistics = Sequence[Sequence[float]]  # [lines][counts of the metric]

_BATCH_LINES = 100  # counted together: sacreBLEU holds the n-grams of all references that it is given
# Lines for which another process pays off: starting one takes about as long as counting them.
_LINES_WORTH_A_PROCESS = 500
_LINES_OF_BLEU_WORTH_A_PROCESS = 10_000

# Languages written without blanks, or with blanks that do not separate words: never 13a (sacreBLEU's own choice).
_TOKENIZER_OF_LANGUAGE = {"zh": "zh", "yue": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """How the metrics are computed; the defaults are sacreBLEU's."""

    tokenize: str | None = None  # sacreBLEU's name of BLEU's tokeniser; None = the one for the target language
    tgt_lang: str | None = None  # such as "de" or "zh-TW"; None or unknown = 13a
    lowercase: bool = False  # compare BLEU and chrF without case; TER always does
    smooth: Smoothing = "exp"  # of BLEU's n-grams that never match
    smooth_value: float | None = None  # of "floor" and "add-k"; None = sacreBLEU's


DEFAULTS = MetricOptions()


@dataclass(frozen=True, kw_only=True)
class Score:
    """A metric's value for a corpus; str() gives sacreBLEU's line and the signature."""

    metric: str  # such as "BLEU" or "chrF2++"
    score: float  # 0 to 100; TER can be higher, and lower is better there; COMET times 100
    signature: str  # only scores with the same one can be compared
    detail: str = ""  # what sacreBLEU prints after the score
    # Of bootstrap resamples; the true mean is in mean ± interval with 95 % confidence; None without --confidence.
    mean: float | None = None
    interval: float | None = None

    def __str__(self) -> str:
        confidence = "" if self.mean is None else f"(μ = {self.mean:.2f} ± {self.interval:.2f})"
        line = " ".join(filter(None, (f"{self.metric} = {self.score:.2f}", confidence, self.detail)))
        return f"{line}\n{self.signature}"


@dataclass(frozen=True, kw_only=True)
class BleuScore(Score):
    """BLEU of a corpus, with what it is made of."""

    precisions: tuple[float, ...]  # of 1-grams to 4-grams, in per cent
    brevity_penalty: float  # below 1 where the hypotheses are shorter than the references
    hyp_length: int  # in tokens, as the next
    ref_length: int  # of the closest reference where there are several


class SacreMetric:
    """One of METRICS, with references: one or more translations of the test set, not empty, detokenised and cased.

    It counts in `workers` processes at most. They are forked, so torch must not be loaded with more than 1.
    """

    def __init__(
        self, name: str, references: Sequence[Sequence[str]], options: MetricOptions = DEFAULTS, workers: int = 1
    ) -> None:
        self.label = "TER" if name == "ter" else "BLEU" if name == "bleu" else "chrF2" + name[4:]
        self.lower_is_better = name == "ter"  # it counts errors
        self._name, self._references, self._options, self._workers = name, references, options, workers
        self.backend = _make(name, options)  # what sacreBLEU's significance tests use
        self.backend.num_refs = len(references)
        # A sentence shorter than four words has no 4-gram: sacreBLEU ignores such orders, for sentences only.
        self._of_sentence = _make(name, options, effective_order=True) if name == "bleu" else self.backend

    def statistics(self, systems: Sequence[Sequence[str]]) -> list[Statistics]:
        """The counts of each line of each system; all systems have as many lines as the references."""
        lines = len(self._references[0])
        assert all(len(text) == lines for text in (*systems, *self._references))

        def count(start: int) -> list[Statistics]:
            batch = slice(start, start + _BATCH_LINES)
            metric = _make(self._name, self._options, [reference[batch] for reference in self._references])
            return [metric._extract_corpus_statistics(system[batch], None) for system in systems]

        starts = range(0, lines, _BATCH_LINES)
        worth = _LINES_OF_BLEU_WORTH_A_PROCESS if self._name == "bleu" else _LINES_WORTH_A_PROCESS
        workers = min(self._workers, lines // worth)
        if workers < 2:
            counted = [count(start) for start in starts]
        else:
            names = [f"worker {number + 1}" for number in range(workers)]
            with closing(Processes(lambda: (None, count), [()] * workers, names, _killed, start="fork")) as pool:
                counted = [counts for _, counts in pool.map(starts)]
        return [list(chain.from_iterable(batches)) for batches in zip(*counted, strict=True)]

    def score(self, statistics: Statistics) -> Score:
        """The metric of one or more lines, from their counts."""
        found = self.backend._aggregate_and_compute(statistics)
        common: dict[str, Any] = {
            "metric": found.name,
            "score": found.score,
            "signature": str(self.backend.get_signature()),
            "detail": found.format().removeprefix(f"{found.name} = {found.score:.2f}").lstrip(),
        }
        if self._name != "bleu":
            return Score(**common)
        return BleuScore(
            **common, precisions=tuple(found.precisions), brevity_penalty=found.bp, hyp_length=found.sys_len,
            ref_length=found.ref_len,
        )  # fmt: skip

    def sentence(self, counts: Sequence[float]) -> float:
        """The metric of one line, as sacreBLEU computes it for sentences."""
        return float(self._of_sentence._aggregate_and_compute([counts]).score)


def _killed(how: str) -> AiaynError:
    return AiaynError(how, "the kernel sends SIGKILL when memory runs out; nothing was written")


def _make(name: str, options: MetricOptions, references: Any = None, *, effective_order: bool = False) -> Any:
    if name == "ter":
        in_characters = is_written_in_characters(options.tgt_lang)
        return TER(normalized=in_characters, asian_support=in_characters, references=references)
    if name != "bleu":
        return CHRF(word_order=name.count("+"), lowercase=options.lowercase, references=references)
    tokenizer = options.tokenize or tokenizer_of(options.tgt_lang)
    if tokenizer not in TOKENIZERS:
        raise AiaynError(f"unknown BLEU tokeniser {tokenizer!r}", did_you_mean(tokenizer, TOKENIZERS))
    try:
        return BLEU(
            tokenize=tokenizer, lowercase=options.lowercase, smooth_method=options.smooth,
            smooth_value=options.smooth_value, effective_order=effective_order, references=references,
            force=True,  # the command itself warns of text that looks tokenised (score/checks.py)
        )  # fmt: skip
    except (ImportError, RuntimeError) as error:
        language = tokenizer.split("-")[0]
        raise AiaynError(
            f"BLEU tokeniser {tokenizer} needs a package that is not installed",
            f'pip install "sacrebleu[{language}]"; or score with --tokenize char, '
            "and train with --set training.best_metric=loss --set training.validation_bleu_pairs=0",
        ) from error


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tgt_lang: str | None = None) -> BleuScore:
    """BLEU (Papineni et al. 2002) of detokenised, cased text, as SacreMetric and `aiayn score` compute it."""
    metric = SacreMetric("bleu", references, MetricOptions(tgt_lang=tgt_lang))
    score = metric.score(*metric.statistics([hypotheses]))
    assert isinstance(score, BleuScore)
    return score


def find_metrics(names: str) -> list[str]:
    """Split "bleu,chrf" into names of METRICS or "comet", each once; AiaynError if one is unknown."""
    known = (*METRICS, "comet")
    found = list(dict.fromkeys(name.strip() for name in names.lower().split(",")))
    for name in found:
        if name not in known:
            raise AiaynError(f"unknown metric {name!r}", did_you_mean(name, known))
    return found


def tokenizer_of(tgt_lang: str | None) -> str:
    """The tokeniser that suits a language."""
    return _TOKENIZER_OF_LANGUAGE.get(primary_language(tgt_lang or ""), "13a")


def is_written_in_characters(tgt_lang: str | None) -> bool:
    """Whether a language is Chinese or Japanese, for which TER has to count characters instead of words."""
    return tokenizer_of(tgt_lang) in ("zh", "ja-mecab")


# ---- the paper's convention

# As in the authors' script: matches do not overlap, so that only the first hyphen of a-b-c is split off.
_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class CompoundSplitScore:
    """BLEU of tokens with split compounds; not comparable with sacreBLEU's."""

    score: float  # 0 to 100
    detail: str  # precisions, brevity penalty and lengths, as multi-bleu.perl names them
    hyp_length: int  # in tokens, as the next
    ref_length: int
    method: str  # how it was computed; not a signature of sacreBLEU's

    def __str__(self) -> str:
        return f"compound-split tokenised BLEU = {self.score:.2f} {self.detail}\n{self.method}"


def split_tokens(lines: Sequence[str], lang: str) -> list[str]:
    """Moses tokens with hyphens split off, joined by blanks: "E-Mail" becomes "E ##AT##-##AT## Mail"."""
    tokenised = MosesText(TextConfig(moses_tokenise=True), lang).apply(lines)
    return [_HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens) for tokens in tokenised]


def compound_split_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tgt_lang: str
) -> CompoundSplitScore:
    """Score plain text as the paper's authors did (Section 6.1 does not say how; their script get_ende_bleu.sh does).

    Moses tokens with hyphens split off, scored by multi-bleu.perl: with case, without smoothing. Papers from 2016 to
    2018 report such figures. They are higher than sacreBLEU's on the same output and depend on the version of the
    script: sacremoses tokenises like that of the time (64,496 tokens in newstest2014's German references, as fairseq's
    authors print), while today's splits off one more full stop in eight of those lines.
    """
    if not tgt_lang:
        raise AiaynError("the Moses tokeniser needs the target language", "add --langs, such as --langs en-de")
    metric = BLEU(tokenize="none", smooth_method="none", force=True)  # what multi-bleu.perl computes
    split_references = [split_tokens(reference, tgt_lang) for reference in references]
    found = metric.corpus_score(split_tokens(hypotheses, tgt_lang), split_references)
    precisions = "/".join(f"{precision:.1f}" for precision in found.precisions)
    ratio = found.sys_len / found.ref_len if found.ref_len else 0.0
    lengths = f"hyp_len={found.sys_len}, ref_len={found.ref_len}"
    return CompoundSplitScore(
        score=found.score, detail=f"{precisions} (BP={found.bp:.3f}, ratio={ratio:.3f}, {lengths})",
        hyp_length=found.sys_len, ref_length=found.ref_len,
        method=f"the paper's convention, not sacreBLEU: Moses tokens ({rules_of(tgt_lang)}, sacremoses "
        f"{metadata.version('sacremoses')}), hyphens split, multi-bleu",
    )  # fmt: skip
