"""What `aiayn score` says on stderr before it scores: what it chose for the language, and signs of a false score."""

from collections.abc import Sequence

from aiayn_cli import logs
from aiayn_cli.score.checks import suspicions
from aiayn_cli.score.metrics import MetricOptions
from aiayn_cli.score.texts import Texts
from aiayn_cli.score.tokenizers import (
    is_written_in_characters,
    language_of_script,
    language_without_words,
    tokenizer_of,
)


def remark_on_language(options: MetricOptions, metrics: Sequence[str], reference: Sequence[str]) -> None:
    """Say which tokeniser the target language has, or what speaks against the one that is used.

    Args:
        options: how the metrics are computed.
        metrics: their names.
        reference: lines of the (first) reference.
    """
    tokenizer = tokenizer_of(options.tgt_lang)
    is_chosen = options.tokenize is not None
    if not is_chosen and tokenizer != "13a" and "bleu" in metrics:
        logs.notice(f"tokeniser {tokenizer}, for target language {options.tgt_lang}; --tokenize chooses another")
    if is_written_in_characters(options.tgt_lang) and "ter" in metrics:
        logs.notice(f"TER counts characters (normalised, Asian support), for target language {options.tgt_lang}")
    if name := language_without_words(options.tgt_lang):
        if not is_chosen and "bleu" in metrics:
            logs.warning(
                f"{name} has no blanks between words, and 13a finds none: use --tokenize char, or --metric chrf"
            )
        return
    found = language_of_script(reference) if tokenizer == "13a" else None
    if found is None:
        return
    code, name = found
    wrong = ["BLEU's tokeniser 13a"] if "bleu" in metrics and not is_chosen else []
    wrong += ["TER by words"] if "ter" in metrics and is_written_in_characters(code) else []
    if wrong:
        known = f"the target language is {options.tgt_lang}" if options.tgt_lang else "no target language is named"
        logs.warning(
            f"the references look {name}, but {known}: {' and '.join(wrong)} would be false; add -l, such as en-{code}"
        )


def warn(texts: Texts) -> list[list[str]]:
    """Say what is suspicious of each system, with its name where there are several; give it too."""
    found = [suspicions(lines, texts.reference_lines, texts.source) for lines in texts.systems.values()]
    for name, of_system in zip(texts.systems, found, strict=True):
        for suspicion in of_system:
            logs.warning(suspicion if len(texts.systems) == 1 else f"{name}: {suspicion}")
    return found
