"""Notices about single lines of a long input: the first few of each kind are logged, the rest counted."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from aiayn_cli import logs

_NAMED = 5  # of each kind

Kind = Literal["split", "long_word", "too_long", "prefix", "repaired", "unreadable"]

# The summary of a kind with more lines than were logged; "" if the result counts them anyway.
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
    """A notice about one line."""

    kind: Kind
    text: str  # names the line


class LineNotices:
    """Logs and counts notices."""

    def __init__(self) -> None:
        self.counts: Counter[Kind] = Counter()  # lines

    def take(self, notice: LineNotice) -> None:
        self.counts[notice.kind] += 1
        if self.counts[notice.kind] <= _NAMED:
            say = logs.warning if _IN_ALL[notice.kind] else logs.notice
            say(notice.text)

    def sum_up(self) -> None:
        for kind, count in self.counts.items():
            if count > _NAMED and _IN_ALL[kind]:
                logs.warning(f"{count:,} {_IN_ALL[kind]}")


class RecordedNotices(LineNotices):
    """Keeps notices for another process to log."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[LineNotice] = []

    def take(self, notice: LineNotice) -> None:
        self._kept.append(notice)

    def give(self) -> list[LineNotice]:
        kept, self._kept = self._kept, []
        return kept
