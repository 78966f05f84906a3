"""What `aiayn score` found: as objects, as text, and as a page of HTML."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiayn_cli import __version__
from aiayn_cli.pages.page import render_page
from aiayn_cli.score.compound_split import CompoundSplitScore
from aiayn_cli.score.metrics import Score
from aiayn_cli.score.significance import Comparison

SIGNIFICANT = 0.05
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
# Words, blanks, and each other character by itself; Chinese and Japanese, without blanks, are compared by character.
_TOKEN = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|\s+|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|.", re.S
)


@dataclass(frozen=True)
class SystemScores:
    """How one system did.

    Attributes:
        hypotheses: the file, or "stdin".
        scores: one for each metric.
        compound_split: BLEU in the paper's convention, with --compound-split.
        warnings: signs that these scores do not mean what they seem to.
    """

    hypotheses: str
    scores: tuple[Score, ...]
    compound_split: CompoundSplitScore | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PartScores:
    """How the systems did on a part of the lines.

    Attributes:
        part: what they have in common, such as "11-20 words".
        lines: how many.
        scores: by metric, in the order of the metrics; of each system, in their order.
    """

    part: str
    lines: int
    scores: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class ScoredLine:
    """One line of the test set.

    Attributes:
        line: its number, from 1.
        scores: by metric: of each system.
        source: what was translated, if it is known.
        references: its translations.
        hypotheses: of each system.
    """

    line: int
    scores: dict[str, tuple[float, ...]]
    source: str | None
    references: tuple[str, ...]
    hypotheses: tuple[str, ...]


@dataclass(frozen=True)
class Fragment:
    """Some text of one side of a comparison: in both sides, or in this one only."""

    text: str
    is_shared: bool = True

    @property
    def is_marked(self) -> bool:
        return not self.is_shared and bool(self.text.strip())


@dataclass(frozen=True)
class ScoreResult:
    """What was scored, and how it did.

    Attributes:
        references: the files, or the test set's names.
        lines: of each of them.
        systems: one or more.
        comparisons: of each system with the first one, with --compare.
        parts: rows of --by.
        worst: lines of --worst.
        html: the page that was written.
    """

    references: tuple[str, ...]
    lines: int
    systems: tuple[SystemScores, ...]
    comparisons: tuple[Comparison, ...] = ()
    parts: tuple[PartScores, ...] = ()
    worst: tuple[ScoredLine, ...] = ()
    html: Path | None = None

    def __str__(self) -> str:
        return self.text()

    def text(self, colour: bool = False) -> str:
        """The scores with their signatures, then everything else that was requested.

        Args:
            colour: for a terminal: what only one side has in colour; else it is in brackets.
        """
        parts = [*self._scores()]
        if self.comparisons:
            parts.append(
                "p: how likely a difference of this size would be, were both systems equally good; "
                f"* where it is below {SIGNIFICANT}."
            )
        if self.parts:
            parts.append(self._parts_table())
        parts += [self._line(line, colour) for line in self.worst]
        return "\n\n".join(parts)

    def _scores(self) -> Iterator[str]:
        if len(self.systems) == 1:
            [system] = self.systems
            both = [*system.scores, *([system.compound_split] if system.compound_split else [])]
            yield "\n".join(map(str, both))
            return
        for number, first in enumerate(self.systems[0].scores):
            yield text_table(self._metric_rows(number)) + "\n" + "\n".join(self._signatures(first))
        splits = [system.compound_split for system in self.systems if system.compound_split]
        if splits:
            rows = [["system", "compound-split tokenised BLEU"]]
            rows += [[s.hypotheses, f"{x.score:.2f}"] for s, x in zip(self.systems, splits, strict=True)]
            yield f"{text_table(rows)}\n{splits[0].method}"

    def _metric_rows(self, number: int) -> list[list[str]]:
        metric = self.systems[0].scores[number].metric
        with_confidence = self.systems[0].scores[number].mean is not None
        rows = [["system", metric]]
        if with_confidence:
            rows[0].append("μ ± 95 %")
        if self.comparisons:
            rows[0] += ["difference", "p bootstrap", "p randomisation"]
        tests = {each.system: each for each in self.comparisons if each.metric == metric}
        for system in self.systems:
            score = system.scores[number]
            row = [system.hypotheses, f"{score.score:.2f}"]
            if with_confidence:
                row.append(f"{score.mean:.2f} ± {score.interval:.2f}")
            if test := tests.get(system.hypotheses):
                row += [f"{test.difference:+.2f}", _p(test.p_bootstrap), _p(test.p_randomisation)]
            elif self.comparisons:
                row += ["baseline", "", ""]
            rows.append(row)
        return rows

    def _signatures(self, score: Score) -> list[str]:
        tests = [each for each in self.comparisons if each.metric == score.metric][:1]
        signatures = [(each.bootstrap_signature, each.randomisation_signature) for each in tests]
        return list(dict.fromkeys([score.signature, *(signature for both in signatures for signature in both)]))

    def _parts_table(self) -> str:
        metrics = [score.metric for score in self.systems[0].scores]
        titles = [
            metric if len(self.systems) == 1 else f"{metric} {system.hypotheses}"
            for metric in metrics
            for system in self.systems
        ]
        rows = [["part", "lines", *titles]]
        for part in self.parts:
            values = [f"{value:.2f}" for of_metric in part.scores for value in of_metric]
            rows.append([part.part, f"{part.lines:,}", *values])
        return text_table(rows)

    def _line(self, line: ScoredLine, colour: bool) -> str:
        def marked(fragments: Sequence[Fragment], code: str, brackets: str) -> str:
            form = f"{code}{{}}{_PLAIN}" if colour else brackets
            return "".join(form.format(each.text) if each.is_marked else each.text for each in fragments)

        names = ["hypothesis"] if len(self.systems) == 1 else [system.hypotheses for system in self.systems]
        width = max(map(len, (*names, "reference 1", "source")))
        title = ", ".join(
            f"{metric} {' / '.join(f'{value:.1f}' for value in values)}" for metric, values in line.scores.items()
        )
        rows = [] if line.source is None else [("source", line.source)]
        compared = [differences(line.references[0], hypothesis) for hypothesis in line.hypotheses]
        # With several systems the reference has no one set of differences: each hypothesis shows its own.
        first = marked(compared[0][0], _GREEN, "[-{}-]") if len(compared) == 1 else line.references[0]
        rows.append(("reference", first))
        rows += [(f"reference {number}", text) for number, text in enumerate(line.references[1:], start=2)]
        rows += [
            (name, marked(fragments, _RED, "{{+{}+}}")) for name, (_, fragments) in zip(names, compared, strict=True)
        ]
        return "\n".join([f"line {line.line:,}: {title}", *(f"{name:<{width}}  {text}" for name, text in rows)])

    def page(self, parts: Sequence[PartScores], lines: Sequence[ScoredLine]) -> str:
        """A page that shows one system or compares two: scores, parts, and every line with what differs.

        Args:
            parts: rows of the table of parts.
            lines: all lines of the test set.
        """
        names = [system.hypotheses for system in self.systems]
        sign = -1 if self.systems[0].scores[0].metric == "TER" else 1
        return render_page(
            "score.html",
            title=" against ".join(names),
            version=__version__,
            result=self,
            significant=SIGNIFICANT,
            parts=parts,
            highest=max((value for part in parts for value in part.scores[0]), default=0.0) or 1.0,
            articles=(_article(line, names, sign) for line in lines),
        )


def _article(line: ScoredLine, names: Sequence[str], sign: int) -> dict[str, object]:
    """A line as the page shows it; its columns are (name, fragments, element of those that are marked)."""
    values = next(iter(line.scores.values()))
    compared = [differences(line.references[0], hypothesis) for hypothesis in line.hypotheses]
    columns = [] if line.source is None else [("source", [Fragment(line.source)], "")]
    columns.append(("reference", compared[0][0] if len(compared) == 1 else [Fragment(line.references[0])], "del"))
    columns += [(f"reference {n}", [Fragment(text)], "") for n, text in enumerate(line.references[1:], start=2)]
    columns += [
        (f"{name}, {value:.1f}", fragments, "mark")
        for name, value, (_, fragments) in zip(names, values, compared, strict=True)
    ]
    return {
        "line": line.line,
        "mean": sign * sum(values) / len(values),
        "difference": sign * (values[0] - values[1]) if len(values) == 2 else None,
        "columns": columns,
    }


def differences(reference: str, hypothesis: str) -> tuple[list[Fragment], list[Fragment]]:
    """Split two texts into what they share, in order, and what only one of them has.

    Returns:
        The fragments of the reference and those of the hypothesis; joined, they give the texts again.
    """
    sides = _TOKEN.findall(reference), _TOKEN.findall(hypothesis)
    found: tuple[list[Fragment], list[Fragment]] = [], []
    for kind, *ends in difflib.SequenceMatcher(None, *sides, autojunk=False).get_opcodes():
        for tokens, fragments, start, end in zip(sides, found, ends[::2], ends[1::2], strict=True):
            if start < end:
                fragments.append(Fragment("".join(tokens[start:end]), kind == "equal"))
    return found


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right; no line ends in blanks.

    Args:
        rows: of equal length; the first one holds the titles.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _p(value: float) -> str:
    return f"{value:.4f}{'*' if value < SIGNIFICANT else ' '}"
