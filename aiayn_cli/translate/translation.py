"""What a translator gives for a line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelPass:
    """One pass through the model: a whole line, or a part of one that is too long."""

    src: tuple[int, ...]  # ids of the source, without EOS
    tgt: tuple[int, ...]  # ids of the output, without BOS and EOS
    is_cut: bool  # whether the output reached the longest length allowed, so that its end may be missing
    word: str = ""  # what was too long for the model and was copied to the output; there was then no pass


@dataclass(frozen=True)
class Translation:
    """One of the outputs for a line."""

    text: str  # the output; "" for a blank line
    log_prob: float  # natural log of its probability, the end token included; summed over the parts of a split line
    score: float  # log_prob / length penalty, what the outputs are ranked by
    # what was translated in one pass each; none for a blank line, or one that was left out
    parts: tuple[ModelPass, ...] = ()
    is_left_out: bool = False  # whether the line was too long for the models and could not be cut; the text is then ""


@dataclass(frozen=True)
class Details:
    """What forced decoding finds out about an output."""

    # each sub-word as SentencePiece writes it, with its natural log p; "</s>" ends each part
    tokens: tuple[tuple[str, float], ...]
    # (source word, target word) for each target word, counted from 0; words are what blanks separate
    alignment: tuple[tuple[int, int], ...] = ()
