"""Scores of parts of a test set: by the length of the reference, or by a label of each line."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiayn_cli.errors import DataError

_UPPER_ENDS = (10, 20, 30, 40, 50)  # words of the reference


@dataclass(frozen=True)
class Part:
    """Some lines of the test set.

    Attributes:
        label: such as "11-20 words".
        lines: their numbers, from 0.
    """

    label: str
    lines: tuple[int, ...]


def parts_by_length(reference: Sequence[str], in_characters: bool = False) -> list[Part]:
    """Part a test set by the length of its (first) reference.

    Args:
        reference: one line for each sentence.
        in_characters: count characters, for languages without blanks; else words between blanks.
    """
    unit = "characters" if in_characters else "words"
    lengths = [len(line.replace(" ", "")) if in_characters else len(line.split()) for line in reference]
    parts, least = [], 0
    for most in _UPPER_ENDS:
        numbers = tuple(number for number, length in enumerate(lengths) if least <= length <= most)
        parts.append(Part(f"{least}-{most} {unit}", numbers))
        least = most + 1
    parts.append(Part(f"{least} {unit} or more", tuple(n for n, length in enumerate(lengths) if length >= least)))
    return [part for part in parts if part.lines]


def parts_by_label(labels: Sequence[str], name: str, lines: int) -> list[Part]:
    """Part a test set by a label of each line, such as its domain or document.

    Args:
        labels: one for each line.
        name: of their file, for the message.
        lines: of the test set.
    Raises:
        DataError: their number is another.
    """
    if len(labels) != lines:
        raise DataError(f"{name} has {len(labels):,} labels, but the references have {lines:,} lines", "one for each")
    numbers: dict[str, list[int]] = {}
    for number, label in enumerate(labels):
        numbers.setdefault(label.strip() or "(no label)", []).append(number)
    return [Part(label, tuple(of_label)) for label, of_label in numbers.items()]
