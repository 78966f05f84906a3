"""BLEU as the paper's authors computed it (Section 6.1 does not say how; their script get_ende_bleu.sh does).

Hypotheses and references are split into tokens by the Moses script, hyphens between letters are set apart
("E-Mail" becomes "E ##AT##-##AT## Mail"), and multi-bleu.perl counts: BLEU with case, without smoothing, on the tokens
as they are. Papers from 2016 to 2018 report such figures. They are higher than sacreBLEU's on the same output, and
depend on the version of the script, so that only figures from one implementation can be compared.

sacremoses tokenises like the Moses script of that time: its 64,496 tokens of newstest2014's German references are the
number that fairseq's authors print. The script of today sets one more full stop apart in eight of those lines.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from sacrebleu.metrics.bleu import BLEU

from aiayn_cli.config import TextConfig
from aiayn_cli.errors import AiaynError
from aiayn_cli.text.moses import MosesText, rules_of

# As in the script: matches do not overlap, so that in a-b-c only the first hyphen is set apart.
_HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class CompoundSplitScore:
    """BLEU of tokens with split compounds; not comparable with sacreBLEU's.

    Attributes:
        score: 0 to 100.
        detail: precisions, brevity penalty and lengths, as multi-bleu.perl names them.
        hyp_length, ref_length: in tokens.
        method: how it was computed; no signature of sacreBLEU's.
    """

    score: float
    detail: str
    hyp_length: int
    ref_length: int
    method: str

    def __str__(self) -> str:
        return f"compound-split tokenised BLEU = {self.score:.2f} {self.detail}\n{self.method}"


def split_tokens(lines: Sequence[str], lang: str) -> list[str]:
    """Moses tokens with hyphens set apart, joined by blanks.

    Args:
        lines: plain text.
        lang: code of its language, for abbreviations that Moses knows.
    Raises:
        AiaynError: sacremoses is not installed.
    """
    tokenised = MosesText(TextConfig(moses_tokenise=True), lang).apply(lines)
    return [_HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens) for tokens in tokenised]


def compound_split_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tgt_lang: str
) -> CompoundSplitScore:
    """Score plain text in the paper's way.

    Args:
        hypotheses: one line for each sentence.
        references: one or more translations of the whole.
        tgt_lang: target language, such as "de".
    Raises:
        AiaynError: the language is not known, or sacremoses is not installed.
    """
    if not tgt_lang:
        raise AiaynError("the Moses tokeniser needs the target language", "add --langs, such as --langs en-de")
    metric = BLEU(tokenize="none", smooth_method="none", force=True)  # what multi-bleu.perl computes
    split_references = [split_tokens(reference, tgt_lang) for reference in references]
    found = metric.corpus_score(split_tokens(hypotheses, tgt_lang), split_references)
    precisions = "/".join(f"{precision:.1f}" for precision in found.precisions)
    ratio = found.sys_len / found.ref_len if found.ref_len else 0.0
    return CompoundSplitScore(
        score=found.score,
        detail=(
            f"{precisions} (BP={found.bp:.3f}, ratio={ratio:.3f}, hyp_len={found.sys_len}, ref_len={found.ref_len})"
        ),
        hyp_length=found.sys_len,
        ref_length=found.ref_len,
        method=(
            f"the paper's convention, not sacreBLEU: Moses tokens ({rules_of(tgt_lang)}, sacremoses "
            f"{metadata.version('sacremoses')}), hyphens split, multi-bleu"
        ),
    )
