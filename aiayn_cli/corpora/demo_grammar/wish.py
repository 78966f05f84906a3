"""What a random clause of the built-in corpus should be like."""

from dataclasses import dataclass
from typing import Literal

When = Literal["now", "past", "future", "habit"]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a clause should be like. The defaults leave all to chance."""

    when: When | None = None
    lasting: bool = False  # only what lasts a while: is sleeping, not sees
    time: bool = True  # may say when
    fronting: bool = True  # may open with the time
    additions: bool = True  # may say where, with whom, how
    negation: bool = True  # may be negated
    modal: bool = True  # may have a modal verb
    be: bool = True  # may be "is tired"


def plain(when: When | None = None, *, time: bool = False) -> Wish:
    """Wish for a short clause without additions, negation and modal verb."""
    return Wish(when=when, time=time, additions=False, negation=False, modal=False)
