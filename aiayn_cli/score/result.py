"""What `aiayn score` found, as objects and as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiayn_cli.score.compound_split import CompoundSplitScore
from aiayn_cli.score.differences import Piece, differences
from aiayn_cli.score.metrics import Score
from aiayn_cli.score.significance import Comparison
from aiayn_cli.text_table import table

_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class SystemScores:
    """How one system did.

    Attributes:
        hypotheses: the file, or "stdin".
        scores: one for each metric.
        compound_split: BLEU in the paper's convention, if that was asked for.
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
class Sentence:
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
class ScoreResult:
    """What was scored, and how it did.

    Attributes:
        references: the files, or the test set's names.
        lines: of each of them.
        systems: one or more.
        comparisons: of each system with the first one, if that was asked for.
        parts: rows of --by.
        worst: lines of --worst.
        html: the page that was written.
    """

    references: tuple[str, ...]
    lines: int
    systems: tuple[SystemScores, ...]
    comparisons: tuple[Comparison, ...] = ()
    parts: tuple[PartScores, ...] = ()
    worst: tuple[Sentence, ...] = ()
    html: Path | None = None

    def __str__(self) -> str:
        return self.text()

    def text(self, colour: bool = False) -> str:
        """The scores with their signatures, then what else was asked for.

        Args:
            colour: for a terminal: what only one side has in colour; else it is in brackets.
        """
        parts = [*self._scores()]
        if self.comparisons:
            parts.append(self._explanation())
        if self.parts:
            parts.append(self._parts_table())
        parts += [self._sentence(sentence, colour) for sentence in self.worst]
        return "\n\n".join(parts)

    def _scores(self) -> Iterator[str]:
        if len(self.systems) == 1:
            [system] = self.systems
            both = [*system.scores, *([system.compound_split] if system.compound_split else [])]
            yield "\n".join(map(str, both))
            return
        for number, first in enumerate(self.systems[0].scores):
            yield table(self._metric_rows(number)) + "\n" + "\n".join(self._signatures(first))
        if all(system.compound_split for system in self.systems):
            splits = [system.compound_split for system in self.systems if system.compound_split]
            rows = [["system", "compound-split tokenised BLEU"]]
            rows += [[s.hypotheses, f"{x.score:.2f}"] for s, x in zip(self.systems, splits, strict=True)]
            yield f"{table(rows)}\n{splits[0].method}"

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

    def _explanation(self) -> str:
        return (
            "p: how likely a difference of this size would be, were both systems equally good; "
            f"* where it is below {SIGNIFICANT}."
        )

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
        return table(rows)

    def _sentence(self, sentence: Sentence, colour: bool) -> str:
        names = ["hypothesis"] if len(self.systems) == 1 else [system.hypotheses for system in self.systems]
        width = max(map(len, (*names, "reference 1", "source")))
        title = ", ".join(
            f"{metric} {' / '.join(f'{value:.1f}' for value in values)}" for metric, values in sentence.scores.items()
        )
        lines = [f"line {sentence.line:,}: {title}"]
        if sentence.source is not None:
            lines.append(f"{'source':<{width}}  {sentence.source}")
        compared = [differences(sentence.references[0], hypothesis) for hypothesis in sentence.hypotheses]
        # With several systems the reference has no one set of differences: each hypothesis shows its own.
        first = _marked(compared[0][0], _GREEN, "[-{}-]", colour) if len(compared) == 1 else sentence.references[0]
        lines.append(f"{'reference':<{width}}  {first}")
        lines += [
            f"{f'reference {number}':<{width}}  {reference}"
            for number, reference in enumerate(sentence.references[1:], start=2)
        ]
        for name, (_, pieces) in zip(names, compared, strict=True):
            lines.append(f"{name:<{width}}  {_marked(pieces, _RED, '{{+{}+}}', colour)}")
        return "\n".join(lines)


def _p(value: float) -> str:
    return f"{value:.4f}{'*' if value < SIGNIFICANT else ' '}"


def _marked(pieces: Sequence[Piece], code: str, brackets: str, colour: bool) -> str:
    """Join pieces; those that only one side has are coloured, or in the brackets that wdiff uses."""
    marked = []
    for piece in pieces:
        if piece.mark == "same" or not piece.text.strip():
            marked.append(piece.text)
        else:
            marked.append(f"{code}{piece.text}{_PLAIN}" if colour else brackets.format(piece.text))
    return "".join(marked)
