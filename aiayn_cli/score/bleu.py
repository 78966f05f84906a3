"""BLEU (Papineni et al. 2002) with one call, for validation during training: the same as `aiayn score` computes."""

from collections.abc import Sequence

from aiayn_cli.score.metrics import BleuScore, MetricOptions, SacreMetric


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
    metric = SacreMetric("bleu", references, MetricOptions(tokenize=tokenize, tgt_lang=tgt_lang))
    [statistics] = metric.statistics([hypotheses])
    score = metric.score(statistics)
    assert isinstance(score, BleuScore)
    return score
