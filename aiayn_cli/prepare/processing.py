"""What is done to pairs of text before they are split into sub-words."""

from collections.abc import Callable

from aiayn_cli.config import TextConfig
from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.prepare.pairs import Chunk
from aiayn_cli.text.moses import MosesText


def make_processor(config: TextConfig, src_lang: str, tgt_lang: str) -> Callable[[Chunk], Chunk]:
    """Make what processes both sides of a chunk, for `map_in_order`.

    Raises:
        DataError: it needs a package that is not installed.
    """
    if config.trees:
        trees = TreeText(config)
        return lambda chunk: (chunk[0], trees.apply(chunk[1]))
    src, tgt = MosesText(config, src_lang), MosesText(config, tgt_lang)
    return lambda chunk: (src.apply(chunk[0]), tgt.apply(chunk[1]))
