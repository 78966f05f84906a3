"""What `translate` does after a parser: sequences become trees over the words that were given."""

from collections.abc import Sequence
from dataclasses import replace

from aiayn_cli import logs
from aiayn_cli.config import TextConfig
from aiayn_cli.data.input_lines import InputLine
from aiayn_cli.data.tree_text import TreeText
from aiayn_cli.decoding.translation import Translation

_REPAIRS_NAMED = 5  # one by one; the rest are only counted


class TreeRestorer:
    """Makes bracketed trees of what a model wrote, and says where that had to be repaired.

    Args:
        text: of the model's checkpoint; where its target side is not trees, nothing is done.

    Attributes:
        repaired_lines: lines whose best output was repaired so far.
    """

    def __init__(self, text: TextConfig) -> None:
        self.repaired_lines = 0
        self._trees = TreeText(text) if text.trees else None

    def restore(self, lines: Sequence[InputLine], outputs: list[list[Translation]]) -> list[list[Translation]]:
        """Give the outputs of some lines with a tree on one line as each text."""
        if self._trees is None:
            return outputs
        restored = []
        for line, of_line in zip(lines, outputs, strict=True):
            found = [self._trees.restore_text(line.text, output.text) for output in of_line]
            restored.append([replace(output, text=text) for output, (text, _) in zip(of_line, found, strict=True)])
            if repairs := found[0][1]:
                self.repaired_lines += 1
                if self.repaired_lines <= _REPAIRS_NAMED:
                    what = ", ".join(f"{reason} ({times})" for reason, times in repairs.items())
                    logs.warning(f"line {line.number:,}: the tree was repaired: {what}")
        return restored

    def sum_up(self) -> None:
        """Say how many lines were repaired, if not all were named."""
        if self.repaired_lines > _REPAIRS_NAMED:
            logs.warning(f"{self.repaired_lines:,} trees in all were repaired")
