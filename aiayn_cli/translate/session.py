"""Runs a whole translation: lines from a file or a pipe, shared among workers, answers written in order."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.device import device_of_each, is_out_of_memory
from aiayn_cli.errors import AiaynError
from aiayn_cli.processes import Processes, available_cores
from aiayn_cli.text.lines import is_blank
from aiayn_cli.translate.aids.attention_page import AttentionPicture, draw_attention
from aiayn_cli.translate.forced_decoding import Details
from aiayn_cli.translate.formats import FORMATS
from aiayn_cli.translate.input import InputLine, WorkTime, is_typed, open_input, show_details
from aiayn_cli.translate.line_translator import LineNotice, LineNotices
from aiayn_cli.translate.options import TranslateOptions
from aiayn_cli.translate.output_files import check_outputs, give_unfinished, open_writer
from aiayn_cli.translate.score_against import run_score_against
from aiayn_cli.translate.translator import Translator
from aiayn_cli.translate.trust.flags import FLAGS
from aiayn_cli.translate.trust.retry import Judged, SuspectCounts, report_record

__all__ = ["run_score_against", "run_translate"]

WriteRecords = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class TranslateResult:
    """What was translated."""

    models: tuple[str, ...]  # the checkpoints that were used
    lines: int  # read and written (times n-best)
    blank_lines: int  # blank lines among them, which stayed so
    unreadable_lines: int  # those with bytes that are not text, or broken JSON; their translation is blank
    split_lines: int  # those too long for one pass
    suspect_lines: int  # those whose best output has a flag (flags.FLAGS)
    mended_lines: int  # those that lost their flags in another search
    flags: Mapping[str, int]  # how often each flag was raised
    repaired_lines: int  # those with a tree that had to be repaired
    seconds: float  # of work on lines, without loading and without waiting for lines
    lines_per_second: float  # speed
    stopped: str | None = None  # why it ended before the last line; None if it did not
    translations: tuple[tuple[Any, ...], ...] | None = None  # for each line, LineFormat.results(); None = written

    def summary(self) -> str:
        remarks = (
            ("blank", self.blank_lines),
            ("unreadable", self.unreadable_lines),
            ("cut", self.split_lines),
            ("repaired", self.repaired_lines),
        )
        counted = "".join(f", {count:,} {what}" for what, count in remarks if count)
        speed = f"{self.lines_per_second:.{0 if self.lines_per_second >= 10 else 1}f}"
        return f"translated {logs.counted(self.lines, 'line')} in {self.seconds:.1f} s, {speed} a second{counted}"


@dataclass(frozen=True)
class Task:
    """Lines to translate together."""

    lines: Sequence[InputLine]  # in order, their numbers without gaps
    drawings: int | None = None  # passes whose attention is drawn, at most; None = no page is written


@dataclass(frozen=True)
class Answer:
    """The outcome of a task: all lines, or with --on-suspect fail those before the first suspect one."""

    judged: Sequence[Judged]  # for each line
    results: Sequence[Sequence[Any]]  # for each line, LineFormat.results()
    report: Sequence[str]  # for each line; empty without a report
    suspect: tuple[str, ...]  # flags of the line where the work stops
    notices: Sequence[LineNotice]
    drawings: Sequence[str]  # attention of the first passes, as encode_example() writes it
    undrawn: int  # how many further passes there were, if any were drawn


def run_translate(
    options: TranslateOptions, take_unfinished: Callable[[TranslateResult], None] | None = None
) -> TranslateResult:
    """Translate every line of a file or pipe.

    Each line gives n_best lines, in order, whatever is in it: a blank line gives blank ones, and so does a line that
    is not UTF-8 or holds NUL, with a warning. Lines that come slowly are answered one by one.

    Args:
        take_unfinished: called with the result of the lines before an error, or Ctrl-C, that ends the work.
    Raises:
        AiaynError: no such model, file or device; invalid input; a model and a vocabulary that do not belong together;
            a process that ended before its work was done.
    """
    text, output = options.text, options.output
    check_outputs(output, text.source, text.prefix, text.glossary)
    models = tuple(map(find_model, options.engine.models or (None,)))
    options = replace(options, engine=replace(options.engine, models=models))  # the same models in each process
    devices = device_of_each(options.engine.gpus, options.engine.device)
    if is_typed(text):
        devices = devices[:1]  # more would ask for the next line before the answer to this one
    with ExitStack() as files:
        lines = files.enter_context(open_input(text, FORMATS[text.format].read))
        title, answers = files.enter_context(_workers(options, devices))
        write = files.enter_context(open_writer(output.path, silent=output.silent))
        write_report = files.enter_context(open_writer(output.report, silent=output.report is None))
        writer = _AnswerWriter(options, lines.name, write, write_report)
        work_time = WorkTime()
        tasks = (Task(group, writer.picture.room) for group in lines.groups(len(devices)))
        numbered = ((len(task.lines), (task, answer)) for task, answer in answers(work_time.taken(tasks)))
        try:
            for task, answer in lines.followed(numbered):
                writer.take(task, answer)
                work_time.finished()
                if lines.is_typed and not is_blank(task.lines[0].text):
                    show_details(answer.judged[0].outputs[0], answer.judged[0].flags)
        except (AiaynError, OSError, KeyboardInterrupt) as error:
            writer.finish_early(title, error)
            if not isinstance(error, BrokenPipeError):  # whose reader wants to hear no more
                logs.notice(f"{writer.result(work_time.seconds).summary()}; then it was stopped")
            give_unfinished(error, lambda why: writer.result(work_time.seconds, why), take_unfinished)
            raise
        done = writer.result(work_time.seconds)
    writer.finish(title)
    return done


@contextmanager
def _workers(
    options: TranslateOptions, devices: list[str]
) -> Iterator[tuple[str, Callable[[Iterable[Task]], Iterable[tuple[Task, Answer]]]]]:
    """Load the models on each device; gives a title for them, and what answers tasks in order."""
    if len(devices) == 1:
        title, work = start_worker(options, devices[0])
        yield title, lambda tasks: ((task, work(task)) for task in tasks)
        return
    names = [f"process {rank} of {len(devices)} ({device})" for rank, device in enumerate(devices, start=1)]
    threads = max(available_cores() // len(devices), 1)
    arguments = [(options, device, threads, logs.verbosity(), rank) for rank, device in enumerate(devices)]
    with Processes[str, Task, Answer](_start_process, arguments, names) as processes:
        logs.notice(f"{len(devices)} processes, on {', '.join(dict.fromkeys(devices))}")
        yield processes.info, processes.map


def _start_process(
    options: TranslateOptions, device: str, threads: int, verbosity: int, rank: int
) -> tuple[str, Callable[[Task], Answer]]:
    logs.setup(verbosity, rank)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    return start_worker(options, device)


def start_worker(options: TranslateOptions, device: str) -> tuple[str, Callable[[Task], Answer]]:
    """Load the models on a device; gives a title for them, and what answers tasks."""
    notices: list[LineNotice] = []
    # Who waits to type the first line need not wait for the check of the weights.
    translator = Translator(options, device=device, notify=notices.append, check_in_background=is_typed(options.text))
    first = translator.loaded.checkpoints[0]
    title = f"{first.path}, {first.src_lang}-{first.tgt_lang}, step {first.step:,}"
    return title, _Worker(options, translator, notices)


class _Worker:
    """Translates the lines of tasks, and puts the results into the output's format."""

    def __init__(self, options: TranslateOptions, translator: Translator, notices: list[LineNotice]) -> None:
        self._output, self._translator, self._notices = options.output, translator, notices
        self._style, self._format = options.output.style, FORMATS[options.output.style.format]

    def __call__(self, task: Task) -> Answer:
        """Translate the lines of a task.

        Raises:
            AiaynError: memory ran out, or the models are damaged or give NaN.
        """
        try:
            return self._answer(task)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            first, last = task.lines[0].number, task.lines[-1].number
            fewer = max(self._translator.lines.decoding.batch_tokens // 2, 1)
            raise AiaynError(
                f"memory ran out between lines {first:,} and {last:,}: {str(error).partition('. ')[0]}",
                f"try --batch-tokens {fewer}, or a smaller --beam or --nbest",
            ) from error

    def _answer(self, task: Task) -> Answer:
        lines = task.lines
        prefixes = [line.prefix for line in lines] if any(line.prefix for line in lines) else []
        judged = self._translator.judged([line.text for line in lines], lines[0].number, prefixes)
        suspect: tuple[str, ...] = ()
        if self._output.on_suspect == "fail":
            stop = next((number for number, each in enumerate(judged) if each.flags), len(judged))
            suspect = judged[stop].flags if stop < len(judged) else ()
            lines, judged = lines[:stop], judged[:stop]
        answers = list(zip(lines, judged, strict=True))
        details = iter(self._details(judged))
        results = [
            self._format.results(line, each.outputs, [next(details) for _ in each.outputs], self._style)
            for line, each in answers
        ]
        report = [self._report(line, each) for line, each in answers if self._output.report is not None]
        drawings, undrawn = draw_attention(self._translator.forced, lines, judged, task.drawings)
        notices = self._notices.copy()
        self._notices.clear()
        return Answer(judged, results, report, suspect, notices, drawings, undrawn)

    def _details(self, judged: Sequence[Judged]) -> Sequence[Details | None]:
        outputs = [output for each in judged for output in each.outputs]
        if not self._format.needs_details(self._style):
            return [None] * len(outputs)
        return self._translator.forced.details(outputs, with_alignment=self._style.alignments)

    def _report(self, line: InputLine, judged: Judged) -> str:
        more: dict[str, object] = {"error": line.error} if line.error else {}
        glossary = self._translator.loaded.glossary
        if glossary is not None and "glossary_missed" in judged.flags:
            missing = glossary.missing(line.text, judged.outputs[0].text)
            more["missing_terms"] = [f"{term.source} = {'|'.join(term.targets)}" for term in missing]
        return report_record(line.number, line.text, judged, (line.fields or {}).get("id"), more)


class _AnswerWriter:
    """Takes the answers in order: writes, reports, counts, draws."""

    def __init__(self, options: TranslateOptions, source: str, write: WriteRecords, write_report: WriteRecords) -> None:
        self._options, self._source = options, source
        self._format, self._style = FORMATS[options.output.style.format], options.output.style
        self._write, self._write_report = write, write_report
        self.picture = AttentionPicture(options.output.attention)
        self._blank = 0
        self._notices, self._suspects = LineNotices(), SuspectCounts()
        self._kept: list[tuple[Any, ...]] | None = [] if options.output.keep else None

    def take(self, task: Task, answer: Answer) -> None:
        """Write and count an answer.

        Raises:
            AiaynError: a line looks wrong, and the work stops there; the lines before it are written.
        """
        for line, judged in zip(task.lines, answer.judged, strict=False):
            self._suspects.take(judged)
            if line.error:
                what = f"{self._source}:{line.number}: {line.error}: left blank"
                self._notices.take(LineNotice("unreadable", what))
            elif is_blank(line.text):
                self._blank += 1
        for notice in answer.notices:
            self._notices.take(notice)
        self._write(self._format.write(result, self._style) for results in answer.results for result in results)
        self._write_report(answer.report)
        self.picture.take(answer.drawings, answer.undrawn)
        if self._kept is not None:
            self._kept += map(tuple, answer.results)
        if answer.suspect:
            raise AiaynError(
                f"{self._source}:{task.lines[len(answer.judged)].number}: the translation is suspect: "
                + "; ".join(f"{flag.replace('_', ' ')} ({FLAGS[flag]})" for flag in answer.suspect),
                "--on-suspect retry searches again, and --report FILE shows all such lines",
            )

    def result(self, seconds: float, stopped: str | None = None) -> TranslateResult:
        counts, suspects = self._notices.counts, self._suspects
        return TranslateResult(
            models=tuple(map(str, self._options.engine.models)), lines=suspects.lines, blank_lines=self._blank,
            unreadable_lines=counts["unreadable"], split_lines=counts["split"], repaired_lines=counts["repaired"],
            suspect_lines=suspects.suspect, mended_lines=suspects.mended, flags=dict(suspects.flags),
            seconds=seconds, lines_per_second=suspects.lines / max(seconds, 1e-9), stopped=stopped,
            translations=None if self._kept is None else tuple(self._kept),
        )  # fmt: skip

    def finish(self, title: str) -> None:
        self._notices.sum_up()
        self.picture.write(f"Attention of {title}")
        if summary := self._suspects.summary():
            logs.notice(summary)

    def finish_early(self, title: str, error: BaseException) -> None:
        try:
            if isinstance(error, BrokenPipeError):
                self.picture.write(f"Attention of {title}")
            else:
                self.finish(title)
        except (AiaynError, OSError) as further:
            logs.warning(str(further))
