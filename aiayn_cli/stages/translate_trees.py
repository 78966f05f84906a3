"""What `translate` does for a parser: its sequences become trees over the given words, and given trees sequences."""

from collections.abc import Sequence
from dataclasses import replace

from aiayn_cli.data.input_lines import InputLine
from aiayn_cli.data.text import is_blank
from aiayn_cli.data.tree_text import TreeText, words_of
from aiayn_cli.data.trees import from_text, reduce_tree, words
from aiayn_cli.decoding.notices import LineNotice, LineNotices
from aiayn_cli.decoding.translation import Translation
from aiayn_cli.errors import DataError


class TreeRestorer:
    """Makes bracketed trees of what a model wrote, and says where that had to be repaired.

    Args:
        trees: reads the model's sequences.
        notices: takes which lines' best output was repaired.
    """

    def __init__(self, trees: TreeText, notices: LineNotices) -> None:
        self._trees, self._notices = trees, notices

    def restore(self, line: InputLine, outputs: Sequence[Translation]) -> Sequence[Translation]:
        """Give the outputs of a line with a tree on one line as each text."""
        found = [self._trees.restore_text(line.text, output.text) for output in outputs]
        if repairs := found[0][1]:
            what = ", ".join(f"{reason} ({times})" for reason, times in repairs.items())
            self._notices.take(LineNotice("repaired", f"line {line.number:,}: the tree was repaired: {what}"))
        return [replace(output, text=text) for output, (text, _) in zip(outputs, found, strict=True)]


class TreeTargets:
    """Turns given trees into what the model would have to write for them.

    Args:
        trees: writes the model's sequences.
        name: of the file of trees, for messages.
    """

    def __init__(self, trees: TreeText, name: str) -> None:
        self._trees, self._name = trees, name

    def sequence(self, line: InputLine) -> str:
        """The sequence for the tree that stands for the translation of a line; "" for a blank one.

        Raises:
            DataError: something else stands there, or a tree with more or fewer words than the line.
        """
        if is_blank(line.prefix):
            return ""
        tree = reduce_tree(from_text(line.prefix, self._name, line.number), functions=True)
        written, given = len(words(tree)), len(words_of(line.text))
        if written != given and not is_blank(line.text):  # its n-th tag would stand for no n-th word
            raise DataError(
                f"{self._name}:{line.number}: the tree's words are {written:,}, but those of its line {given:,}",
                "give for each line a tree over its words",
            )
        return self._trees.linearise(tree) if tree else ""
