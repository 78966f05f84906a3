"""Lines in, translations out: sub-words, parts of long lines, their search, text again."""

import copy
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self

from aiayn_cli import logs
from aiayn_cli.device import Device
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.parsing.tree_text import words_of
from aiayn_cli.recipe_keys import DecodingConfig
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.languages import joins_without_blanks
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.scripts import is_written_without_blanks
from aiayn_cli.text.sentences import has_letters, split_sentences
from aiayn_cli.text.vocab import BLANK_MARK
from aiayn_cli.translate.options import LONGEST_PASS, SearchOptions
from aiayn_cli.translate.search.beam import Hypothesis, length_penalty
from aiayn_cli.translate.search.sentence_search import LONGEST_SOURCE, SearchInput, SearchSetup, SentenceSearch

_NO_OPTIONS, _NO_SETUP = SearchOptions(), SearchSetup()
_NAMED_LINES = 5  # for each kind of notice
_CLAUSE_MARKS = (",", ";", ":", "–", "—", "、", "，", "；", "：")

_SPLIT = "split lines"  # the only harmless kind, of which the result has the number


@dataclass(frozen=True)
class ModelPass:
    """One pass through the model: a whole line, or a part of one that is too long."""

    src: tuple[int, ...]  # ids of the source, without EOS
    tgt: tuple[int, ...]  # ids of the output, without BOS and EOS
    is_cut: bool  # whether the output reached the longest length allowed, so that its end may be missing
    word: str = ""  # text copied to the output without a pass: a word too long for the model, or no letters at all
    is_inside_word: bool = False  # whether the line was cut before it where no blank is, as in Chinese


@dataclass(frozen=True)
class Translation:
    """One of the outputs for a line."""

    text: str  # "" for a blank line
    log_prob: float = math.nan  # natural log of its probability with the end token, summed over the parts of a split
    # line; -inf for an output that only fills up the n-best list, NaN for text that no model wrote
    score: float = math.nan  # log_prob / length penalty, which ranks the outputs
    parts: tuple[ModelPass, ...] = ()  # none for a blank line, or one that was skipped
    # which words of the line as given its words are, where the normaliser dropped some; empty = the same
    src_words: tuple[int, ...] = ()
    is_skipped: bool = False  # whether the line was too long for the models and could not be cut; the text is then ""


@dataclass(frozen=True)
class LineNotice:
    """A remark on one line."""

    kind: str  # in the plural, such as "repaired trees"
    text: str  # names the line


class LineNotices:
    """Logs the first notices of each kind, and counts all."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def take(self, notice: LineNotice) -> None:
        self.counts[notice.kind] += 1
        if self.counts[notice.kind] <= _NAMED_LINES:
            say = logs.notice if notice.kind == _SPLIT else logs.warning
            say(notice.text)

    def sum_up(self) -> None:
        for kind, count in self.counts.items():
            if count > _NAMED_LINES and kind != _SPLIT:
                logs.warning(f"{count:,} {kind} in all")


@dataclass(frozen=True)
class Cutting:
    """Where a line is cut for the model."""

    # sub-words of the longest side in training: the limit of one pass, but at least LONGEST_SOURCE and at most
    # LONGEST_PASS
    trained_length: int = LONGEST_SOURCE
    by_sentence: bool = False  # at each sentence, for models trained on single ones, and not only what is too long


_UNCUT = Cutting()


class LineTranslator:
    """Translates lines with one model or an ensemble, which SentenceSearch moves to the device.

    A line that is too long for one pass is translated in parts, sentence by sentence, unless outputs are trees: a
    sentence cannot be parsed in parts.

    Args:
        models: trained with the same vocabulary; the probabilities of several are averaged.
        cutting: where a line is cut.
        notify: called with remarks on lines, such as that one was split; None = they are logged.
    """

    def __init__(
        self,
        models: Sequence[TranslationModel],
        codec: Codec,
        device: Device,
        decoding: DecodingConfig,
        *,
        options: SearchOptions = _NO_OPTIONS,
        setup: SearchSetup = _NO_SETUP,
        cutting: Cutting = _UNCUT,
        notify: Callable[[LineNotice], None] | None = None,
    ) -> None:
        self.codec, self.decoding, self.options = codec, decoding, options
        self._search = SentenceSearch(models, codec.size, device, decoding, options=options, setup=setup)
        self.models, self.device, self.max_positions = self._search.models, device.device, self._search.max_positions
        self._glossary = setup.glossary
        self._writes_trees = setup.tree_grammar is not None
        self._splits = not codec.text.trees
        self._by_sentence = cutting.by_sentence
        # A sentence that cannot be cut is tried at any length.
        self._longest_source = (
            min(max(cutting.trained_length, LONGEST_SOURCE), LONGEST_PASS) if self._splits else LONGEST_PASS
        )
        self._longest_word = min(self._longest_source, self.max_positions - 1)
        self._joiner = "" if joins_without_blanks(codec.tgt_lang) else " "
        self._notify = notify or LineNotices().take

    def variant(
        self,
        *,
        decoding: DecodingConfig | None = None,
        options: SearchOptions | None = None,
        longest_source: int | None = None,
    ) -> Self:
        """A translator with the same models that searches in another way."""
        other = copy.copy(self)
        other._search = self._search.variant(decoding, options)
        other.decoding, other.options = decoding or self.decoding, options or self.options
        other._longest_source = min(longest_source or LONGEST_PASS, self._longest_source)
        return other

    def count_sub_words(self, line: str) -> int:
        return len(self.codec.encode([line])[0])

    def translate(self, lines: Sequence[str]) -> list[str]:
        return [outputs[0].text for outputs in self.translate_n_best(lines)]

    def translate_n_best(
        self, lines: Sequence[str], first_line: int | None = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """The n_best best outputs for each line, in order; or n_best drawn ones.

        A blank line (in Unicode's sense) has n_best blank outputs, and the model never sees it. A line that is too
        long for one pass is cut at the ends of its sentences; its k-th output joins the k-th of each part. A line
        without letters stays as it is, and so does a single word that is too long. A line that cannot be cut has blank
        outputs, and a notice names it. Blank outputs with a score of -inf fill up where fewer than n_best have a
        probability above 0.

        Args:
            lines: without line ends.
            first_line: number of the first one, for notices; None = no notices, the lines were translated before.
            prefixes: for each line, how its outputs begin; "" = free. Empty = free for all.
        """
        passes = self._passes(lines, first_line, prefixes)
        searched = [each for each in passes if not each.word]
        found = self._search.search([each.source for each in searched])
        for each, hypotheses in zip(searched, found, strict=True):
            each.found = hypotheses
        # All outputs are decoded in one call, since each call costs more than a short line.
        tokens = list(dict.fromkeys(hypothesis.tokens for hypotheses in found for hypothesis in hypotheses))
        texts = dict(zip(tokens, self.codec.decode(tokens), strict=True))
        of_line: list[list[_Pass]] = [[] for _ in lines]
        for each in passes:
            of_line[each.line].append(each)
        return [self._outputs(line, each, texts) for line, each in zip(lines, of_line, strict=True)]

    def search_ids(self, sources: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """The best output for each source, as ids without special tokens; no source is split."""
        found = self._search.search([SearchInput(list(ids)) for ids in sources])
        return [hypotheses[0].tokens for hypotheses in found]

    def _passes(self, lines: Sequence[str], first_line: int | None, prefixes: Sequence[str]) -> list["_Pass"]:
        pieces: list[tuple[int, str, bool, bool]] = []  # line, text, whether it is copied, whether inside a word
        for number, line in enumerate(lines):
            text = self.codec.normalise(line)
            if is_blank(text):
                continue
            has_prefix = bool(prefixes and prefixes[number])
            if not self._splits:
                pieces.append((number, text, False, False))
            elif not has_letters(text) and not has_prefix:
                # "42" or "17:45": models hardly ever saw such lines, and make something up
                pieces.append((number, line, True, False))
            else:
                # A prefix may reach over the end of a sentence.
                by_sentence = self._by_sentence and not has_prefix
                for sentence, inside in self._sentences(text) if by_sentence else [(text, False)]:
                    for part, is_word in segments(sentence, self._longest_word, self.count_sub_words):
                        pieces.append((number, part, is_word, inside and sentence.startswith(part)))
        ids = iter(self.codec.encode([text for _, text, is_word, _ in pieces if not is_word]))
        passes: list[_Pass] = []
        with_prefix: set[int] = set()
        for number, text, is_word, inside in pieces:
            named = None if first_line is None else first_line + number
            if is_word:
                passes.append(_Pass(number, SearchInput([]), word=text))
                if has_letters(text):
                    what = f": a word of {len(text):,} characters is too long for the model and stays as it is"
                    self._say("overlong words", named, what)
                continue
            prefix = self._prefix(prefixes[number], named) if prefixes and number not in with_prefix else []
            with_prefix.add(number)
            parts = self._parts(text, next(ids), named)
            for part, part_ids, is_inside in parts:
                words = words_of(text) if self._writes_trees and len(parts) == 1 else None
                phrases = self._glossary.constraints(part) if self._glossary is not None else []
                passes.append(_Pass(number, SearchInput(part_ids, prefix, phrases, words), inside or is_inside))
                inside = False
                prefix = []
        return passes

    def _prefix(self, text: str, line: int | None) -> list[int]:
        ids = self.codec.encode_tgt([text])[0] if not is_blank(text) else []
        known = [i for i in ids if i != UNK_ID]
        prefix = known[: self._search.longest_prefix]
        if len(known) < len(ids):
            self._say("changed prefixes", line, ": characters of its prefix that the vocabulary lacks are dropped")
        elif len(prefix) < len(ids):
            self._say("changed prefixes", line, f": its prefix is cut to {logs.counted(len(prefix), 'sub-word')}")
        return prefix

    def _sentences(self, text: str) -> Iterator[tuple[str, bool]]:
        """The sentences of a text, and whether there is no blank before each."""
        place = 0
        for sentence in split_sentences(text, self.codec.src_lang):
            place = text.index(sentence, place)
            yield sentence, place > 0 and not text[place - 1].isspace()
            place += len(sentence)

    def _parts(self, text: str, ids: list[int], line: int | None) -> list[tuple[str, list[int], bool]]:
        """What one pass each translates: the whole text, its parts, or nothing if it is too long and cannot be cut.

        Each with its ids, and whether there is no blank before it.
        """
        limit = min(self._longest_source, self.max_positions - 1)  # room for EOS
        if len(ids) <= limit:
            return [(text, ids, False)]
        has = f" has {len(ids):,} sub-words"
        if not self._splits:
            self._say("overlong lines", line, f"{has}, more than {limit:,}: it is skipped, since trees cannot be split")
            return []
        parts = []
        for sentence, inside in self._sentences(text):
            [ids] = self.codec.encode([sentence])
            pieces = self.codec.pieces(ids)
            ends = split_points(pieces, limit)
            for start, end in pairwise([0, *ends]):
                part = sentence if len(ends) == 1 else "".join(pieces[start:end]).replace(BLANK_MARK, " ")
                inside = inside if start == 0 else not pieces[start].startswith(BLANK_MARK)
                parts.append((part, ids[start:end], inside))
        self._say(_SPLIT, line, f"{has}, more than {limit}: translated in {len(parts):,} parts")
        return parts

    def _say(self, kind: str, line: int | None, text: str) -> None:
        if line is not None:
            self._notify(LineNotice(kind, f"line {line:,}{text}"))

    def _outputs(self, line: str, passes: list["_Pass"], texts: dict[tuple[int, ...], str]) -> list[Translation]:
        n_best = self.options.n_best
        if not passes and self.codec.is_blank(line):
            return [Translation("")] * n_best
        if not passes:
            return [Translation("", is_skipped=True)] * n_best
        searched = [each for each in passes if not each.word]
        outputs, given_words = [], self._given_words(line)
        for rank in range(min((len(each.found) for each in searched), default=n_best)):
            hypotheses = [each.found[rank] for each in searched]
            log_prob = sum(hypothesis.log_prob for hypothesis in hypotheses) if hypotheses else math.nan
            length = sum(len(hypothesis.tokens) for hypothesis in hypotheses) + 1
            is_one = len(passes) == len(hypotheses) == 1
            score = hypotheses[0].score if is_one else log_prob / length_penalty(length, self.decoding.alpha)
            written = [each.word or texts[each.found[rank].tokens] for each in passes]
            parts = tuple(self._part(each, rank) for each in passes)
            text = self._joiner.join(filter(None, written))
            outputs.append(Translation(text, log_prob, score, parts, given_words))
        return outputs + [Translation("", -math.inf, -math.inf)] * (n_best - len(outputs))

    def _given_words(self, line: str) -> tuple[int, ...]:
        words = line.split()
        seen = tuple(number for number, word in enumerate(words) if self.codec.normalise(word))
        return () if len(seen) == len(words) else seen

    def _part(self, each: "_Pass", rank: int) -> ModelPass:
        if each.word:
            return ModelPass((), (), is_cut=False, word=each.word)
        tokens = each.found[rank].tokens
        is_cut = len(tokens) + 1 >= self._search.max_length(each.source)
        return ModelPass(tuple(each.source.ids), tokens, is_cut, is_inside_word=each.is_inside_word)


@dataclass
class _Pass:
    line: int  # position of its line among those of one call
    source: SearchInput
    is_inside_word: bool = False
    word: str = ""  # stays as it is instead
    found: list[Hypothesis] = field(default_factory=list)


def segments(text: str, longest_word: int, count: Callable[[str], int]) -> Iterator[tuple[str, bool]]:
    """Separate words that are too long for one pass from the rest of a text.

    Such a word (a key, a blob of base64, a cat on a keyboard) has no place where it could be cut, and pieces of it mean
    nothing. Scripts without blanks between words have no such words.
    Yields:
        Each stretch of the text, in order, and whether it is a word of more than `longest_word` sub-words.
    """
    start = 0
    # Every sub-word holds at least one character; only a character written as bytes has up to four.
    for match in re.finditer(rf"\S{{{longest_word // 4 + 1},}}", text):
        word = match.group()
        dense = sum(c.isalpha() and is_written_without_blanks(c) for c in word)
        if 4 * dense > len(word) or count(word) <= longest_word:
            continue
        if before := text[start : match.start()].strip():
            yield before, False
        yield word, True
        start = match.end()
    if start == 0:
        yield text, False
    elif after := text[start:].strip():
        yield after, False


def split_points(pieces: Sequence[str], limit: int) -> list[int]:
    """Cut the sub-words of a sentence into parts of at most `limit`; returns the end of each part.

    Cuts come after the last clause that fits, else before the last word that fits, else at the limit.
    """
    ends = [0]
    while ends[-1] < len(pieces):
        ends.append(_next_end(pieces, ends[-1], limit))
    return ends[1:]


def _next_end(pieces: Sequence[str], start: int, limit: int) -> int:
    last = start + limit
    if last >= len(pieces):
        return len(pieces)
    for end in range(last, start + limit // 2, -1):
        if pieces[end].startswith(BLANK_MARK) and pieces[end - 1].endswith(_CLAUSE_MARKS):
            return end
    return next((end for end in range(last, start, -1) if pieces[end].startswith(BLANK_MARK)), last)
