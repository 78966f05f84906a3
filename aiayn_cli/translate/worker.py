"""Translates and checks one group of lines in one process."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from aiayn_cli import logs
from aiayn_cli.device import is_out_of_memory
from aiayn_cli.errors import AiaynError
from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.processes import available_cores
from aiayn_cli.translate.aids.attention_page import draw_attention
from aiayn_cli.translate.aids.markup import MarkupTranslator
from aiayn_cli.translate.formats import FORMATS, InputLine, Output
from aiayn_cli.translate.input import is_typed
from aiayn_cli.translate.load_models import LoadedModels, load_models
from aiayn_cli.translate.options import TranslateOptions
from aiayn_cli.translate.translation import Details, Translation
from aiayn_cli.translate.trust.flags import OutputChecks
from aiayn_cli.translate.trust.notices import LineNotice, RecordedNotices
from aiayn_cli.translate.trust.retry import AnyTranslator, Judge, Judged, report_record


@dataclass(frozen=True)
class WorkerPlace:
    """Where a process stands among those that share the lines."""

    device: str  # as in choose_device()
    rank: int  # number of this process; only the first one says what was chosen
    processes: int  # how many share this machine's processors
    verbosity: int  # of logs


@dataclass(frozen=True)
class ModelInfo:
    """What is known of the models once they are loaded."""

    models: tuple[str, ...]  # the checkpoints
    title: str  # what they are, for a heading


@dataclass(frozen=True)
class Task:
    """Lines to translate together."""

    lines: Sequence[InputLine]  # in order, their numbers without gaps
    drawings: int | None = None  # passes whose attention is drawn, at most; None = no page is written


@dataclass(frozen=True)
class Answer:
    """What came of a task."""

    # what is written, for each line in order; where one looked suspect and the work stops there, only for those
    # before it
    records: Sequence[Sequence[str]]
    report: Sequence[str]  # what is reported, for each of these lines; empty without a report
    judged: Sequence[Judged]  # these lines' outputs, and what is thought of the best one
    # these outputs as the result shows them; empty where it does not
    kept: Sequence[tuple[Output | Mapping[str, Any], ...]] = ()
    suspect: tuple[str, ...] = ()  # flags of the line where the work stops
    notices: Sequence[LineNotice] = ()  # what a person should know
    drawings: Sequence[str] = ()  # attention of the first passes, as encode_example() writes it
    undrawn: int = 0  # how many further passes there were, where any were drawn


def start_worker(options: TranslateOptions, place: WorkerPlace) -> tuple[ModelInfo, Callable[[Task], Answer]]:
    """Load the models on a device; see load_models()."""
    logs.setup(place.verbosity, place.rank)
    if place.processes > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(available_cores() // place.processes, 1))
    notices = RecordedNotices()
    # Who waits to type the first line need not wait for the check of the weights.
    loaded = load_models(options, place.device, notices, check_in_background=is_typed(options.text.source))
    first = loaded.checkpoints[0]
    title = f"{first.path}, {first.src_lang}-{first.tgt_lang}, step {first.step:,}"
    return ModelInfo(loaded.names, title), _Worker(options, loaded, notices)


class _Worker:
    def __init__(self, options: TranslateOptions, loaded: LoadedModels, notices: RecordedNotices) -> None:
        first = loaded.checkpoints[0]
        self._output, self._notices = options.output, notices
        self._style, self._format = options.output.style, FORMATS[options.output.style.format]
        self._confirm, self._glossary = loaded.confirm, loaded.glossary
        markup = options.text.markup
        self._translator: AnyTranslator = MarkupTranslator(loaded.translator) if markup else loaded.translator
        self._second_pass = loaded.translator.second_pass()
        self._trees = TreeText(first.text) if first.text.trees else None
        checks = OutputChecks(
            first.src_lang, first.tgt_lang, trees=self._trees, glossary=loaded.glossary, markup=markup
        )
        self._judge = Judge(self._translator, checks, options.output.on_suspect, is_text=self._trees is None)

    def __call__(self, task: Task) -> Answer:
        """Translate the lines of a task.

        Raises:
            AiaynError: memory ran out, or the models are damaged or give NaN.
        """
        self._confirm()
        try:
            return self._answer(task)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            first, last = task.lines[0].number, task.lines[-1].number
            fewer = max(self._translator.decoding.batch_tokens // 2, 1)
            raise AiaynError(
                f"memory ran out between lines {first:,} and {last:,}: {str(error).partition('. ')[0]}",
                f"try --batch-tokens {fewer}, or a smaller --beam or --nbest",
            ) from error

    def _answer(self, task: Task) -> Answer:
        lines, judged = task.lines, self._judged(task.lines)
        suspect: tuple[str, ...] = ()
        if self._output.on_suspect == "fail":
            stop = next((number for number, each in enumerate(judged) if each.flags), len(judged))
            suspect = judged[stop].flags if stop < len(judged) else ()
            lines, judged = lines[:stop], judged[:stop]
        answers = list(zip(lines, judged, self._details(judged), strict=True))
        records = [self._format.write(line, each.outputs, details, self._style) for line, each, details in answers]
        kept = [
            self._format.in_result(written, each.outputs, details)
            for written, (_, each, details) in zip(records, answers, strict=True)
            if self._output.keep
        ]
        report = [self._report(line, each) for line, each, _ in answers if self._output.report is not None]
        drawings, undrawn = draw_attention(self._second_pass, lines, judged, task.drawings)
        return Answer(records, report, judged, kept, suspect, self._notices.give(), drawings, undrawn)

    def _judged(self, lines: Sequence[InputLine]) -> list[Judged]:
        texts = [line.text for line in lines]
        prefixes = [line.prefix for line in lines] if any(line.prefix for line in lines) else []
        outputs = self._translator.translate_n_best(texts, lines[0].number, prefixes)
        judged = self._judge.judge(texts, outputs, prefixes)
        if self._trees is None:
            return judged
        return [
            each if each.replaced_by else replace(each, outputs=self._as_trees(self._trees, line, each.outputs))
            for line, each in zip(lines, judged, strict=True)
        ]

    def _as_trees(self, trees: TreeText, line: InputLine, outputs: Sequence[Translation]) -> list[Translation]:
        """A parser's outputs as bracketed trees on one line; a repair of the best one is reported."""
        found = [trees.restore_text(line.text, output.text) for output in outputs]
        if repairs := found[0][1]:
            what = ", ".join(f"{reason} ({times})" for reason, times in repairs.items())
            self._notices.take(LineNotice("repaired", f"line {line.number:,}: the tree was repaired: {what}"))
        return [replace(output, text=text) for output, (text, _) in zip(outputs, found, strict=True)]

    def _report(self, line: InputLine, judged: Judged) -> str:
        more: dict[str, object] = {"error": line.error} if line.error else {}
        if self._glossary is not None and "glossary_missed" in judged.flags:
            missing = self._glossary.missing(line.text, judged.outputs[0].text)
            more["missing_terms"] = [f"{term.source} = {'|'.join(term.targets)}" for term in missing]
        return report_record(line.number, line.text, judged, (line.fields or {}).get("id"), more)

    def _details(self, judged: Sequence[Judged]) -> list[list[Details | None]]:
        if not self._format.needs_details(self._style):
            return [[None] * len(each.outputs) for each in judged]
        outputs = [output for each in judged for output in each.outputs]
        found = iter(self._second_pass.details(outputs, with_alignment=self._style.alignments))
        return [[next(found) for _ in each.outputs] for each in judged]
