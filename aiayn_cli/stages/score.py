"""What `aiayn score` does: read references and hypotheses, look for signs of a false score, compute it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiayn_cli import logs
from aiayn_cli.data.corpora import parse_langs
from aiayn_cli.data.text import display_name, read_file
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.evaluation.bleu import BleuScore, bleu, tokenizer_of
from aiayn_cli.evaluation.checks import suspicions
from aiayn_cli.stages.score_brackets import run_score_brackets as run_score_brackets  # for the command


@dataclass(frozen=True)
class ScoreResult:
    """What was scored, and how it did.

    Attributes:
        hypotheses: the file, or "stdin".
        references: the files.
        lines: of each of them.
        scores: one for each metric.
    """

    hypotheses: str
    references: tuple[str, ...]
    lines: int
    scores: tuple[BleuScore, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.scores))


def run_score(
    references: Sequence[Path],
    *,
    hypotheses: str = "-",
    metric: Literal["bleu"] = "bleu",
    tokenize: str | None = None,
    langs: str | None = None,
) -> ScoreResult:
    """Score translations against one or more references.

    Args:
        references: text files, compressed or not, line by line the same sentences.
        hypotheses: the translations: a file, or "-" for stdin.
        metric: what to compute.
        tokenize: sacreBLEU's name of BLEU's tokeniser; None = the one that suits the target language.
        langs: language pair, such as "en-de"; None = the target language is taken from the first reference's name
            (test.de, test.de.gz).

    Raises:
        AiaynError: a file is missing or not text, line counts differ, an unknown tokeniser.
    """
    compute = {"bleu": bleu}[metric]
    if [str(path) for path in references].count("-") + (hypotheses == "-") > 1:
        raise UsageError("stdin is named more than once", "give the hypotheses with --hyp FILE")
    tgt_lang = _target_language(langs, references[0])
    lines_of_references = [read_file(path) for path in references]
    lines = read_file(hypotheses)
    for path, reference in zip(references, lines_of_references, strict=True):
        if len(reference) != len(lines):
            raise DataError(
                f"{display_name(hypotheses)} has {len(lines):,} lines, but {display_name(path)} has {len(reference):,}",
                "score the same test set that was translated, line by line",
            )
    for suspicion in suspicions(lines, lines_of_references):
        logs.warning(suspicion)
    if tokenize is None and tokenizer_of(tgt_lang) != "13a":
        logs.notice(f"tokeniser {tokenizer_of(tgt_lang)}, for target language {tgt_lang}; --tokenize chooses another")
    return ScoreResult(
        hypotheses=display_name(hypotheses),
        references=tuple(map(display_name, references)),
        lines=len(lines),
        scores=(compute(lines, lines_of_references, tokenize, tgt_lang),),
    )


def _target_language(langs: str | None, reference: Path) -> str:
    """The language after the dash of a pair, else what a file name such as test.de.gz ends in."""
    if langs is not None:
        return parse_langs(langs)[1]
    suffixes = [suffix for suffix in reference.suffixes if suffix.lower() not in (".gz", ".xz", ".bz2", ".zst")]
    return suffixes[-1][1:] if suffixes else ""
