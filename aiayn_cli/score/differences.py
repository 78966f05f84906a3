"""What differs between a hypothesis and its reference, word by word, for a person to look at."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Words, blanks, and each other character by itself; Chinese and Japanese, without blanks, are compared by character.
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|\s+|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|.", re.S
)

Mark = Literal["same", "only"]


@dataclass(frozen=True)
class Piece:
    """Some text of one side: in both sides, or only in this one."""

    text: str
    mark: Mark


def differences(reference: str, hypothesis: str) -> tuple[list[Piece], list[Piece]]:
    """Part two texts into what they share, in order, and what only one of them has.

    Returns:
        The pieces of the reference and those of the hypothesis; joined, they give the texts again.
    """
    ours, theirs = _TOKEN.findall(reference), _TOKEN.findall(hypothesis)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    ref_pieces: list[Piece] = []
    hyp_pieces: list[Piece] = []
    for kind, ref_start, ref_end, hyp_start, hyp_end in matcher.get_opcodes():
        mark: Mark = "same" if kind == "equal" else "only"
        _add(ref_pieces, ours[ref_start:ref_end], mark)
        _add(hyp_pieces, theirs[hyp_start:hyp_end], mark)
    return ref_pieces, hyp_pieces


def _add(pieces: list[Piece], tokens: Sequence[str], mark: Mark) -> None:
    if tokens:
        pieces.append(Piece("".join(tokens), mark))
