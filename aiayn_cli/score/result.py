"""What `aiayn score` found: as objects, as text, and as a page of HTML."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from aiayn_cli import __version__
from aiayn_cli.pages.page import render_page
from aiayn_cli.score.metrics import CompoundSplitScore, Score
from aiayn_cli.score.significance import Comparison

SIGNIFICANT = 0.05
# By mark of a fragment: its colour on a terminal, and its brackets elsewhere.
_MARKS = {"lost": ("\x1b[32m", "[-", "-]"), "wrong": ("\x1b[31m", "{+", "+}")}
_PLAIN = "\x1b[0m"
# Marks of the reference, by which systems lost these words: the only one; of two both, the first or the second.
_LOST = {(True,): "lost", (True, True): "lost-both", (True, False): "lost-0", (False, True): "lost-1"}
# Words, blanks, and each other character by itself; Chinese and Japanese, without blanks, are compared by character.
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|\s+|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|.", re.S
)


@dataclass(frozen=True)
class SystemScores:
    """The scores of one system."""

    hypotheses: str  # the file, or "stdin"
    scores: tuple[Score, ...]  # one per metric
    compound_split: CompoundSplitScore | None = None  # BLEU in the paper's convention
    warnings: tuple[str, ...] = ()  # reasons why these scores may mislead


@dataclass(frozen=True)
class PartScores:
    """The scores of all systems on a part of the lines."""

    part: str  # what the lines have in common, such as "11-20 words"
    lines: int  # how many
    scores: tuple[tuple[float, ...], ...]  # [metrics][systems]


@dataclass(frozen=True)
class ScoredLine:
    """One line of the test set."""

    line: int  # its number, from 1
    scores: dict[str, tuple[float, ...]]  # of each system, by metric
    source: str | None  # None = unknown
    references: tuple[str, ...]
    hypotheses: tuple[str, ...]  # of each system


# Some text of one side of a comparison, and whether the other side has it too.
Stretch = tuple[str, bool]
# Title, and text in stretches with their marks: "", "wrong", "gap" (words of the reference are missing), or of _LOST.
Column = tuple[str, list[tuple[str, str]]]


@dataclass(frozen=True)
class ScoreResult:
    """What was scored, and how it did."""

    references: tuple[str, ...]  # the files, or the test set's names
    lines: int  # of each of them
    systems: tuple[SystemScores, ...]  # one or more
    comparisons: tuple[Comparison, ...] = ()  # of each system with the first one
    parts: tuple[PartScores, ...] = ()  # of --by
    worst: tuple[ScoredLine, ...] = ()
    html: Path | None = None  # the page that was written

    def __str__(self) -> str:
        return self.text()

    def text(self, colour: bool = False) -> str:
        """The scores with their signatures, then everything else; what only one side has is in colour or brackets."""
        blocks = list(self._scores())
        if self.comparisons:
            blocks.append(
                "p: probability of a difference at least this large if both systems were equally good; "
                f"* marks p < {SIGNIFICANT}"
            )
        if self.parts:
            blocks.append(self._parts_table())
        blocks += [self._line(line, colour) for line in self.worst]
        return "\n\n".join(blocks)

    def _scores(self) -> Iterator[str]:
        if len(self.systems) == 1:
            [system] = self.systems
            yield "\n".join(map(str, filter(None, (*system.scores, system.compound_split))))
            return
        for number, first in enumerate(self.systems[0].scores):
            tests = {each.system: each for each in self.comparisons if each.metric == first.metric}
            signatures = [first.signature]
            for test in tests.values():
                signatures += [test.bootstrap_signature, test.randomisation_signature]
            yield "\n".join([text_table(self._metric_rows(number, tests)), *dict.fromkeys(signatures)])
        splits = [system.compound_split for system in self.systems if system.compound_split]
        if splits:
            rows = [["system", "compound-split tokenised BLEU"]]
            rows += [[s.hypotheses, f"{x.score:.2f}"] for s, x in zip(self.systems, splits, strict=True)]
            yield f"{text_table(rows)}\n{splits[0].method}"

    def _metric_rows(self, number: int, tests: dict[str, Comparison]) -> list[list[str]]:
        first = self.systems[0].scores[number]
        rows = [["system", first.metric]]
        rows[0] += ["μ ± 95 %"] if first.mean is not None else []
        rows[0] += ["difference", "p bootstrap", "p randomisation"] if tests else []
        for system in self.systems:
            score = system.scores[number]
            row = [system.hypotheses, f"{score.score:.2f}"]
            if score.mean is not None:
                row.append(f"{score.mean:.2f} ± {score.interval:.2f}")
            if test := tests.get(system.hypotheses):
                row += [f"{test.difference:+.2f}", _p(test.p_bootstrap), _p(test.p_randomisation)]
            elif tests:
                row += ["baseline", "", ""]
            rows.append(row)
        return rows

    def _parts_table(self) -> str:
        names = [""] if len(self.systems) == 1 else [f" {system.hypotheses}" for system in self.systems]
        titles = [f"{score.metric}{name}" for score in self.systems[0].scores for name in names]
        rows = [["part", "lines", *titles]]
        for part in self.parts:
            values = [f"{value:.2f}" for of_metric in part.scores for value in of_metric]
            rows.append([part.part, f"{part.lines:,}", *values])
        return text_table(rows)

    def _line(self, line: ScoredLine, colour: bool) -> str:
        names = ["hypothesis"] if len(self.systems) == 1 else [system.hypotheses for system in self.systems]
        width = max(map(len, (*names, "reference 1", "source")))
        title = ", ".join(
            f"{metric} {' / '.join(f'{value:.1f}' for value in values)}" for metric, values in line.scores.items()
        )
        rows = [f"line {line.line:,}: {title}"]
        for name, stretches in _columns(line, names):
            row = f"{name:<{width}}  "
            for text, mark in stretches:
                in_colour, *brackets = _MARKS.get(mark, ("", "", ""))
                start, end = (in_colour, _PLAIN) if colour and in_colour else brackets
                row += f"{start}{text}{end}"
            rows.append(row)
        return "\n".join(rows)

    def page(self, parts: Sequence[PartScores], lines: Sequence[ScoredLine]) -> str:
        """A page that shows one system or compares two: scores, a table of parts, and all lines with what differs."""
        names = [system.hypotheses for system in self.systems]
        return render_page(
            "score.html", "score.js", title=" against ".join(names), version=__version__, result=self,
            significant=SIGNIFICANT, parts=parts,
            highest=max((value for part in parts for value in part.scores[0]), default=0.0) or 1.0,
            sign=-1 if self.systems[0].scores[0].metric == "TER" else 1,
            articles=((line, _columns(line, names)) for line in lines),
        )  # fmt: skip


def _columns(line: ScoredLine, names: Sequence[str]) -> list[Column]:
    compared = [differences(line.references[0], hypothesis) for hypothesis in line.hypotheses]
    columns: list[Column] = [] if line.source is None else [("source", [(line.source, "")])]
    columns.append(("reference", _lost_words([ours for ours, _ in compared])))
    columns += [(f"reference {n}", [(text, "")]) for n, text in enumerate(line.references[1:], start=2)]
    for name, (_, theirs) in zip(names, compared, strict=True):
        marks = ("" if is_shared or text.isspace() else "wrong" if text else "gap" for text, is_shared in theirs)
        columns.append((name, [(text, mark) for (text, _), mark in zip(theirs, marks, strict=True)]))
    return columns


def _lost_words(compared: Sequence[Sequence[Stretch]]) -> list[tuple[str, str]]:
    """The reference, marked where systems lost words of it; `compared` has its differences from each system."""
    reference = "".join(text for text, _ in compared[0])
    lost = ([not (is_shared or text.isspace()) for text, is_shared in ours for _ in text] for ours in compared)
    stretches = groupby(zip(zip(*lost, strict=True), reference, strict=True), key=lambda pair: pair[0])
    return [("".join(character for _, character in of), _LOST.get(losers, "")) for losers, of in stretches]


def differences(reference: str, hypothesis: str) -> tuple[list[Stretch], list[Stretch]]:
    """Split two texts into what they share, in order, and what only one side has; joined, they are the texts again."""
    ours, theirs = _TOKEN.findall(reference), _TOKEN.findall(hypothesis)
    found: tuple[list[Stretch], list[Stretch]] = [], []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if a < b:
            found[0].append(("".join(ours[a:b]), kind == "equal"))
        if c < d or "".join(ours[a:b]).strip():  # without text where words of the reference are missing
            found[1].append(("".join(theirs[c:d]), kind == "equal"))
    return found


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right; no line ends in blanks."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in rows)


def _p(value: float) -> str:
    return f"{value:.4f}{'*' if value < SIGNIFICANT else ' '}"
