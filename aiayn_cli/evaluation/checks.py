"""Signs that a score would not mean what it seems to: text in a form that BLEU is not meant for."""

import re
from collections.abc import Callable, Sequence

_SUBWORD_MARKS = re.compile(r"@@(?: |$)|▁")
_PARTED_PUNCTUATION = re.compile(r"\S [.,!?;:](?: |$)|&(?:apos|quot);| @-@ ")
_SHARE = 0.2  # of the lines: less than this may be the text itself


def suspicions(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[str]:
    """One line for each sign that the hypotheses are not plain text like the references.

    Args:
        hypotheses: one line for each sentence.
        references: one or more translations of the whole, as many lines each.
    """
    found = []
    reference_lines = [line for reference in references for line in reference]
    marked = _share(hypotheses, lambda line: bool(_SUBWORD_MARKS.search(line)))
    if marked >= _SHARE > _share(reference_lines, lambda line: bool(_SUBWORD_MARKS.search(line))):
        found.append(f"{marked:.0%} of the hypotheses hold sub-word marks (@@ or ▁): join the pieces before scoring")
    parted = _share(hypotheses, lambda line: bool(_PARTED_PUNCTUATION.search(line)))
    if parted >= _SHARE > _share(reference_lines, lambda line: bool(_PARTED_PUNCTUATION.search(line))):
        found.append(
            f"{parted:.0%} of the hypotheses look tokenised (blanks before punctuation), the references do not: "
            "detokenise before scoring"
        )
    if not any(_has_upper(line) for line in hypotheses) and _share(reference_lines, _has_upper) >= _SHARE:
        found.append("no hypothesis holds a capital letter, but the references do: BLEU counts case")
    blank = sum(
        not hypothesis.strip() and any(reference[number].strip() for reference in references)
        for number, hypothesis in enumerate(hypotheses)
    )
    if blank:
        found.append(f"{blank:,} of {len(hypotheses):,} hypotheses are blank where a reference is not")
    return found


def _share(lines: Sequence[str], holds: Callable[[str], bool]) -> float:
    return sum(map(holds, lines)) / max(len(lines), 1)


def _has_upper(line: str) -> bool:
    return line != line.lower()
