"""What happens to each group of lines: translated, judged, written, reported and counted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from aiayn_cli import logs
from aiayn_cli.data.input_lines import InputLine
from aiayn_cli.data.text import is_blank
from aiayn_cli.data.tree_text import TreeText
from aiayn_cli.decoding.flags import FLAGS, OutputChecks
from aiayn_cli.decoding.markup_translator import MarkupTranslator
from aiayn_cli.decoding.report import SuspectCounts, report_record
from aiayn_cli.decoding.suspects import AnyTranslator, Judge, Judged, OnSuspect
from aiayn_cli.decoding.translation import Details
from aiayn_cli.errors import AiaynError
from aiayn_cli.stages.translate_attention import AttentionPicture
from aiayn_cli.stages.translate_models import LoadedModels
from aiayn_cli.stages.translate_output import OutputStyle
from aiayn_cli.stages.translate_trees import TreeRestorer

_WARNINGS = 5  # unreadable lines named one by one; the rest are only counted

WriteRecords = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class Output:
    """One of the outputs for a line, as --json shows it; the fields are Translation's."""

    text: str
    log_prob: float
    score: float


class Session:
    """One run over one input.

    Args:
        loaded: the models.
        style: what is written.
        on_suspect: what is done about outputs that look wrong.
        name: of the input, for messages.
        write: takes the records of the output.
        write_report: takes those of the report.
        keep_outputs: whether to remember all outputs.
        picture: takes what attention is drawn of.
        markup: whether tags, placeholders and addresses are carried through.

    Attributes:
        lines, blank, unreadable: counts of lines read.
        trees: what makes trees of the outputs of a parser, and counts its repairs.
        suspects: counts of what was judged.
        kept: the outputs for each line.
    """

    def __init__(
        self,
        loaded: LoadedModels,
        style: OutputStyle,
        on_suspect: OnSuspect,
        name: str,
        write: WriteRecords,
        write_report: WriteRecords,
        *,
        keep_outputs: bool,
        picture: AttentionPicture,
        markup: bool = False,
    ) -> None:
        first = loaded.checkpoints[0]
        self._title = f"{first.path}, {first.src_lang}-{first.tgt_lang}, step {first.step:,}"
        self._translator: AnyTranslator = MarkupTranslator(loaded.translator) if markup else loaded.translator
        self._second_pass = loaded.translator.second_pass()
        trees = TreeText(first.text) if first.text.trees else None
        checks = OutputChecks(first.src_lang, first.tgt_lang, trees=trees, glossary=loaded.glossary, markup=markup)
        self._glossary = loaded.glossary
        self._judge = Judge(self._translator, checks, on_suspect, is_text=trees is None)
        self._style, self._on_suspect, self._name = style, on_suspect, name
        self._write, self._write_report = write, write_report
        self._keep_outputs, self._picture = keep_outputs, picture
        self.lines = self.blank = self.unreadable = 0
        self.trees = TreeRestorer(trees)
        self.suspects = SuspectCounts()
        self.kept: list[tuple[Output, ...]] = []

    def take(self, group: Sequence[InputLine]) -> None:
        """Do all that is to be done for some lines.

        Raises:
            AiaynError: a line looks wrong, and on_suspect is "fail"; the lines before it are written.
        """
        for line in group:
            self._count(line)
        judged = self._with_trees(group, self._translate(group))
        failed = next((i for i, each in enumerate(judged) if each.flags), None) if self._on_suspect == "fail" else None
        self._put_out(group[:failed], judged[:failed])
        if failed is not None:
            flags = judged[failed].flags
            raise AiaynError(
                f"{self._name}:{group[failed].number}: the translation is suspect: "
                + "; ".join(f"{flag.replace('_', ' ')} ({FLAGS[flag]})" for flag in flags),
                "--on-suspect retry searches again, and --report FILE shows all such lines",
            )

    def finish(self) -> None:
        """Say what a person should know at the end."""
        self.trees.sum_up()
        self._picture.write(f"Attention of {self._title}")
        if self.unreadable > _WARNINGS:
            logs.warning(f"{self.unreadable:,} lines of {self._name} in all could not be read")
        if summary := self.suspects.summary():
            logs.notice(summary)

    def _count(self, line: InputLine) -> None:
        self.lines += 1
        if not line.is_readable:
            self.unreadable += 1
            if self.unreadable <= _WARNINGS:
                logs.warning(f"{self._name}:{line.number}: not UTF-8, or holds NUL: left blank")
        elif is_blank(line.text):
            self.blank += 1

    def _translate(self, group: Sequence[InputLine]) -> list[Judged]:
        texts = [line.text for line in group]
        prefixes = [line.prefix for line in group] if any(line.prefix for line in group) else []
        outputs = self._translator.translate_n_best(texts, group[0].number, prefixes)
        return self._judge.judge(texts, outputs, prefixes)

    def _with_trees(self, group: Sequence[InputLine], judged: list[Judged]) -> list[Judged]:
        return [
            each if each.replaced_by else replace(each, outputs=self.trees.restore(line, each.outputs))
            for line, each in zip(group, judged, strict=True)
        ]

    def _put_out(self, group: Sequence[InputLine], judged: Sequence[Judged]) -> None:
        self._write(
            record
            for line, each, details in zip(group, judged, self._details(judged), strict=True)
            for record in self._style.records(line, each.outputs, details)
        )
        self._write_report(
            report_record(line.number, line.text, each, (line.fields or {}).get("id"), self._missing_terms(line, each))
            for line, each in zip(group, judged, strict=True)
        )
        self._picture.take(group, judged)
        for each in judged:
            self.suspects.take(each)
        if self._keep_outputs:
            self.kept += (tuple(Output(o.text, o.log_prob, o.score) for o in each.outputs) for each in judged)

    def _missing_terms(self, line: InputLine, judged: Judged) -> dict[str, list[str]]:
        if self._glossary is None or "glossary_missed" not in judged.flags:
            return {}
        missing = self._glossary.missing(line.text, judged.outputs[0].text)
        return {"missing_terms": [f"{term.source} = {'|'.join(term.targets)}" for term in missing]}

    def _details(self, judged: Sequence[Judged]) -> list[list[Details | None]]:
        """What a second pass finds out about each output of each line; None where nobody asked."""
        if not self._style.needs_details:
            return [[None] * len(each.outputs) for each in judged]
        outputs = [output for each in judged for output in each.outputs]
        found = iter(self._second_pass.details(outputs, with_alignment=self._style.alignments))
        return [[next(found) for _ in each.outputs] for each in judged]
