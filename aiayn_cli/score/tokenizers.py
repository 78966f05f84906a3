"""Which of sacreBLEU's tokenisers suits a language."""

import re
from collections.abc import Sequence

from aiayn_cli.errors import AiaynError, did_you_mean

TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # sacreBLEU's own names

# Languages written without blanks, or with blanks that do not part words: never 13a (sacreBLEU's own choice).
_TOKENIZER_OF_LANGUAGE = {
    "zh": "zh", "zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh",
    "ja": "ja-mecab", "jpn": "ja-mecab",
    "ko": "ko-mecab", "kor": "ko-mecab",
}  # fmt: skip
_SCRIPTS = (
    (re.compile("[\u3400-\u9fff\uf900-\ufaff]"), ("zh", "Chinese")),
    (re.compile("[\u3040-\u30ff]"), ("ja", "Japanese")),
    (re.compile("[\uac00-\ud7af\u1100-\u11ff]"), ("ko", "Korean")),
)
# Written without blanks too, but sacreBLEU has no tokeniser for them.
_UNKNOWN_TO_SACREBLEU = {
    "th": "Thai", "tha": "Thai", "lo": "Lao", "lao": "Lao", "km": "Khmer", "khm": "Khmer", "my": "Burmese",
    "mya": "Burmese", "bo": "Tibetan", "bod": "Tibetan", "dz": "Dzongkha", "dzo": "Dzongkha",
}  # fmt: skip


def tokenizer_of(tgt_lang: str | None) -> str:
    """The tokeniser that suits a language: zh for Chinese, ja-mecab, ko-mecab, and 13a for all others."""
    return _TOKENIZER_OF_LANGUAGE.get(_primary(tgt_lang), "13a")


def is_written_in_characters(tgt_lang: str | None) -> bool:
    """Whether a language is Chinese or Japanese, of which TER has to count characters instead of words."""
    return tokenizer_of(tgt_lang) in ("zh", "ja-mecab")


def language_without_words(tgt_lang: str | None) -> str:
    """The name of a language whose words no tokeniser here finds; "" for others."""
    return _UNKNOWN_TO_SACREBLEU.get(_primary(tgt_lang), "")


def language_of_script(lines: Sequence[str]) -> tuple[str, str] | None:
    """Code and name of the language that most lines are in by their script, if sacreBLEU has a tokeniser of its own.

    Args:
        lines: text of an unknown language.
    """
    counts = [sum(pattern.search(line) is not None for line in lines) for pattern, _ in _SCRIPTS]
    in_han, in_kana, in_hangul = counts
    written = sum(not line.isspace() and line != "" for line in lines)
    if 2 * max(counts) <= written:
        return None
    # Japanese is written with Chinese characters too, and Korean at times; neither kana nor hangul are in Chinese.
    if 2 * in_kana > in_han and in_kana >= in_hangul:
        return _SCRIPTS[1][1]
    return _SCRIPTS[2][1] if in_hangul >= in_han else _SCRIPTS[0][1]


def check_tokenizer(name: str) -> None:
    """Refuse a tokeniser that is not there.

    Raises:
        AiaynError: the nearest one is named.
    """
    if name not in TOKENIZERS:
        hint = did_you_mean(name, TOKENIZERS)
        hint += "" if hint.startswith("known") else f" There are {', '.join(TOKENIZERS)}"
        raise AiaynError(f"unknown BLEU tokeniser {name!r}", hint)


def _primary(language: str | None) -> str:
    return re.split("[-_]", (language or "").lower())[0]
