"""Runs a whole translation: lines from a file or a pipe, shared among workers, answers written in order."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.device import device_of_each, is_out_of_memory
from aiayn_cli.errors import AiaynError
from aiayn_cli.processes import Processes, available_cores
from aiayn_cli.text.lines import is_blank
from aiayn_cli.translate.aids.attention_page import MOST_EXAMPLES, AttentionPicture, draw_attention
from aiayn_cli.translate.forced_decoding import Details
from aiayn_cli.translate.formats import FORMATS, report_record
from aiayn_cli.translate.input import InputLine, InputLines, is_typed, open_input, show_details
from aiayn_cli.translate.line_translator import LineNotice, LineNotices
from aiayn_cli.translate.options import TranslateOptions
from aiayn_cli.translate.output_files import check_outputs, open_writer, say_unfinished
from aiayn_cli.translate.score_against import run_score_against
from aiayn_cli.translate.translator import Translator
from aiayn_cli.translate.trust.flags import FLAGS
from aiayn_cli.translate.trust.retry import Judged

__all__ = ["run_score_against", "run_translate"]

Group = Sequence[InputLine]  # translated together
WriteRecords = Callable[[Iterable[str]], None]


@dataclass
class TranslateResult:
    """What was translated."""

    models: tuple[str, ...]  # the checkpoints that were used
    lines: int = 0  # read and written (times n-best)
    blank_lines: int = 0  # blank lines among them, which stayed so
    unreadable_lines: int = 0  # those with bytes that are not text, or broken JSON; their translation is blank
    split_lines: int = 0  # those too long for one pass
    suspect_lines: int = 0  # those whose best output has a flag (flags.FLAGS)
    mended_lines: int = 0  # those that lost their flags in another search
    flags: Counter[str] = field(default_factory=Counter)  # how often each flag was raised
    repaired_lines: int = 0  # those with a tree that had to be repaired
    seconds: float = 0.0  # of work on lines by the busiest process, without loading and without waiting for lines
    lines_per_second: float = 0.0  # speed
    stopped: str | None = None  # why it ended before the last line; None if it did not
    translations: list[Sequence[Any]] | None = None  # for each line, results() of the format; None = written

    def suspects(self) -> str:
        parts = []
        if self.suspect_lines:
            counts = {name: self.flags[name] for name in FLAGS if self.flags[name]}
            kinds = ", ".join(
                logs.counted(count, "empty output") if name == "empty" else f"{count:,} {name.replace('_', ' ')}"
                for name, count in counts.items()
            )
            look = "looks" if self.suspect_lines == 1 else "look"
            parts.append(f"{self.suspect_lines:,} of {logs.counted(self.lines, 'line')} {look} wrong: {kinds}")
        if self.mended_lines:
            parts.append(f"another search fixed {logs.counted(self.mended_lines, 'line')}")
        return "; ".join(parts)

    def summary(self) -> str:
        kinds = ("blank", "unreadable", "split", "repaired")
        counts = (self.blank_lines, self.unreadable_lines, self.split_lines, self.repaired_lines)
        counted = "".join(f", {count:,} {kind}" for kind, count in zip(kinds, counts, strict=True) if count)
        speed = f"{self.lines_per_second:.{0 if self.lines_per_second >= 10 else 1}f}"
        return f"translated {logs.counted(self.lines, 'line')} in {self.seconds:.1f} s, {speed} a second{counted}"


@dataclass(frozen=True)
class Answer:
    """The results for a group of lines; with --on-suspect fail, for those before the first suspect one."""

    judged: Sequence[Judged]  # for each line
    results: Sequence[Sequence[Any]]  # for each line, results() of the format
    report: Sequence[str]  # for each line; empty without a report
    suspect: tuple[str, ...]  # flags of the line where the work stops
    notices: Sequence[LineNotice]
    drawings: Sequence[str]  # attention of the first passes, as encode_example() writes it
    process: int = field(default_factory=os.getpid)
    seconds: float = 0.0  # of work


def run_translate(
    options: TranslateOptions, take_unfinished: Callable[[TranslateResult], None] | None = None
) -> TranslateResult:
    """Translate every line of a file or pipe; AiaynError for what cannot be found, read or written.

    Each line gives n_best lines, in order, whatever is in it: a blank line gives blank ones, and so does a line that
    is not UTF-8 or holds NUL, with a warning. Lines that come slowly are answered one by one. An error or a signal that
    ends the work calls `take_unfinished` with the result of the lines before it.
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
        title, answers = files.enter_context(_workers(options, devices, lines))
        write = files.enter_context(open_writer(output.path, silent=output.keep))
        write_report = files.enter_context(open_writer(output.report, silent=output.report is None))
        writer = _AnswerWriter(options, lines.name, write, write_report)
        numbered = ((len(group), (group, answer)) for group, answer in answers(lines.groups(len(devices))))
        try:
            for group, answer in lines.followed(numbered):
                if answer is None:  # Ctrl-C dropped the line
                    continue
                writer.take(group, answer)
                if lines.is_typed and not is_blank(group[0].text):
                    show_details(answer.judged[0].outputs[0], answer.judged[0].flags)
        except (AiaynError, OSError, KeyboardInterrupt) as error:
            writer.finish_early(title, error)
            say_unfinished(error, writer.result, take_unfinished)
            raise
    writer.finish(title)
    return writer.result


@contextmanager
def _workers(
    options: TranslateOptions, devices: list[str], lines: InputLines
) -> Iterator[tuple[str, Callable[[Iterable[Group]], Iterable[tuple[Group, Answer | None]]]]]:
    """Load the models on each device; gives a title for them, and what answers groups of lines in order."""
    if len(devices) == 1:
        title, work = start_worker(options, devices[0])
        answer = lines.droppable(work)
        yield title, lambda groups: ((group, answer(group)) for group in groups)
        return
    names = [f"process {rank} of {len(devices)} ({device})" for rank, device in enumerate(devices, start=1)]
    threads = max(available_cores() // len(devices), 1)
    arguments = [(options, device, threads, logs.verbosity(), rank) for rank, device in enumerate(devices)]
    with Processes[str, Group, Answer](_start_process, arguments, names) as processes:
        logs.notice(f"{len(devices)} processes, on {', '.join(dict.fromkeys(devices))}")
        yield processes.info, processes.map


def _start_process(
    options: TranslateOptions, device: str, threads: int, verbosity: int, rank: int
) -> tuple[str, Callable[[Group], Answer]]:
    logs.setup(verbosity, rank)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)
    return start_worker(options, device)


def start_worker(options: TranslateOptions, device: str) -> tuple[str, Callable[[Group], Answer]]:
    """Load the models on a device; gives a title for them, and what answers a group of lines."""
    notices: list[LineNotice] = []
    # Nobody has to wait for the check of the weights to type the first line.
    translator = Translator(options, device=device, notify=notices.append, check_in_background=is_typed(options.text))
    first = translator.loaded.checkpoints[0]
    title = f"{first.path}, {first.src_lang}-{first.tgt_lang}, step {first.step:,}"
    return title, _Worker(options, translator, notices)


class _Worker:
    """Translates groups of lines, and puts the results into the output's format."""

    def __init__(self, options: TranslateOptions, translator: Translator, notices: list[LineNotice]) -> None:
        self._output, self._translator, self._notices = options.output, translator, notices
        self._style, self._format = options.output.style, FORMATS[options.output.style.format]
        self._to_draw = 0 if options.output.attention is None else MOST_EXAMPLES

    def __call__(self, lines: Group) -> Answer:
        """Translate some lines; AiaynError if memory runs out, or the models are damaged or give NaN."""
        started = time.perf_counter()
        try:
            answer = self._answer(lines)
            return replace(answer, seconds=time.perf_counter() - started)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            first, last = lines[0].number, lines[-1].number
            where = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
            fewer = max(self._translator.lines.decoding.batch_tokens // 2, 1)
            raise AiaynError(
                f"memory ran out while translating {where}: {str(error).partition('. ')[0]}",
                f"try --batch-tokens {fewer}, or a smaller --beam or --nbest",
            ) from error

    def _answer(self, lines: Group) -> Answer:
        self._notices.clear()  # those of a line that was dropped
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
        drawings = draw_attention(self._translator.forced, lines, judged, self._to_draw)
        self._to_draw -= len(drawings)
        return Answer(judged, results, report, suspect, self._notices.copy(), drawings)

    def _details(self, judged: Sequence[Judged]) -> Sequence[Details | None]:
        outputs = [output for each in judged for output in each.outputs]
        if not self._format.needs_details(self._style):
            return [None] * len(outputs)
        return self._translator.forced.details(outputs, with_alignment=self._style.alignments)

    def _report(self, line: InputLine, judged: Judged) -> str:
        glossary = self._translator.loaded.glossary
        if glossary is None or "glossary_missed" not in judged.flags:
            return report_record(line, judged)
        missing = glossary.missing(line.text, judged.outputs[0].text)
        return report_record(line, judged, [f"{term.source} = {'|'.join(term.targets)}" for term in missing])


class _AnswerWriter:
    """Writes the answers in order, with the report and the attention page, and counts lines."""

    def __init__(self, options: TranslateOptions, source: str, write: WriteRecords, write_report: WriteRecords) -> None:
        self._source = source
        self._format, self._style = FORMATS[options.output.style.format], options.output.style
        self._write, self._write_report = write, write_report
        self._picture, self._notices = AttentionPicture(options.output.attention), LineNotices()
        self._seconds: defaultdict[int, float] = defaultdict(float)  # by process
        kept: list[Sequence[Any]] | None = [] if options.output.keep else None
        self.result = TranslateResult(tuple(map(str, options.engine.models)), translations=kept)

    def take(self, lines: Group, answer: Answer) -> None:
        """Write and count an answer; AiaynError for a suspect line under --on-suspect fail."""
        for line, judged in zip(lines, answer.judged, strict=False):
            self._count(line, judged)
        for notice in answer.notices:
            self._notices.take(notice)
        self._write(self._format.write(result, self._style) for results in answer.results for result in results)
        self._write_report(answer.report)
        self._picture.take(answer.drawings)
        done, counts = self.result, self._notices.counts
        done.split_lines, done.repaired_lines = counts["split lines"], counts["repaired trees"]
        self._seconds[answer.process] += answer.seconds
        done.seconds = max(self._seconds.values())
        done.lines_per_second = done.lines / max(done.seconds, 1e-9)
        if done.translations is not None:
            done.translations += answer.results
        if answer.suspect:
            raise AiaynError(
                f"{self._source}:{lines[len(answer.judged)].number}: the translation is suspect: "
                + "; ".join(f"{flag.replace('_', ' ')} ({FLAGS[flag]})" for flag in answer.suspect),
                "--on-suspect retry searches again; --report FILE lists all such lines",
            )

    def _count(self, line: InputLine, judged: Judged) -> None:
        done = self.result
        done.lines += 1
        done.suspect_lines += bool(judged.flags)
        done.mended_lines += bool(judged.first_flags and not judged.flags)
        done.flags.update(judged.flags)
        if line.error:
            done.unreadable_lines += 1
            what = f"{self._source}:{line.number}: {line.error}; its output is blank"
            self._notices.take(LineNotice("unreadable lines", what))
        elif is_blank(line.text):
            done.blank_lines += 1

    def finish(self, title: str) -> None:
        self._notices.sum_up()
        self._picture.write(f"Attention of {title}")
        if suspects := self.result.suspects():
            logs.notice(suspects)

    def finish_early(self, title: str, error: BaseException) -> None:
        try:
            if isinstance(error, BrokenPipeError):
                self._picture.write(f"Attention of {title}")
            else:
                self.finish(title)
        except (AiaynError, OSError) as further:
            logs.warning(str(further))
