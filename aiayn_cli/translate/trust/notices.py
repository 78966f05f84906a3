"""What is to be said about single lines of a long input: the first few of each kind, and of the rest their number."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from aiayn_cli import logs

_NAMED = 5  # of each kind

Kind = Literal["split", "long_word", "too_long", "prefix", "repaired", "unreadable"]

# How each kind is summed up where more lines were concerned than were named; "" where the result counts them anyway.
_IN_ALL: dict[Kind, str] = {
    "split": "",
    "long_word": "words in all were too long for the model",
    "too_long": "lines in all were too long",
    "prefix": "prefixes in all were changed",
    "repaired": "trees in all were repaired",
    "unreadable": "lines in all could not be read",
}


@dataclass(frozen=True)
class LineNotice:
    """One thing to say.

    Attributes:
        kind: what it is about.
        text: names the line.
    """

    kind: Kind
    text: str


class LineNotices:
    """Says them, and counts.

    Attributes:
        counts: how many lines of each kind there were.
    """

    def __init__(self) -> None:
        self.counts: Counter[Kind] = Counter()

    def take(self, notice: LineNotice) -> None:
        """Say one thing, unless enough of its kind was said."""
        self.counts[notice.kind] += 1
        if self.counts[notice.kind] <= _NAMED:
            say = logs.warning if _IN_ALL[notice.kind] else logs.notice
            say(notice.text)

    def sum_up(self) -> None:
        """Say how many there were of each kind of which not all were named."""
        for kind, count in self.counts.items():
            if count > _NAMED and _IN_ALL[kind]:
                logs.warning(f"{count:,} {_IN_ALL[kind]}")


class RecordedNotices(LineNotices):
    """Keeps them for somebody else to say."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[LineNotice] = []

    def take(self, notice: LineNotice) -> None:
        """Keep one."""
        self._kept.append(notice)

    def give(self) -> list[LineNotice]:
        """Hand over what was kept since the last time."""
        kept, self._kept = self._kept, []
        return kept
