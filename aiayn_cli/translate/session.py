"""Runs a whole translation: lines from a file or a pipe, shared among workers, answers written in order."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aiayn_cli import logs
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.device import device_of_each
from aiayn_cli.errors import AiaynError
from aiayn_cli.processes import Processes
from aiayn_cli.text.lines import is_blank
from aiayn_cli.translate.aids.attention_page import AttentionPicture
from aiayn_cli.translate.formats import InputLine, Output
from aiayn_cli.translate.input import InputLines, check_input, open_input
from aiayn_cli.translate.options import OutputOptions, TranslateOptions
from aiayn_cli.translate.output_files import check_outputs, give_unfinished, open_writer
from aiayn_cli.translate.score_against import run_score_against
from aiayn_cli.translate.trust.flags import FLAGS
from aiayn_cli.translate.trust.notices import LineNotice, LineNotices
from aiayn_cli.translate.trust.retry import SuspectCounts
from aiayn_cli.translate.worker import Answer, ModelInfo, Task, WorkerPlace, start_worker

__all__ = ["run_score_against", "run_translate"]

WriteRecords = Callable[[Iterable[str]], None]
TakenTask = TypeVar("TakenTask")


@dataclass(frozen=True)
class TranslateResult:
    """What was translated."""

    models: tuple[str, ...]  # the checkpoints that were used
    lines: int  # read and written (times n-best)
    blank_lines: int  # those of these that were blank and stayed so
    unreadable_lines: int  # those with bytes that are not text, or broken JSON; their translation is blank
    broken_records: int  # unreadable_lines, where the input is JSON
    split_lines: int  # those too long for one pass
    suspect_lines: int  # those whose best output has a flag (flags.FLAGS)
    mended_lines: int  # those that lost their flags in another search
    flags: Mapping[str, int]  # how often each flag was raised
    repaired_lines: int  # those with a tree that had to be repaired
    seconds: float  # of work on lines, without loading and without waiting for lines
    lines_per_second: float  # speed
    stopped: str | None = None  # why it ended before the last line; None where it did not
    # the outputs for each line, where they are part of the result; where the output is JSON, the objects that are
    # written
    translations: tuple[tuple[Output | Mapping[str, Any], ...], ...] | None = None

    def summary(self) -> str:
        remarks = (
            ("blank", self.blank_lines),
            ("unreadable", self.unreadable_lines),
            ("cut", self.split_lines),
            ("repaired", self.repaired_lines),
        )
        counted = "".join(f", {count:,} {what}" for what, count in remarks if count)
        speed = f"{self.lines_per_second:.{0 if self.lines_per_second >= 10 else 1}f}"
        return f"translated {self.lines:,} lines in {self.seconds:.1f} s, {speed} a second{counted}"


def run_translate(
    options: TranslateOptions, take_unfinished: Callable[[TranslateResult], None] | None = None
) -> TranslateResult:
    """Translate every line of a file or pipe.

    Each line gives n_best lines, in order, whatever is in it: a blank line gives blank ones, and so does a line that
    is not UTF-8 or holds NUL, with a warning. Lines that come slowly are answered one by one.

    Args:
        options: all of them.
        take_unfinished: called with the result of the lines before an error, or Ctrl-C, that ends the work.

    Raises:
        AiaynError: no such model, file or device; input that is not what it should be; a model and a vocabulary that
            do not belong together; a process that ended before its work was done.
    """
    text, output = options.text, options.output
    check_input(text)
    check_outputs(output, text.source, text.prefix, text.glossary)
    models = tuple(map(find_model, options.engine.models or (None,)))
    options = replace(options, engine=replace(options.engine, models=models))  # the same ones in each process
    devices = device_of_each(options.engine.gpus, options.engine.device)
    with ExitStack() as files:
        lines = files.enter_context(open_input(text))
        info, answers = files.enter_context(_workers(options, devices))
        writer = _AnswerWriter(
            output,
            lines,
            info,
            files.enter_context(open_writer(output.path, silent=output.silent)),
            files.enter_context(open_writer(output.report, silent=output.report is None)),
        )
        work_time = WorkTime()
        tasks = (Task(group, writer.picture.room) for group in lines.groups(len(devices)))
        numbered = ((len(task.lines), (task, answer)) for task, answer in answers(work_time.taken(tasks)))
        try:
            for task, answer in lines.followed(numbered):
                writer.take(task, answer)
                work_time.finished()
        except (AiaynError, OSError, KeyboardInterrupt) as error:
            writer.finish_early(error)
            if not isinstance(error, BrokenPipeError):  # its reader has seen enough, and wants no more words
                logs.notice(f"{writer.result(work_time.seconds).summary()}; then it was stopped")
            give_unfinished(error, lambda why: writer.result(work_time.seconds, why), take_unfinished)
            raise
        done = writer.result(work_time.seconds)
    writer.finish()
    return done


@contextmanager
def _workers(
    options: TranslateOptions, devices: list[str]
) -> Iterator[tuple[ModelInfo, Callable[[Iterable[Task]], Iterable[tuple[Task, Answer]]]]]:
    places = [WorkerPlace(device, rank, len(devices), logs.verbosity()) for rank, device in enumerate(devices)]
    if len(places) == 1:
        info, work = start_worker(options, places[0])
        yield info, lambda tasks: ((task, work(task)) for task in tasks)
        return
    names = [f"process {rank} of {len(devices)} ({device})" for rank, device in enumerate(devices, start=1)]
    arguments = [(options, place) for place in places]
    with Processes[ModelInfo, Task, Answer](start_worker, arguments, names) as processes:
        logs.notice(f"{len(devices)} processes, on {', '.join(dict.fromkeys(devices))}")
        yield processes.info, processes.map


class _AnswerWriter:
    """Takes the answers in order: writes, reports, counts, draws."""

    def __init__(
        self,
        options: OutputOptions,
        lines: InputLines,
        info: ModelInfo,
        write: WriteRecords,
        write_report: WriteRecords,
    ) -> None:
        self.picture = AttentionPicture(options.attention)
        self._keep, self._input, self._info = options.keep, lines, info
        self._write, self._write_report = write, write_report
        self._lines = self._blank = 0
        self._notices, self._suspects = LineNotices(), SuspectCounts()
        self._kept: list[tuple[Output | Mapping[str, Any], ...]] = []

    def take(self, task: Task, answer: Answer) -> None:
        """Write and count an answer.

        Raises:
            AiaynError: a line looks wrong, and the work stops there; the lines before it are written.
        """
        done = task.lines[: len(answer.records)]
        for line in done:
            self._count(line)
        for each in answer.notices:
            self._notices.take(each)
        self._write(record for records in answer.records for record in records)
        self._write_report(answer.report)
        self.picture.take(answer.drawings, answer.undrawn)
        for judged in answer.judged:
            self._suspects.take(judged)
        self._kept += answer.kept
        if answer.suspect:
            raise AiaynError(
                f"{self._input.name}:{task.lines[len(done)].number}: the translation is suspect: "
                + "; ".join(f"{flag.replace('_', ' ')} ({FLAGS[flag]})" for flag in answer.suspect),
                "--on-suspect retry searches again, and --report FILE shows all such lines",
            )

    def result(self, seconds: float, stopped: str | None = None) -> TranslateResult:
        counts: Counter[Any] = self._notices.counts
        return TranslateResult(
            models=self._info.models,
            lines=self._lines,
            blank_lines=self._blank,
            unreadable_lines=counts["unreadable"],
            broken_records=counts["unreadable"] if self._input.format.is_strict else 0,
            split_lines=counts["split"],
            suspect_lines=self._suspects.suspect,
            mended_lines=self._suspects.mended,
            flags=dict(self._suspects.flags),
            repaired_lines=counts["repaired"],
            seconds=seconds,
            lines_per_second=self._lines / max(seconds, 1e-9),
            stopped=stopped,
            translations=tuple(self._kept) if self._keep else None,
        )

    def finish(self) -> None:
        self._notices.sum_up()
        self._write_page()
        if summary := self._suspects.summary():
            logs.notice(summary)

    def finish_early(self, error: BaseException) -> None:
        try:
            if isinstance(error, BrokenPipeError):
                self._write_page()
            else:
                self.finish()
        except (AiaynError, OSError) as further:
            logs.warning(str(further))

    def _write_page(self) -> None:
        self.picture.write(f"Attention of {self._info.title}")

    def _count(self, line: InputLine) -> None:
        self._lines += 1
        if line.error:
            what = f"{self._input.name}:{line.number}: {line.error}: left blank"
            self._notices.take(LineNotice("unreadable", what))
        elif is_blank(line.text):
            self._blank += 1


class WorkTime:
    """Counts the seconds in which there was work, not those of waiting for a person who types or for a slow pipe.

    There is work from when a task is taken until its answer is written; overlaps count once. Tasks may be taken in
    another thread than the one that writes their answers.

    Args:
        clock: gives seconds, of which only the differences count.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open = 0  # tasks that were taken, and whose answers are not written
        self._since = self._before = 0.0

    def taken(self, tasks: Iterable[TakenTask]) -> Iterator[TakenTask]:
        for task in tasks:
            with self._lock:
                if not self._open:
                    self._since = self._clock()
                self._open += 1
            yield task

    def finished(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                self._before += self._clock() - self._since

    @property
    def seconds(self) -> float:
        with self._lock:
            return self._before + (self._clock() - self._since if self._open else 0.0)
