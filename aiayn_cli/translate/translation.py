"""What a translator gives for a line, and what an engine that searches has to offer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aiayn_cli.config import DecodingConfig
from aiayn_cli.translate.options import SearchOptions


@dataclass(frozen=True)
class ModelPass:
    """One pass through the model: a whole line, or a part of one that is too long.

    Attributes:
        src: ids of the source, without EOS.
        tgt: ids of the output, without BOS and EOS.
        is_cut: whether the output reached the longest length allowed, so that its end may be missing.
        word: what was too long for the model and was copied to the output; there was then no pass.
    """

    src: tuple[int, ...]
    tgt: tuple[int, ...]
    is_cut: bool
    word: str = ""


@dataclass(frozen=True)
class Translation:
    """One of the outputs for a line.

    Attributes:
        text: the output; "" for a blank line.
        log_prob: natural log of its probability, the end token included; summed over the parts of a split line.
        score: log_prob / length penalty, what the outputs are ranked by.
        parts: what was translated in one pass each; none for a blank line, or one that was left out.
        is_left_out: whether the line was too long for the models and could not be cut; the text is then "".
    """

    text: str
    log_prob: float
    score: float
    parts: tuple[ModelPass, ...] = ()
    is_left_out: bool = False


@dataclass(frozen=True)
class Details:
    """What forced decoding finds out about an output.

    Attributes:
        tokens: each sub-word as SentencePiece writes it, with its natural log p; "</s>" ends each part.
        alignment: (source word, target word) for each target word, counted from 0; words are what blanks separate.
    """

    tokens: tuple[tuple[str, float], ...]
    alignment: tuple[tuple[int, int], ...] = ()


class SearchEngine(Protocol):
    """Another program that searches, instead of this package's own search and model."""

    @property
    def max_positions(self) -> int:
        """The longest sequence that it can read or write, in tokens."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        decoding: DecodingConfig,
        options: SearchOptions,
    ) -> list[list[tuple[tuple[int, ...], float]]]:
        """Give n_best outputs for each source, each as ids without special tokens and log p, EOS counted.

        Args:
            sources: ids without EOS.
            prefixes: how the outputs of each begin.
            max_lengths: the longest output of each, in tokens with EOS, at least 1.
            decoding: its beam_size and alpha count.
            options: all but max_length and sampling count.
        """
