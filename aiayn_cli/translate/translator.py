"""Lines in, translations out: sub-words, parts of long lines, their search, text again."""

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from aiayn_cli.config import DecodingConfig
from aiayn_cli.device import Device
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.parsing.tree_text import words_of
from aiayn_cli.special_tokens import UNK_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.lines import is_blank
from aiayn_cli.text.vocab import BLANK_MARK
from aiayn_cli.translate.forced_decoding import SecondPass
from aiayn_cli.translate.options import LONGEST_PASS, SearchOptions
from aiayn_cli.translate.search.beam import Hypothesis, length_penalty
from aiayn_cli.translate.search.constrained import Constraint
from aiayn_cli.translate.search.sentence_search import LONGEST_SOURCE, SearchInput, SearchSetup, SentenceSearch
from aiayn_cli.translate.split import WITHOUT_BLANKS, segments, split_points
from aiayn_cli.translate.translation import ModelPass, Translation
from aiayn_cli.translate.trust.notices import LineNotice, LineNotices

_NO_OPTIONS, _NO_SETUP = SearchOptions(), SearchSetup()


class Translator:
    """Translates lines with one model or an ensemble, which SentenceSearch takes to the device.

    A longer line than one pass takes is translated in parts, unless outputs are trees: a sentence for a parser cannot
    be cut.

    Args:
        models: trained with the same vocabulary; the probabilities of several are averaged.
        trained_length: sub-words of the longest side that the models were trained on: one pass takes as many, but at
            least LONGEST_SOURCE and at most LONGEST_PASS.
        notices: takes remarks on lines; None = they are logged at once.

    Attributes:
        notices: the same; counts lines that were cut ("split") or left out ("too_long"), and changed prefixes.
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
        trained_length: int = LONGEST_SOURCE,
        notices: LineNotices | None = None,
    ) -> None:
        self._search = SentenceSearch(models, codec.size, device, decoding, options=options, setup=setup)
        self._codec = codec
        self._glossary = setup.glossary
        self._writes_trees = setup.tree_grammar is not None
        self._splits = not codec.text.trees
        # Any length is tried of a sentence that cannot be cut.
        self._longest_source = min(max(trained_length, LONGEST_SOURCE), LONGEST_PASS) if self._splits else LONGEST_PASS
        self._longest_word = min(self._longest_source, self.max_positions - 1)
        self._joiner = "" if codec.tgt_lang.lower().startswith(WITHOUT_BLANKS) else " "
        self.notices = notices or LineNotices()

    def variant(
        self,
        *,
        decoding: DecodingConfig | None = None,
        options: SearchOptions | None = None,
        longest_source: int | None = None,
    ) -> Self:
        """A translator with the same models that searches in another way, and counts its own lines."""
        other = copy.copy(self)
        other._search = self._search.variant(decoding, options)
        other._longest_source = min(longest_source or LONGEST_PASS, self._longest_source)
        other.notices = LineNotices()
        return other

    @property
    def decoding(self) -> DecodingConfig:
        return self._search.decoding

    @property
    def max_positions(self) -> int:
        return self._search.max_positions

    @property
    def options(self) -> SearchOptions:
        return self._search.options

    def count_sub_words(self, line: str) -> int:
        return len(self._codec.encode([line])[0])

    def translate(self, lines: Sequence[str]) -> list[str]:
        return [outputs[0].text for outputs in self.translate_n_best(lines)]

    def translate_n_best(
        self, lines: Sequence[str], first_line: int | None = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """The n_best best outputs for each line, in order; or n_best drawn ones.

        A blank line (in Unicode's sense) has n_best blank outputs, and the model never sees it. A line of more than
        one pass takes is cut at the ends of its sentences; its k-th output joins the k-th of each part. A single word
        of so many sub-words stays as it is. Where lines cannot be cut, its outputs are blank ones with a score of
        -inf, and a warning names it. Such ones fill up too where the model gives fewer outputs a probability above 0.

        Args:
            lines: without line ends.
            first_line: number of the first one, for notices; None = they were translated before, and all is said.
            prefixes: for each line, how its outputs begin; "" = free. None at all = free for all.

        Raises:
            CheckpointError: the model gives no probabilities but NaN.
            Stopped: nobody wants the outputs any more.
        """
        passes = self._passes(lines, first_line, prefixes)
        searched = [each for each in passes if each.source is not None]
        found = self._search.search([each.source for each in searched if each.source is not None])
        for each, hypotheses in zip(searched, found, strict=True):
            each.found = hypotheses
        of_line: list[list[_Pass]] = [[] for _ in lines]
        for each in passes:
            of_line[each.line].append(each)
        texts = self._texts([hypothesis for hypotheses in found for hypothesis in hypotheses])
        outputs = [self._outputs(each, texts) for each in of_line]
        for number, line in enumerate(lines):
            if not of_line[number] and not is_blank(line):  # too long, and not to be cut
                outputs[number] = [Translation("", -math.inf, -math.inf, is_left_out=True)] * self.options.n_best
        return outputs

    def search_ids(self, sources: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """The best output for each source, as ids without special tokens; no source is split."""
        found = self._search.search([SearchInput(list(ids)) for ids in sources])
        return [hypotheses[0].tokens for hypotheses in found]

    def second_pass(self) -> SecondPass:
        return SecondPass(self._search.models, self._codec, self._search.device, self.decoding.batch_tokens)

    def _passes(self, lines: Sequence[str], first_line: int | None, prefixes: Sequence[str]) -> list["_Pass"]:
        pieces = [
            (number, text, is_word)
            for number, line in enumerate(lines)
            if not is_blank(line)
            for text, is_word in self._segments(line)
        ]
        ids = iter(self._codec.encode([text for _, text, is_word in pieces if not is_word]))
        passes: list[_Pass] = []
        with_prefix: set[int] = set()
        for number, text, is_word in pieces:
            line = None if first_line is None else first_line + number
            if is_word:
                passes.append(_Pass(number, word=text))
                if line is not None:
                    what = f"line {line:,}: a word of {len(text):,} characters is left as it is"
                    self.notices.take(LineNotice("long_word", what))
                continue
            prefix = self._prefix(prefixes[number], line) if prefixes and number not in with_prefix else []
            with_prefix.add(number)
            parts = self._parts(next(ids), line)
            for part in parts:
                phrases = self._phrases(part, text if len(parts) == 1 else None)
                # A part of a sentence has no tree of its own.
                words = words_of(text) if self._writes_trees and len(parts) == 1 else None
                source = SearchInput(part, prefix, phrases, words)
                passes.append(_Pass(number, source))
                prefix = []
        return passes

    def _segments(self, line: str) -> Iterable[tuple[str, bool]]:
        return segments(line, self._longest_word, self.count_sub_words) if self._splits else [(line, False)]

    def _prefix(self, text: str, line: int | None) -> list[int]:
        ids = self._codec.encode_tgt([text])[0] if not is_blank(text) else []
        known = [i for i in ids if i != UNK_ID]
        prefix = known[: self._search.longest_prefix]
        if len(prefix) < len(ids) and line is not None:
            what = f"what its prefix holds beyond {len(prefix):,} sub-words"
            if len(known) < len(ids):
                what = "what its prefix holds that is not in the vocabulary"
            self.notices.take(LineNotice("prefix", f"line {line:,}: {what} is left out"))
        return prefix

    def _parts(self, ids: list[int], line: int | None) -> list[list[int]]:
        limit = min(self._longest_source, self.max_positions - 1)  # room for EOS
        if len(ids) <= limit:
            return [ids]
        if not self._splits:
            if line is not None:
                what = f"{len(ids):,} sub-words, and no more than {limit:,} are read at once"
                said = f"line {line:,} has {what}: it is left out, since it cannot be cut"
                self.notices.take(LineNotice("too_long", said))
            return []
        ends = split_points(self._codec.pieces(ids), limit)
        if line is not None:
            what = f"{len(ids):,} sub-words, more than {limit}: translated in {len(ends):,} parts"
            self.notices.take(LineNotice("split", f"line {line:,} has {what}"))
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _phrases(self, ids: list[int], text: str | None) -> list[Constraint]:
        """What the glossary wants in the output of a source; the text of a part is made of its sub-words."""
        if self._glossary is None:
            return []
        return self._glossary.constraints(text or "".join(self._codec.pieces(ids)).replace(BLANK_MARK, " "))

    def _texts(self, hypotheses: Sequence[Hypothesis]) -> dict[tuple[int, ...], str]:
        """The text of each output; all are decoded in one call, since each call costs more than a short line."""
        outputs = list({hypothesis.tokens: None for hypothesis in hypotheses})
        return dict(zip(outputs, self._codec.decode(outputs), strict=True))

    def _outputs(self, passes: Sequence["_Pass"], decoded: dict[tuple[int, ...], str]) -> list[Translation]:
        if not passes:
            return [Translation("", 0.0, 0.0)] * self.options.n_best
        count = min([len(each.found) for each in passes if each.source is not None], default=self.options.n_best)
        outputs = []
        for rank in range(count):
            chosen = [None if each.source is None else each.found[rank] for each in passes]
            texts = [
                each.word if found is None else decoded[found.tokens]
                for each, found in zip(passes, chosen, strict=True)
            ]
            hypotheses = [found for found in chosen if found is not None]
            log_prob = sum(hypothesis.log_prob for hypothesis in hypotheses)
            length = sum(len(hypothesis.tokens) for hypothesis in hypotheses) + 1
            is_one = len(passes) == len(hypotheses) == 1
            score = hypotheses[0].score if is_one else log_prob / length_penalty(length, self.decoding.alpha)
            parts = tuple(self._part(each, found) for each, found in zip(passes, chosen, strict=True))
            outputs.append(Translation(self._joiner.join(filter(None, texts)), log_prob, score, parts))
        return outputs + [Translation("", -math.inf, -math.inf)] * (self.options.n_best - count)

    def _part(self, each: "_Pass", found: Hypothesis | None) -> ModelPass:
        if each.source is None or found is None:
            return ModelPass((), (), is_cut=False, word=each.word)
        is_cut = len(found.tokens) + 1 >= self._search.max_length(each.source)
        return ModelPass(tuple(each.source.ids), found.tokens, is_cut)


@dataclass
class _Pass:
    """A part of a line."""

    line: int  # its position among the lines of one call
    source: SearchInput | None = None  # what is searched; None for a word that is too long
    word: str = ""  # such a word
    found: list[Hypothesis] = field(default_factory=list)  # outputs of the search
