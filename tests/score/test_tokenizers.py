import sys

import pytest

from aiayn_cli.errors import AiaynError
from aiayn_cli.score.metrics import MetricOptions, SacreMetric, bleu, is_written_in_characters, tokenizer_of


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
