"""The words that the small vocabulary of the decoding tests knows, and lines made of them."""

import random

WORDS = ["der", "die", "eine", "hund", "katze", "maus", "frau", "läuft", "springt", "sieht", "klein", "schnell", "und"]


def random_lines(count: int, longest: int = 12) -> list[str]:
    """Lines of 1 to `longest` words and a full stop; the same ones in each call."""
    source = random.Random(7)
    return [" ".join(source.choices(WORDS, k=source.randint(1, longest))) + "." for _ in range(count)]
