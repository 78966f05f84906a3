"""What `translate` does after a parser: sequences become trees over the words that were given."""

from collections.abc import Sequence
from dataclasses import replace

from aiayn_cli.config import TextConfig
from aiayn_cli.data.input_lines import InputLine
from aiayn_cli.data.tree_text import TreeText
from aiayn_cli.decoding.notices import LineNotice, LineNotices
from aiayn_cli.decoding.translation import Translation


class TreeRestorer:
    """Makes bracketed trees of what a model wrote, and says where that had to be repaired.

    Args:
        text: of the model's checkpoint; where its target side is not trees, nothing is done.
        notices: takes which lines' best output was repaired.
    """

    def __init__(self, text: TextConfig, notices: LineNotices) -> None:
        self._notices = notices
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
                what = ", ".join(f"{reason} ({times})" for reason, times in repairs.items())
                self._notices.take(LineNotice("repaired", f"line {line.number:,}: the tree was repaired: {what}"))
        return restored
