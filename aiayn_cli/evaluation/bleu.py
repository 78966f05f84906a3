"""BLEU (Papineni et al. 2002) on plain text, computed by sacreBLEU and printed with its signature."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU

from aiayn_cli.errors import AiaynError

TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # sacreBLEU's own names

# Languages written without blanks, or with blanks that do not part words: never 13a (sacreBLEU's own choice).
_TOKENIZER_OF_LANGUAGE = {
    "zh": "zh", "zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh",
    "ja": "ja-mecab", "jpn": "ja-mecab",
    "ko": "ko-mecab", "kor": "ko-mecab",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BleuScore:
    """BLEU of a corpus; str() gives sacreBLEU's line and the signature.

    Attributes:
        metric: "BLEU".
        score: 0 to 100.
        signature: sacreBLEU's; two scores can be compared only where it is the same.
        precisions: of 1-grams to 4-grams, in per cent.
        brevity_penalty: factor below 1 where the hypotheses are shorter than the references.
        hyp_length: tokens of the hypotheses.
        ref_length: tokens of the references (of the closest one where there are several).
    """

    metric: str = "BLEU"
    score: float
    signature: str
    precisions: tuple[float, ...]
    brevity_penalty: float
    hyp_length: int
    ref_length: int

    def __str__(self) -> str:
        precisions = "/".join(f"{precision:.1f}" for precision in self.precisions)
        ratio = self.hyp_length / self.ref_length if self.ref_length else 0.0
        return (
            f"BLEU = {self.score:.2f} {precisions} (BP = {self.brevity_penalty:.3f} ratio = {ratio:.3f} "
            f"hyp_len = {self.hyp_length} ref_len = {self.ref_length})\n{self.signature}"
        )


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str | None = None,
    tgt_lang: str | None = None,
) -> BleuScore:
    """Score detokenised, cased text as it is: sacreBLEU's defaults, nothing else.

    Args:
        hypotheses: one line for each sentence.
        references: one or more translations of the whole, each with one line for each sentence.
        tokenize: one of TOKENIZERS; None = the one that suits the target language.
        tgt_lang: target language, such as "de" or "zh-TW"; None or unknown = 13a.

    Raises:
        AiaynError: line counts differ, there is no line, or the tokeniser is unknown or not installed.
    """
    if not references:
        raise AiaynError("there is no reference to score against", "give at least one")
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise AiaynError(
                f"the hypotheses have {len(hypotheses):,} lines, but reference {number} has {len(reference):,}",
                "score the same test set that was translated, line by line",
            )
    if not hypotheses:
        raise AiaynError("there is no line to score: hypotheses and references are empty", "check the files")
    # force: the stage itself warns of text that looks tokenised (evaluation/checks.py).
    metric = _load(tokenize or tokenizer_of(tgt_lang))
    found = metric.corpus_score(hypotheses, references)
    return BleuScore(
        score=found.score,
        signature=str(metric.get_signature()),
        precisions=tuple(found.precisions),
        brevity_penalty=found.bp,
        hyp_length=found.sys_len,
        ref_length=found.ref_len,
    )


def tokenizer_of(tgt_lang: str | None) -> str:
    """The tokeniser that suits a language: zh for Chinese, ja-mecab, ko-mecab, and 13a for all others."""
    language = re.split("[-_]", (tgt_lang or "").lower())[0]
    return _TOKENIZER_OF_LANGUAGE.get(language, "13a")


def _load(tokenizer: str) -> BLEU:
    if tokenizer not in TOKENIZERS:
        near = difflib.get_close_matches(tokenizer, TOKENIZERS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? There are " if near else "use one of "
        raise AiaynError(f"unknown BLEU tokeniser {tokenizer!r}", hint + ", ".join(TOKENIZERS))
    try:
        return BLEU(tokenize=tokenizer, force=True)
    except (ImportError, RuntimeError) as error:
        language = tokenizer.split("-")[0]
        raise AiaynError(
            f"BLEU tokeniser {tokenizer} needs a package that is not installed",
            f'pip install "sacrebleu[{language}]", or choose --tokenize char',
        ) from error
