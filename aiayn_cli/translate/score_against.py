"""`translate --score-against`: how likely the model finds given translations."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aiayn_cli import logs
from aiayn_cli.checkpoint.metrics_log import perplexity
from aiayn_cli.errors import AiaynError, DataError
from aiayn_cli.parsing.tree_text import TreeText, from_text, reduce_tree, words, words_of
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.vocab import readable
from aiayn_cli.translate.forced_decoding import Details, ForcedDecoder
from aiayn_cli.translate.formats import FORMATS
from aiayn_cli.translate.input import InputLine, open_input
from aiayn_cli.translate.load_models import LoadedModels, load_models
from aiayn_cli.translate.options import TranslateOptions
from aiayn_cli.translate.output_files import check_outputs, open_writer, say_unfinished

_LONGEST = 1_000  # sub-words of one side: attention over more would take too much memory
_WARNINGS = 5  # pairs without a score named one by one


@dataclass
class ScoreAgainstResult:
    """What was scored."""

    models: tuple[str, ...]  # the checkpoints that were used
    lines: int = 0  # pairs read and written
    unscored_lines: int = 0  # those with a blank, unreadable or very long side
    unreadable_lines: int = 0  # those among them with bytes that are not text, or broken JSON
    log_prob: float = 0.0  # natural log of the probability of all scored translations together, with end tokens
    tokens: int = 0  # their sub-words and end tokens
    perplexity: float = math.nan  # exp(-log_prob / tokens)
    stopped: str | None = None  # why it ended before the last pair; None if it did not
    scores: list[Any] | None = None  # for each pair, score_result() of the format; None = written

    def summary(self) -> str:
        missing = f", {self.unscored_lines:,} without a score" if self.unscored_lines else ""
        pairs, tokens = logs.counted(self.lines, "pair"), logs.counted(self.tokens, "token")
        return f"scored {pairs}: perplexity {self.perplexity:.4g} over {tokens}{missing}"


def run_score_against(
    target: Path, options: TranslateOptions, take_unfinished: Callable[[ScoreAgainstResult], None] | None = None
) -> ScoreAgainstResult:
    """Score given translations; AiaynError as in run_translate(), and for a line without a tree if a parser scores.

    For each pair one line is written: natural log p of the whole translation with its end token, a TAB, and the
    perplexity per token; in JSON also log p of each token. A pair with a blank, unreadable or very long side gives
    "nan" twice (null in JSON).

    Args:
        target: file with the translation of each line; for a parser, with the tree of each, as `translate` writes it.
        options: those for a search do not count.
        take_unfinished: as in run_translate().
    """
    text, output = replace(options.text, prefix=target), options.output
    input_format, output_format = FORMATS[text.format], FORMATS[output.style.format]
    check_outputs(output, text.source, target)
    with open_input(text, input_format.read, second_is_target=True) as lines:
        loaded = load_models(options)
        scorer = PairScorer(loaded, str(target))
        result = scorer.result
        result.scores = [] if output.keep else None
        with open_writer(output.path, silent=output.keep) as write:
            score = lines.droppable(scorer.score)
            scored = ((len(group), score(group)) for group in lines.groups())
            try:
                for group in lines.followed(scored, "scoring"):
                    found: list[Any] = [output_format.score_result(line, details) for line, details in group or ()]
                    if result.scores is not None:
                        result.scores += found
                    write(map(output_format.write_score, found))
            except (AiaynError, OSError, KeyboardInterrupt) as error:
                say_unfinished(error, result, take_unfinished)
                raise
    if result.unscored_lines > _WARNINGS:
        logs.warning(f"in all, {result.unscored_lines:,} pairs have no score")
    return result


class PairScorer:
    """Scores pairs and counts them."""

    def __init__(self, loaded: LoadedModels, target: str) -> None:
        self._codec, self._decoder, self._target = loaded.codec, ForcedDecoder(loaded.translator), target
        self._longest = min(_LONGEST, loaded.translator.max_positions - 1)  # room for EOS
        self._trees = TreeText(loaded.codec.text) if loaded.codec.text.trees else None
        self.result = ScoreAgainstResult(tuple(str(each.path) for each in loaded.checkpoints))

    def score(self, group: Sequence[InputLine]) -> list[tuple[InputLine, Details]]:
        """Each line with the scores of its translation; without tokens if it cannot be scored."""
        src = self._codec.encode([line.text for line in group])
        targets = [line.prefix if self._trees is None else self._sequence(self._trees, line) for line in group]
        pairs = list(zip(src, self._codec.encode_tgt(targets), strict=True))
        can_be_scored = [
            not self._codec.is_blank(line.text)
            and not self._codec.is_blank(line.prefix)
            and max(map(len, pair)) <= self._longest
            for line, pair in zip(group, pairs, strict=True)
        ]
        forced = iter(self._decoder.force([pair for pair, can in zip(pairs, can_be_scored, strict=True) if can]))
        found = []
        for line, (_, tgt), can in zip(group, pairs, can_be_scored, strict=True):
            details = Details(tuple(self._decoder.tokens(tgt, next(forced))) if can else ())
            self._count(line, details)
            found.append((line, details))
        return found

    def _count(self, line: InputLine, details: Details) -> None:
        done = self.result
        done.lines += 1
        if details.tokens:
            done.log_prob += details.log_prob
            done.tokens += len(details.tokens)
            done.perplexity = perplexity(-done.log_prob / done.tokens)
            return
        done.unscored_lines += 1
        done.unreadable_lines += bool(line.error)
        if done.unscored_lines <= _WARNINGS:
            what = line.error or f"a side is blank, unreadable or longer than {self._longest:,} sub-words"
            logs.warning(f"line {line.number:,}: no score: {what}")

    def _sequence(self, trees: TreeText, line: InputLine) -> str:
        """What a parser would have to write for the tree that is given for a line; "" for a blank one."""
        if is_blank(line.prefix):
            return ""
        tree = reduce_tree(from_text(line.prefix, self._target, line.number), functions=True)
        if not is_blank(line.text):
            _check_words(words(tree), words_of(line.text), f"{self._target}:{line.number}")
        return trees.linearise(tree) if tree else ""


def _check_words(written: Sequence[str], given: Sequence[str], place: str) -> None:
    """Compare the words of a tree with its line's, even if the recipe's sequences hold none."""
    hint = "give one tree over the words of each line"
    if len(written) != len(given):  # the n-th tag must stand for the n-th word
        count = logs.counted(len(written), "word")
        raise DataError(f"{place}: the tree has {count}, but its line has {len(given):,}", hint)
    for nth, (in_tree, in_line) in enumerate(zip(written, given, strict=True), start=1):
        if readable(in_tree) != readable(in_line):
            raise DataError(f"{place}: word {nth:,} of the tree is {in_tree}, but its line has {in_line}", hint)
