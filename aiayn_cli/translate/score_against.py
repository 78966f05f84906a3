"""`translate --score-against`: how likely the model finds given translations."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, DataError
from aiayn_cli.parsing.tree_text import TreeText, words_of
from aiayn_cli.parsing.trees import from_text, reduce_tree, words
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.vocab import readable
from aiayn_cli.translate.formats import FORMATS, InputLine, PairScore
from aiayn_cli.translate.input import check_input, open_input
from aiayn_cli.translate.load_models import LoadedModels, load_models
from aiayn_cli.translate.options import OutputOptions, TranslateOptions
from aiayn_cli.translate.output_files import check_outputs, give_unfinished, open_writer

_LONGEST = 1_000  # sub-words of one side: attention over more would take too much memory
_WARNINGS = 5  # pairs without a score named one by one


@dataclass(frozen=True)
class ScoreAgainstResult:
    """What was scored."""

    models: tuple[str, ...]  # the checkpoints that were used
    lines: int  # pairs read and written
    unscored_lines: int  # those with a blank, unreadable or very long side
    broken_records: int  # those of JSON that could not be read
    log_prob: float  # natural log of the probability of all scored translations together, end tokens included
    tokens: int  # their sub-words and end tokens
    perplexity: float  # exp(-log_prob / tokens)
    stopped: str | None = None  # why it ended before the last pair; None where it did not
    # log p and perplexity of each pair, where they are part of the result; where the output is JSON, the objects that
    # are written
    scores: tuple[tuple[float, float] | Mapping[str, Any], ...] | None = None

    def summary(self) -> str:
        missing = f", {self.unscored_lines:,} without a score" if self.unscored_lines else ""
        return f"scored {self.lines:,} pairs: perplexity {self.perplexity:.4g} over {self.tokens:,} tokens{missing}"


def run_score_against(
    target: Path,
    options: TranslateOptions,
    take_unfinished: Callable[[ScoreAgainstResult], None] | None = None,
) -> ScoreAgainstResult:
    """Force the model through given translations.

    For each pair one line is written: natural log p of the whole translation with its end token, a TAB, and the
    perplexity per token. A pair with a blank, unreadable or very long side gives "nan" twice (null in JSON).

    Args:
        target: file with the translation of each line; for a parser, with the tree of each, as `translate` writes it.
        options: the models, the source, the output and batch_tokens count; in JSON log p of each token is written too.
        take_unfinished: called with the result of the pairs before an error, or Ctrl-C, that ends the work.
    Raises:
        AiaynError: no such model, file or device; files of different lengths; a line without a tree for a parser.
    """
    text, output = replace(options.text, prefix=target), options.output
    check_input(text)
    check_outputs(output, text.source, target)
    with open_input(text, second_is_target=True) as lines:
        loaded = load_models(options)
        scorer = _PairScorer(loaded, output, str(target))

        def result(stopped: str | None = None) -> ScoreAgainstResult:
            return ScoreAgainstResult(
                models=loaded.names,
                lines=scorer.lines,
                unscored_lines=scorer.unscored,
                broken_records=scorer.unreadable if lines.format.is_strict else 0,
                log_prob=scorer.log_prob,
                tokens=scorer.tokens,
                perplexity=_perplexity(scorer.log_prob, scorer.tokens),
                stopped=stopped,
                scores=tuple(scorer.kept) if output.keep else None,
            )

        with open_writer(output.path, silent=output.silent) as write:
            scored = ((len(group), scorer.score(group)) for group in lines.groups())
            try:
                for records in lines.followed(scored, "scoring"):
                    write(records)
            except (AiaynError, OSError, KeyboardInterrupt) as error:
                give_unfinished(error, result, take_unfinished)
                raise
    if scorer.unscored > _WARNINGS:
        logs.warning(f"{scorer.unscored:,} pairs in all have no score")
    return result()


class _PairScorer:
    """Scores pairs and counts them, as ScoreAgainstResult shows it."""

    def __init__(self, loaded: LoadedModels, output: OutputOptions, name: str) -> None:
        self._codec, self._second_pass = loaded.codec, loaded.translator.second_pass()
        self._longest = min(_LONGEST, loaded.translator.max_positions - 1)  # room for EOS
        self._trees, self._name = TreeText(loaded.codec.text) if loaded.codec.text.trees else None, name
        self._format, self._keep = FORMATS[output.style.format], output.keep
        self.kept: list[tuple[float, float] | Mapping[str, Any]] = []
        self.lines = self.unscored = self.unreadable = self.tokens = 0
        self.log_prob = 0.0

    def score(self, group: Sequence[InputLine]) -> list[str]:
        src = self._codec.encode([line.text for line in group])
        targets = [line.prefix if self._trees is None else self._sequence(self._trees, line) for line in group]
        tgt = self._codec.encode_tgt(targets)
        can_be_scored = [
            not is_blank(line.text) and not is_blank(line.prefix) and max(len(s), len(t)) <= self._longest
            for line, s, t in zip(group, src, tgt, strict=True)
        ]
        forced = iter(
            self._second_pass.force([(s, t) for s, t, can in zip(src, tgt, can_be_scored, strict=True) if can])
        )
        records = []
        for line, ids, can in zip(group, tgt, can_be_scored, strict=True):
            score = PairScore(math.nan, math.nan, ())
            if can:
                found = next(forced)
                pieces = [*self._codec.tgt_pieces(ids), "</s>"]
                tokens = list(zip(pieces, found.token_log_probs, strict=True))
                score = PairScore(found.log_prob, _perplexity(found.log_prob, len(tokens)), tokens)
            self._count(line, score)
            records.append(self._format.write_score(line, score))
        return records

    def _count(self, line: InputLine, score: PairScore) -> None:
        self.lines += 1
        if self._keep:
            self.kept.append(self._format.score_in_result(line, score))
        if score.tokens:
            self.log_prob += score.log_prob
            self.tokens += len(score.tokens)
            return
        self.unscored += 1
        self.unreadable += bool(line.error)
        if self.unscored <= _WARNINGS:
            what = line.error or f"a side is blank, unreadable or of more than {self._longest:,} sub-words"
            logs.warning(f"line {line.number:,}: {what}")

    def _sequence(self, trees: TreeText, line: InputLine) -> str:
        """What a parser would have to write for the tree that is given for a line; "" for a blank one."""
        if is_blank(line.prefix):
            return ""
        tree = reduce_tree(from_text(line.prefix, self._name, line.number), functions=True)
        if not is_blank(line.text):
            self._check_words(words(tree), words_of(line.text), line.number)
        return trees.linearise(tree) if tree else ""

    def _check_words(self, written: Sequence[str], given: Sequence[str], number: int) -> None:
        """Compare the words of a tree with its line's, also where the recipe's sequences hold none."""
        place, hint = f"{self._name}:{number}", "give for each line a tree over its words"
        if len(written) != len(given):  # its n-th tag would stand for no n-th word
            raise DataError(
                f"{place}: the tree's words are {len(written):,}, but those of its line {len(given):,}", hint
            )
        for nth, (in_tree, in_line) in enumerate(zip(written, given, strict=True), start=1):
            if readable(in_tree) != readable(in_line):
                raise DataError(f"{place}: word {nth:,} of the tree is {in_tree}, but that of its line {in_line}", hint)


def _perplexity(log_prob: float, tokens: int) -> float:
    """exp(-log p / tokens), infinite where that is too large for a float, NaN for no tokens."""
    if tokens == 0:
        return math.nan
    return math.exp(-log_prob / tokens) if -log_prob / tokens < 700 else math.inf
