"""Pairs for parsing: the words of a tree, and the tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aiayn_cli.parsing.trees import read_trees, reduce_tree, to_text, unescape, words
from aiayn_cli.prepare.inputs import Input
from aiayn_cli.prepare.pairs import CHUNK_PAIRS, Chunk, ReadCounts
from aiayn_cli.text.lines import RecordReader


@dataclass(frozen=True)
class TreePairs:
    """The trees of a treebank's file. The source side is the words, the target side the tree on one line.

    Attributes:
        file: bracketed trees, each on a line or over several.
        functions: keep function labels and indices.
    """

    file: Input
    functions: bool = False

    def inputs(self) -> Sequence[tuple[str, Input]]:
        """Give the file."""
        return (("both", self.file),)

    def settings(self) -> dict[str, Any]:
        """Say how the trees are reduced."""
        return {"format": "trees", "functions": self.functions}

    def read(self, counts: ReadCounts) -> Iterator[Chunk]:
        """Read all pairs; trees without a word are skipped and counted.

        Raises:
            DataError: the file holds something else than trees, or bytes that are not UTF-8.
        """
        with self.file.open() as file:
            reader = RecordReader(file, self.file.name)
            chunk: Chunk = [], []
            for tree in read_trees((record or "" for record in reader), self.file.name):
                reduced = reduce_tree(tree, functions=self.functions)
                if not reduced:
                    counts.skipped += 1
                    continue
                chunk[0].append(" ".join(map(unescape, words(reduced))))
                chunk[1].append(to_text(reduced))
                if len(chunk[0]) == CHUNK_PAIRS:
                    counts.pairs += CHUNK_PAIRS
                    yield chunk
                    chunk = [], []
            counts.pairs += len(chunk[0])
            counts.mapped += reader.mapped
            if chunk[0]:
                yield chunk
