"""What `translate --score-against` does: how likely the model finds given translations."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from aiayn_cli import logs
from aiayn_cli.config import Precision
from aiayn_cli.errors import AiaynError
from aiayn_cli.parsing.tree_text import TreeText
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.compression import PipedBytes
from aiayn_cli.text.lines import RecordReader, display_name, is_blank
from aiayn_cli.translate.forced import Forced
from aiayn_cli.translate.input import check_inputs, followed, groups, opened
from aiayn_cli.translate.input_lines import InputLine, InputLines, LineFormat
from aiayn_cli.translate.models import Search, load_models
from aiayn_cli.translate.output import check_outputs, give_unfinished, open_writer
from aiayn_cli.translate.second_pass import SecondPass
from aiayn_cli.translate.trees import TreeTargets

_LONGEST = 1_000  # sub-words of one side: attention over more would take too much memory
_WARNINGS = 5  # pairs without a score named one by one


@dataclass(frozen=True)
class ScoreAgainstResult:
    """What was scored.

    Attributes:
        models: the checkpoints that were used.
        lines: pairs read and written.
        unscored_lines: of them, those with a blank, unreadable or very long side.
        broken_records: of these, those of JSON that could not be read.
        log_prob: natural log of the probability of all scored translations together, end tokens included.
        tokens: their sub-words and end tokens.
        perplexity: exp(-log_prob / tokens).
        stopped: why it ended before the last pair; None where it did not.
        scores: log p and perplexity of each pair, where they were to be part of the result; where the output is JSON,
            the objects that would be written.
    """

    models: tuple[str, ...]
    lines: int
    unscored_lines: int
    broken_records: int
    log_prob: float
    tokens: int
    perplexity: float
    stopped: str | None = None
    scores: tuple[tuple[float, float] | Mapping[str, Any], ...] | None = None

    def summary(self) -> str:
        """One line for a person."""
        missing = f", {self.unscored_lines:,} without a score" if self.unscored_lines else ""
        return f"scored {self.lines:,} pairs: perplexity {self.perplexity:.4g} over {self.tokens:,} tokens{missing}"


def run_score_against(
    target: Path,
    models: Sequence[Path] = (),
    *,
    source: str = "-",
    output: Path | None = None,
    batch_tokens: int | None = None,
    line_format: LineFormat = "text",
    input_format: LineFormat | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    keep_scores: bool = False,
    take_unfinished: Callable[[ScoreAgainstResult], None] | None = None,
) -> ScoreAgainstResult:
    """Force the model through given translations.

    For each pair one line is written: natural log p of the whole translation with its end token, a TAB, and the
    perplexity per token. A pair with a blank, unreadable or very long side gives "nan" twice (null in JSON).

    Args:
        target: file with the translation of each line; for a parser, with the tree of each, as `translate` writes it.
        models: checkpoints or runs; several are an ensemble; none = the newest run of the working folder.
        source: file with the source lines, "-" for stdin.
        output: file to write, under its name only when all is done; None = stdout.
        batch_tokens: instead of the model's own setting.
        line_format, input_format: as in run_translate; in JSON log p of each token is written too.
        device, precision: as in choose_device().
        keep_scores: give them in the result; without `output` they are then not written.
        take_unfinished: called with the result of the pairs before an error, or Ctrl-C, that ends the work.
    Raises:
        AiaynError: no such model, file or device; files of different lengths; a line without a tree for a parser.
    """
    check_inputs(source, target)
    check_outputs(output, inputs=(source, target))
    with ExitStack() as files:
        file = files.enter_context(opened(source))
        name = display_name(source)
        reader = RecordReader(cast(BinaryIO, PipedBytes(file, name)), name, keep_going=True)
        targets = RecordReader(files.enter_context(opened(target)), str(target), keep_going=True)
        loaded = load_models(models, Search(batch_tokens=batch_tokens), device, precision)
        hint = "give one translation for each line"
        lines = InputLines(reader, input_format or line_format, targets, hint, own_prefixes=False)
        longest = min(_LONGEST, loaded.translator.max_positions - 1)  # room for EOS
        text = loaded.checkpoints[0].text
        trees = TreeTargets(TreeText(text), str(target)) if text.trees else None
        scorer = _PairScorer(loaded.codec, loaded.translator.second_pass(), line_format, keep_scores, longest, trees)
        write = files.enter_context(open_writer(output, silent=keep_scores and output is None))
        scored = ((len(group), scorer.score(group)) for group in groups(lines))

        def result(stopped: str | None = None) -> ScoreAgainstResult:
            return ScoreAgainstResult(
                models=tuple(str(checkpoint.path) for checkpoint in loaded.checkpoints),
                lines=scorer.lines,
                unscored_lines=scorer.unscored,
                broken_records=scorer.unreadable if lines.line_format == "jsonl" else 0,
                log_prob=scorer.log_prob,
                tokens=scorer.tokens,
                perplexity=_perplexity(scorer.log_prob, scorer.tokens),
                stopped=stopped,
                scores=tuple(scorer.scores) if keep_scores else None,
            )

        try:
            for records in followed(scored, lines, file, source, "scoring"):
                write(records)
        except (AiaynError, OSError, KeyboardInterrupt) as error:
            give_unfinished(error, result, take_unfinished)
            raise
    if scorer.unscored > _WARNINGS:
        logs.warning(f"{scorer.unscored:,} pairs in all have no score")
    return result()


class _PairScorer:
    def __init__(
        self,
        codec: Codec,
        second_pass: SecondPass,
        line_format: LineFormat,
        keep_scores: bool,
        longest: int,
        trees: TreeTargets | None,
    ) -> None:
        self._codec, self._second_pass, self._line_format = codec, second_pass, line_format
        self._keep_scores, self._longest, self._trees = keep_scores, longest, trees
        self.scores: list[tuple[float, float] | Mapping[str, Any]] = []
        self.lines = self.unscored = self.unreadable = self.tokens = 0
        self.log_prob = 0.0

    def score(self, group: Sequence[InputLine]) -> list[str]:
        """The record of each pair."""
        src = self._codec.encode([line.text for line in group])
        targets = [line.prefix for line in group] if self._trees is None else list(map(self._trees.sequence, group))
        tgt = self._codec.encode_tgt(targets)
        can_be = [
            not is_blank(line.text) and not is_blank(line.prefix) and max(len(s), len(t)) <= self._longest
            for line, s, t in zip(group, src, tgt, strict=True)
        ]
        forced = iter(self._second_pass.force([(s, t) for s, t, can in zip(src, tgt, can_be, strict=True) if can]))
        records = []
        for line, ids, can in zip(group, tgt, can_be, strict=True):
            found = next(forced) if can else None
            self._count(line, found)
            records.append(self._record(line, ids, found))
        return records

    def _count(self, line: InputLine, forced: Forced | None) -> None:
        self.lines += 1
        if forced is not None:
            self.log_prob += forced.log_prob
            self.tokens += len(forced.token_log_probs)
            return
        self.unscored += 1
        self.unreadable += bool(line.error)
        if self.unscored <= _WARNINGS:
            what = line.error or f"a side is blank, unreadable or of more than {self._longest:,} sub-words"
            logs.warning(f"line {line.number:,}: {what}")

    def _record(self, line: InputLine, ids: Sequence[int], forced: Forced | None) -> str:
        log_prob = forced.log_prob if forced else math.nan
        perplexity = _perplexity(log_prob, len(ids) + 1)
        if self._line_format == "text":
            if self._keep_scores:
                self.scores.append((log_prob, perplexity))
            return f"{log_prob:.4f}\t{perplexity:.4f}"
        kept = {name: value for name, value in (line.fields or {"line": line.number}).items() if name != "prefix"}
        if line.error:
            kept |= {"line": line.number, "error": line.error}
        pieces = [*self._codec.tgt_pieces(ids), "</s>"]
        scored = {
            "log_prob": round(log_prob, 5) if forced else None,
            "perplexity": round(perplexity, 5) if math.isfinite(perplexity) else None,
            "tokens": [[p, round(x, 5)] for p, x in zip(pieces, forced.token_log_probs, strict=True)] if forced else [],
        }
        record = {**kept, "translation": line.prefix, **scored}
        if self._keep_scores:
            self.scores.append(record)
        return json.dumps(record, ensure_ascii=False, allow_nan=False)


def _perplexity(log_prob: float, tokens: int) -> float:
    """exp(-log p / tokens), infinite where that is too large for a float, NaN for no tokens."""
    if tokens == 0 or math.isnan(log_prob):
        return math.nan
    return math.exp(-log_prob / tokens) if -log_prob / tokens < 700 else math.inf
