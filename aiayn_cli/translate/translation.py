"""What a translator gives for a line, and what it can be asked for beside a recipe's settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aiayn_cli.translate.search.sampling import Sampling


@dataclass(frozen=True)
class Part:
    """One pass through the model: a whole line, or a part of one that is too long.

    Attributes:
        src: ids of the source, without EOS.
        tgt: ids of the output, without BOS and EOS.
        is_cut: whether the output reached the longest length allowed, and may go on in truth.
        word: what was too long for the model and stands in the output as it is; there was then no pass.
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
    parts: tuple[Part, ...] = ()
    is_left_out: bool = False


@dataclass(frozen=True)
class Details:
    """What a second pass finds out about an output.

    Attributes:
        tokens: each sub-word as SentencePiece writes it, with its natural log p; "</s>" ends each part.
        alignment: (source word, target word) for each target word, counted from 0; words are what blanks separate.
    """

    tokens: tuple[tuple[str, float], ...]
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What one call asks for beside DecodingConfig.

    Attributes:
        min_length: tokens that an output has at least, without its end token, where the longest length allows it.
        max_length: tokens that an output has at most, without its end token; 0 = only DecodingConfig's max_extra.
        no_repeat_ngram: length of the sequences of tokens that no output holds twice; 0 = any may come again.
        sampling: draw the outputs instead of searching for the best ones.
    """

    min_length: int = 0
    max_length: int = 0
    no_repeat_ngram: int = 0
    sampling: Sampling | None = None


class SearchEngine(Protocol):
    """Another program that searches, in the place of this package's own search and model."""

    @property
    def max_positions(self) -> int:
        """The longest sequence that it can read or write, in tokens."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        *,
        beam_size: int,
        alpha: float,
        n_best: int,
        min_length: int,
        no_repeat_ngram: int,
    ) -> list[list[tuple[tuple[int, ...], float]]]:
        """Give n_best outputs for each source, each as ids without special tokens and log p, EOS counted.

        Args:
            sources: ids without EOS.
            prefixes: how the outputs of each begin.
            max_lengths: the longest output of each, in tokens with EOS.
            beam_size, alpha, n_best, min_length, no_repeat_ngram: see DecodingConfig, SearchOptions and Translator.
        """
