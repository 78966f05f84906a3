"""What is done with a group of lines, in one process: translated, judged, written down; nothing is put out yet."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aiayn_cli import logs
from aiayn_cli.config import Precision
from aiayn_cli.device import is_out_of_memory
from aiayn_cli.errors import AiaynError
from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.processes import available_cores
from aiayn_cli.translate.aids.alignment import Links
from aiayn_cli.translate.aids.attention import draw_attention
from aiayn_cli.translate.aids.markup_translator import MarkupTranslator
from aiayn_cli.translate.input_lines import InputLine
from aiayn_cli.translate.model_limits import check_abilities
from aiayn_cli.translate.models import Engine, LoadedModels, Search, load_models
from aiayn_cli.translate.output import OutputStyle
from aiayn_cli.translate.translation import Details
from aiayn_cli.translate.trees import TreeRestorer
from aiayn_cli.translate.trust.flags import OutputChecks
from aiayn_cli.translate.trust.notices import LineNotice, RecordedNotices
from aiayn_cli.translate.trust.report import report_record
from aiayn_cli.translate.trust.suspects import AnyTranslator, Judge, Judged, OnSuspect


@dataclass(frozen=True, kw_only=True)
class WorkPlan:
    """What every process needs to know.

    Attributes:
        models: checkpoints or runs.
        search, precision, engine, int8, glossary: as in load_models().
        style: what is written.
        with_report: whether a report is written.
        with_attention: whether attention is drawn.
        on_suspect: what is done about outputs that look wrong.
        markup: whether tags, placeholders and addresses are carried through.
        verbosity: of logs.
        check_beside: as in load_models(), for somebody who waits to type the first line.
    """

    models: Sequence[Path]
    search: Search
    precision: Precision
    engine: Engine
    int8: bool
    glossary: Path | None
    style: OutputStyle
    with_report: bool
    with_attention: bool
    on_suspect: OnSuspect
    markup: bool
    verbosity: int
    check_beside: bool


@dataclass(frozen=True)
class WorkInfo:
    """What is known of the models once they are loaded.

    Attributes:
        models: the checkpoints.
        title: what they are, for a heading.
    """

    models: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class Task:
    """Lines to translate together.

    Attributes:
        lines: in order, their numbers without gaps.
        drawings: passes whose attention is drawn, at most; None = nobody asked for any.
    """

    lines: Sequence[InputLine]
    drawings: int | None = None


@dataclass(frozen=True)
class Answer:
    """What came of a task.

    Attributes:
        records: what is written, for each line in order. Where one looked suspect and the work was to stop there, only
            those before it.
        report: what is reported, for each of these lines; empty without a report.
        judged: these lines' outputs, and what is thought of the best one.
        alignments: of each of these outputs, in words; None without --alignments.
        suspect: flags of the line where the work was to stop.
        notices: what a person should know.
        drawings: attention of the first passes, as encode_example() writes it.
        undrawn: how many passes more there were, where any were to be drawn.
    """

    records: Sequence[Sequence[str]]
    report: Sequence[str]
    judged: Sequence[Judged]
    alignments: Sequence[Sequence[Links | None]]
    suspect: tuple[str, ...] = ()
    notices: Sequence[LineNotice] = ()
    drawings: Sequence[str] = ()
    undrawn: int = 0


def make_work(
    plan: WorkPlan, device: str, rank: int = 0, processes: int = 1
) -> tuple[WorkInfo, Callable[[Task], Answer]]:
    """Load the models on a device.

    Args:
        plan: what is to be done.
        device: as in choose_device().
        rank: number of this process; only the first one says what was chosen.
        processes: how many share this machine's processors.
    Raises:
        AiaynError: as in load_models() and check_abilities().
    """
    logs.setup(plan.verbosity, rank)
    if processes > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(available_cores() // processes, 1))
    notices = RecordedNotices()
    loaded = load_models(
        plan.models,
        plan.search,
        device,
        plan.precision,
        plan.engine,
        plan.int8,
        plan.glossary,
        notices,
        plan.check_beside,
    )
    first = loaded.checkpoints[0]
    check_abilities(
        loaded.checkpoints,
        attention=plan.with_attention,
        alignments=plan.style.alignments,
        markup=plan.markup,
        glossary=plan.glossary is not None,
        on_suspect=plan.on_suspect,
        sample=plan.search.options.sampling is not None,
        tree_rules=plan.search.tree_rules,
    )
    title = f"{first.path}, {first.src_lang}-{first.tgt_lang}, step {first.step:,}"
    info = WorkInfo(tuple(str(checkpoint.path) for checkpoint in loaded.checkpoints), title)
    return info, _Work(plan, loaded, notices)


class _Work:
    def __init__(self, plan: WorkPlan, loaded: LoadedModels, notices: RecordedNotices) -> None:
        first = loaded.checkpoints[0]
        self._plan = plan
        self._confirm = loaded.confirm
        self._glossary = loaded.glossary
        self._translator: AnyTranslator = MarkupTranslator(loaded.translator) if plan.markup else loaded.translator
        self._second_pass = loaded.translator.second_pass()
        trees = TreeText(first.text) if first.text.trees else None
        checks = OutputChecks(first.src_lang, first.tgt_lang, trees=trees, glossary=loaded.glossary, markup=plan.markup)
        self._judge = Judge(self._translator, checks, plan.on_suspect, is_text=trees is None)
        self._trees = None if trees is None else TreeRestorer(trees, notices)
        self._notices = notices

    def __call__(self, task: Task) -> Answer:
        """Do it.

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
        if self._plan.on_suspect == "fail":
            stop = next((number for number, each in enumerate(judged) if each.flags), len(judged))
            suspect = judged[stop].flags if stop < len(judged) else ()
            lines, judged = lines[:stop], judged[:stop]
        details = self._details(judged)
        records = [
            self._plan.style.records(line, each.outputs, found)
            for line, each, found in zip(lines, judged, details, strict=True)
        ]
        is_aligned = self._plan.style.alignments
        alignments = [[each.alignment if each and is_aligned else None for each in found] for found in details]
        report = [self._report(line, each) for line, each in zip(lines, judged, strict=True)]
        drawings, undrawn = draw_attention(self._second_pass, lines, judged, task.drawings)
        return Answer(
            records,
            report if self._plan.with_report else [],
            judged,
            alignments,
            suspect,
            self._notices.give(),
            drawings,
            undrawn,
        )

    def _judged(self, lines: Sequence[InputLine]) -> list[Judged]:
        texts = [line.text for line in lines]
        prefixes = [line.prefix for line in lines] if any(line.prefix for line in lines) else []
        outputs = self._translator.translate_n_best(texts, lines[0].number, prefixes)
        judged = self._judge.judge(texts, outputs, prefixes)
        if self._trees is None:
            return judged
        return [
            each if each.replaced_by else replace(each, outputs=self._trees.restore(line, each.outputs))
            for line, each in zip(lines, judged, strict=True)
        ]

    def _report(self, line: InputLine, judged: Judged) -> str:
        more: dict[str, object] = {"error": line.error} if line.error else {}
        if self._glossary is not None and "glossary_missed" in judged.flags:
            missing = self._glossary.missing(line.text, judged.outputs[0].text)
            more["missing_terms"] = [f"{term.source} = {'|'.join(term.targets)}" for term in missing]
        return report_record(line.number, line.text, judged, (line.fields or {}).get("id"), more)

    def _details(self, judged: Sequence[Judged]) -> list[list[Details | None]]:
        """What a second pass finds out about each output of each line; None where nobody asked."""
        if not self._plan.style.needs_details:
            return [[None] * len(each.outputs) for each in judged]
        outputs = [output for each in judged for output in each.outputs]
        found = iter(self._second_pass.details(outputs, with_alignment=self._plan.style.alignments))
        return [[next(found) for _ in each.outputs] for each in judged]
