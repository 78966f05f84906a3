"""What `translate` does for a parser: its sequences become trees over the given words, and given trees sequences."""

from collections.abc import Sequence
from dataclasses import replace

from aiayn_cli.errors import DataError
from aiayn_cli.parsing.tree_text import TreeText, words_of
from aiayn_cli.parsing.trees import from_text, reduce_tree, words
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.vocab import readable
from aiayn_cli.translate.input_lines import InputLine
from aiayn_cli.translate.translation import Translation
from aiayn_cli.translate.trust.notices import LineNotice, LineNotices


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
            DataError: something else stands there, or a tree over other words than the line's.
        """
        if is_blank(line.prefix):
            return ""
        tree = reduce_tree(from_text(line.prefix, self._name, line.number), functions=True)
        if not is_blank(line.text):
            self._check_words(words(tree), words_of(line.text), line.number)
        return self._trees.linearise(tree) if tree else ""

    def _check_words(self, written: Sequence[str], given: Sequence[str], number: int) -> None:
        """Compare the words of a tree with its line's, also where the recipe's sequences hold none."""
        place, hint = f"{self._name}:{number}", "give for each line a tree over its words"
        if len(written) != len(given):  # its n-th tag would stand for no n-th word
            raise DataError(
                f"{place}: the tree's words are {len(written):,}, but those of its line {len(given):,}", hint
            )
        for nth, (in_tree, in_line) in enumerate(zip(written, given, strict=True), start=1):
            if readable(in_tree) != readable(in_line):
                raise DataError(f"{place}: word {nth:,} of the tree is {in_tree}, but that of its line {in_line}", hint)
