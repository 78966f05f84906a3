"""What happens to the answers for all groups of lines, in order: written, reported, counted, drawn."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError
from aiayn_cli.text.lines import is_blank
from aiayn_cli.translate.aids.attention import AttentionPicture
from aiayn_cli.translate.input_lines import InputLine, LineFormat
from aiayn_cli.translate.trust.flags import FLAGS
from aiayn_cli.translate.trust.notices import LineNotice, LineNotices
from aiayn_cli.translate.trust.report import SuspectCounts
from aiayn_cli.translate.work import Answer, Task

WriteRecords = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class Output:
    """One of the outputs for a line of text, as --json shows it; the fields are Translation's and Details'."""

    text: str
    log_prob: float
    score: float
    alignment: Sequence[tuple[int, int]] | None = None


class Session:
    """One run over one input.

    Args:
        title: of the models, for the page.
        name: of the input, for messages.
        write: takes the records of the output.
        write_report: takes those of the report.
        keep_outputs: the format of outputs that are remembered; None = none are.
        picture: takes what attention is drawn.

    Attributes:
        lines, blank: counts of lines that were put out.
        notices: says what is to be said of lines, and counts them.
        suspects: counts of what was judged.
        kept: the outputs for each line; in jsonl what would be written for each.
    """

    def __init__(
        self,
        title: str,
        name: str,
        write: WriteRecords,
        write_report: WriteRecords,
        *,
        keep_outputs: LineFormat | None,
        picture: AttentionPicture,
    ) -> None:
        self._heading, self._name = f"Attention of {title}", name
        self._write, self._write_report = write, write_report
        self._keep_outputs, self._picture = keep_outputs, picture
        self.lines = self.blank = 0
        self.notices = LineNotices()
        self.suspects = SuspectCounts()
        self.kept: list[tuple[Output | Mapping[str, Any], ...]] = []

    def take(self, task: Task, answer: Answer) -> None:
        """Put out an answer.

        Raises:
            AiaynError: a line looks wrong, and the work was to stop there; the lines before it are written.
        """
        done = task.lines[: len(answer.records)]
        for line in done:
            self._count(line)
        for each in answer.notices:
            self.notices.take(each)
        self._write(record for records in answer.records for record in records)
        self._write_report(answer.report)
        self._picture.take(answer.drawings, answer.undrawn)
        for judged in answer.judged:
            self.suspects.take(judged)
        if self._keep_outputs == "jsonl":
            self.kept += (tuple(map(json.loads, records)) for records in answer.records)
        elif self._keep_outputs == "text":
            for judged, alignments in zip(answer.judged, answer.alignments, strict=True):
                outputs = zip(judged.outputs, alignments, strict=True)
                self.kept.append(tuple(Output(o.text, o.log_prob, o.score, alignment) for o, alignment in outputs))
        if answer.suspect:
            raise AiaynError(
                f"{self._name}:{task.lines[len(done)].number}: the translation is suspect: "
                + "; ".join(f"{flag.replace('_', ' ')} ({FLAGS[flag]})" for flag in answer.suspect),
                "--on-suspect retry searches again, and --report FILE shows all such lines",
            )

    def finish(self) -> None:
        """Say what a person should know at the end, and write the page."""
        self.notices.sum_up()
        self._picture.write(self._heading)
        if summary := self.suspects.summary():
            logs.notice(summary)

    def finish_early(self, error: BaseException) -> None:
        """Do the same after an error, which is what a person should know first."""
        try:
            if isinstance(error, BrokenPipeError):
                self._picture.write(self._heading)
            else:
                self.finish()
        except (AiaynError, OSError) as further:
            logs.warning(str(further))

    def _count(self, line: InputLine) -> None:
        self.lines += 1
        if line.error:
            what = f"{self._name}:{line.number}: {line.error}: left blank"
            self.notices.take(LineNotice("unreadable", what))
        elif is_blank(line.text):
            self.blank += 1
