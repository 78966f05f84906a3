"""What `aiayn score --brackets` does: trees against reference trees, by EVALB's rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.errors import DataError, UsageError
from aiayn_cli.parsing.evalb import BracketRules, BracketScore, SentenceScore, read_rules, score_brackets, summarise
from aiayn_cli.text.lines import display_name, read_file

_ERRORS_NAMED = 5  # one by one; the rest are only counted


@dataclass(frozen=True)
class BracketResult:
    """What `aiayn score --brackets` prints."""

    hypotheses: str  # the file, or "stdin"
    reference: str
    lines: int  # of each of them
    cutoff: int  # words of the longest sentence in `short`
    all: BracketScore
    short: BracketScore
    signature: str  # only scores with the same one can be compared

    def __str__(self) -> str:
        rows = zip(self.all.rows(), self.short.rows(), strict=True)
        head = f"{'':<25}  {'all':>8}  {f'len<={self.cutoff}':>8}\n"
        table = "\n".join(f"{name:<25}  {_write(a):>8}  {_write(b):>8}" for (name, a), (_, b) in rows)
        return f"F1 = {self.all.f1:.2f}\n{head}{table}\n{self.signature}"


def run_score_brackets(
    references: Sequence[Path], hypotheses: str = "-", parameters: Path | None = None
) -> BracketResult:
    """Score trees against one file of reference trees, both one per line.

    Args:
        parameters: a parameter file of EVALB; None = as its COLLINS.prm, with ROOT and S1 ignored like TOP.
    Raises:
        AiaynError: a file is missing or not text, line counts differ, a parameter is unknown.
    """
    if len(references) != 1:
        raise UsageError(f"--brackets with {len(references)} references", "trees are scored against one file of trees")
    if [str(references[0]), hypotheses, str(parameters)].count("-") > 1:
        raise UsageError("stdin is named more than once", "give the trees with --hyp FILE")
    rules = read_rules(read_file(parameters), display_name(parameters)) if parameters else BracketRules()
    gold, test = read_file(references[0]), read_file(hypotheses)
    if len(gold) != len(test):
        raise DataError(
            f"{display_name(hypotheses)} has {len(test):,} lines, but {display_name(references[0])} has {len(gold):,}",
            "score the trees of the same sentences, one a line",
        )
    scores = score_brackets(gold, test, rules)
    _warn(scores)
    return BracketResult(
        hypotheses=display_name(hypotheses),
        reference=display_name(references[0]),
        lines=len(test),
        cutoff=rules.cutoff,
        all=summarise(scores),
        short=summarise([score for score in scores if score.length <= rules.cutoff]),
        signature=f"EVALB|labels:{'yes' if rules.labelled else 'no'}|parameters:{parameters or 'COLLINS+ROOT+S1'}",
    )


def _warn(scores: Sequence[SentenceScore]) -> None:
    for status, what in ((1, "words differ from the reference's, or brackets do not match"), (2, "there is no word")):
        lines = [number for number, score in enumerate(scores, start=1) if score.status == status]
        for number in lines[:_ERRORS_NAMED]:
            logs.warning(f"line {number:,} is not scored: {what}")
        if len(lines) > _ERRORS_NAMED:
            logs.warning(f"{len(lines):,} lines in all are not scored for this")


def _write(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
