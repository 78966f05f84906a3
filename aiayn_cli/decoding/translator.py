"""Lines in, translations out: sub-words, batches by length, beam search, text again."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Self

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.config import DecodingConfig
from aiayn_cli.data.codec import Codec
from aiayn_cli.data.text import is_blank
from aiayn_cli.data.vocab import BLANK_MARK
from aiayn_cli.decoding.batches import bands, batches, most_sentences
from aiayn_cli.decoding.beam_search import Hypothesis, beam_search, length_penalty
from aiayn_cli.decoding.constrained_search import Constraint, constrained_search, groups_of_one_beam, phrase_tokens
from aiayn_cli.decoding.glossary import Glossary
from aiayn_cli.decoding.restrictions import Restrictions
from aiayn_cli.decoding.sampling import Sampling, sample
from aiayn_cli.decoding.scorer import StoppableScorer
from aiayn_cli.decoding.second_pass import SecondPass
from aiayn_cli.decoding.split import WITHOUT_BLANKS, split_points
from aiayn_cli.decoding.translation import Part, SearchEngine, SearchOptions, Translation
from aiayn_cli.decoding.workers import run_together
from aiayn_cli.device import Device
from aiayn_cli.errors import CheckpointError
from aiayn_cli.model.translation_model import NO_LIMIT, TranslationModel
from aiayn_cli.special_tokens import EOS_ID, PAD_ID, UNK_ID

LONGEST_SOURCE = 250  # sub-words of one pass; `prepare` trains on no longer ones unless told to
_LONGEST_OUTPUT = 4 * LONGEST_SOURCE  # tokens of one pass: memory stays bounded whatever max_extra is
_FEWEST_IN_A_THREAD = 4  # sentences; fewer are not shared out
_WIDTHS = 8  # sources are padded to a multiple of this, so that few shapes of products occur
_NOTICES = 5  # long lines, and prefixes that cannot be as they are, named one by one

_NO_OPTIONS = SearchOptions()


@dataclass(frozen=True)
class _Source:
    """What goes through the model in one pass."""

    line: int  # position among the lines of one call
    ids: list[int]  # without EOS
    prefix: list[int]  # how its output begins
    phrases: list[Constraint] = field(default_factory=list)  # what its output holds


class Translator:
    """Translates lines with one model or an ensemble.

    A model in training mode is copied, so that training goes on undisturbed; one in evaluation mode is moved to the
    device and its dtype as it is.

    Args:
        models: trained with the same vocabulary; the probabilities of several are averaged.
        vocab: theirs.
        device: where and in which precision they run.
        decoding: beam, length penalty, longest output, batch size.
        n_best: outputs for each line, at most decoding.beam_size unless they are sampled.
        tgt_lang: target language, which says how the parts of a long line are joined.
        options: what is asked for beside that.
        glossary: terms that outputs must use; it is not there for sampling.
        engine: what searches instead of the models, which then only score outputs.

    Attributes:
        split_lines: how many lines were too long for one pass so far.
    """

    def __init__(
        self,
        models: Sequence[TranslationModel],
        vocab: Codec,
        device: Device,
        decoding: DecodingConfig,
        *,
        n_best: int = 1,
        tgt_lang: str = "",
        options: SearchOptions = _NO_OPTIONS,
        glossary: Glossary | None = None,
        engine: SearchEngine | None = None,
    ) -> None:
        self._models = [_for_decoding(model, device) for model in models]
        self._vocab = vocab
        self._device, self._threads = device.device, device.threads
        self._decoding = decoding
        self._n_best = n_best
        self._options = options
        self._glossary = glossary
        self._engine = engine
        self._longest_source = LONGEST_SOURCE
        self._joiner = "" if tgt_lang.lower().startswith(WITHOUT_BLANKS) else " "
        self._max_positions = min((model.max_positions for model in self._models), default=NO_LIMIT)
        if engine is not None:
            self._max_positions = min(self._max_positions, engine.max_positions)
        self.split_lines = self._changed_prefixes = 0

    def variant(
        self,
        *,
        decoding: DecodingConfig | None = None,
        options: SearchOptions | None = None,
        longest_source: int | None = None,
    ) -> Self:
        """A translator with the same models that searches in another way, and counts its own lines.

        Args:
            decoding, options: instead of this one's.
            longest_source: sub-words of one pass.
        """
        other = copy.copy(self)
        other._decoding = decoding or self._decoding
        other._options = options or self._options
        other._longest_source = longest_source or self._longest_source
        other.split_lines = other._changed_prefixes = 0
        return other

    @property
    def decoding(self) -> DecodingConfig:
        """Beam, length penalty, longest output, batch size."""
        return self._decoding

    @property
    def max_positions(self) -> int:
        """The longest sequence that the models can read or write, in tokens."""
        return self._max_positions

    @property
    def options(self) -> SearchOptions:
        """What is asked for beside that."""
        return self._options

    def count_sub_words(self, line: str) -> int:
        """How many sub-words the model reads for a line, without EOS."""
        return len(self._vocab.encode([line])[0])

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best output for each line, in order."""
        return [outputs[0].text for outputs in self.translate_n_best(lines)]

    def translate_n_best(
        self, lines: Sequence[str], first_line: int | None = 1, prefixes: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """The n_best best outputs for each line, in order; or n_best drawn ones.

        A blank line (in Unicode's sense) has n_best blank outputs, and the model never sees it. A line of more than
        LONGEST_SOURCE sub-words is cut at the ends of its sentences; its k-th output joins the k-th of each part.
        Where the model gives fewer outputs a probability above 0, blank ones with a score of -inf fill up.

        Args:
            lines: without line ends.
            first_line: number of the first one, for notices; None = they were translated before, and all is said.
            prefixes: for each line, how its outputs begin; "" = free. None at all = free for all.

        Raises:
            CheckpointError: the model gives no probabilities but NaN.
        """
        wanted = [number for number, line in enumerate(lines) if not is_blank(line)]
        sources: list[_Source] = []
        for number, ids in zip(wanted, self._vocab.encode([lines[number] for number in wanted]), strict=True):
            line = None if first_line is None else first_line + number
            prefix = self._prefix(prefixes[number], line) if prefixes else []
            parts = self._parts(ids, line)
            for part in parts:
                phrases = self._phrases(part, lines[number] if len(parts) == 1 else None)
                sources.append(_Source(number, part, prefix, phrases))
                prefix = []
        results: list[list[tuple[_Source, list[Hypothesis]]]] = [[] for _ in lines]
        for source, hypotheses in zip(sources, self._search(sources), strict=True):
            results[source.line].append((source, hypotheses))
        texts = self._texts([hypothesis for parts in results for _, found in parts for hypothesis in found])
        return [self._outputs(parts, texts) for parts in results]

    def search_ids(self, sources: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """The best output for each source, as ids without special tokens; no source is split."""
        found = self._search([_Source(number, list(ids), []) for number, ids in enumerate(sources)])
        return [hypotheses[0].tokens for hypotheses in found]

    def second_pass(self) -> SecondPass:
        """What finds out more about outputs with the same models."""
        return SecondPass(self._models, self._vocab, self._device, self._decoding.batch_tokens)

    def _prefix(self, text: str, line: int | None) -> list[int]:
        ids = self._vocab.encode_tgt([text])[0] if not is_blank(text) else []
        known = [i for i in ids if i != UNK_ID]
        prefix = known[: min(_LONGEST_OUTPUT, self._max_positions) - 1]  # room for EOS
        if len(prefix) < len(ids) and line is not None:
            self._changed_prefixes += 1
            if self._changed_prefixes <= _NOTICES:
                what = f"what its prefix holds beyond {len(prefix):,} sub-words"
                if len(known) < len(ids):
                    what = "what its prefix holds that is not in the vocabulary"
                logs.warning(f"line {line:,}: {what} is left out")
        return prefix

    def _parts(self, ids: list[int], line: int | None) -> list[list[int]]:
        limit = min(self._longest_source, self._max_positions - 1)  # room for EOS
        if len(ids) <= limit:
            return [ids]
        ends = split_points(self._vocab.pieces(ids), limit)
        if line is not None:
            self.split_lines += 1
            if self.split_lines <= _NOTICES:
                logs.notice(
                    f"line {line:,} has {len(ids):,} sub-words, more than {limit}: translated in {len(ends):,} parts"
                )
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _phrases(self, ids: list[int], text: str | None) -> list[Constraint]:
        """What the glossary wants in the output of a source; the text of a part is made of its sub-words."""
        if self._glossary is None:
            return []
        return self._glossary.constraints(text or "".join(self._vocab.pieces(ids)).replace(BLANK_MARK, " "))

    def _search(self, sources: Sequence[_Source]) -> list[list[Hypothesis]]:
        if self._engine is not None:
            return self._search_with(self._engine, sources)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for wanted in (False, True):  # those with phrases are searched in another way
            numbers = [number for number, source in enumerate(sources) if bool(source.phrases) == wanted]
            chosen = [sources[number] for number in numbers]
            lengths = [len(source.ids) for source in chosen]
            grouped = batches(lengths, batch_tokens=self._decoding.batch_tokens, at_most=self._most_sentences())
            for band in bands(grouped):
                for place, hypotheses in self._search_band(band, chosen):
                    found[numbers[place]] = hypotheses
        return found

    def _search_with(self, engine: SearchEngine, sources: Sequence[_Source]) -> list[list[Hypothesis]]:
        alpha = self.decoding.alpha
        results = engine.search(
            [source.ids for source in sources],
            [source.prefix for source in sources],
            list(map(self._max_length, sources)),
            beam_size=self.decoding.beam_size,
            alpha=alpha,
            n_best=self._n_best,
            min_length=self.options.min_length,
            no_repeat_ngram=self.options.no_repeat_ngram,
        )
        found = [
            [
                Hypothesis(tokens, log_prob, log_prob / length_penalty(len(tokens) + 1, alpha))
                for tokens, log_prob in each
            ]
            for each in results
        ]
        return [sorted(each, key=lambda hypothesis: -hypothesis.score) for each in found]

    def _most_sentences(self) -> int:
        """How many sentences one step may have."""
        hypotheses = self._n_best if self._options.sampling else self._decoding.beam_size
        return most_sentences(hypotheses, self._vocab.size, on_cpu=self._device.type == "cpu")

    def _search_band(self, band: Sequence[list[int]], sources: Sequence[_Source]) -> list[tuple[int, list[Hypothesis]]]:
        """Search the sentences of some batches, by their numbers: on a CPU side by side, a share in each thread."""
        numbers = [number for batch in band for number in batch]
        n_workers = min(self._threads, -(-len(numbers) // _FEWEST_IN_A_THREAD)) if self._device.type == "cpu" else 1
        # Every worker takes each n-th sentence, so that all have equal work whatever the lengths are.
        shares = [numbers[worker::n_workers] for worker in range(n_workers)]

        def task(share: list[int]) -> Callable[[Event], list[list[Hypothesis]]]:
            return lambda stop: self._search_share([sources[number] for number in share], len(band[0]), stop)

        # A second thread would be waited for in each product, and the products of a few rows are too small for that.
        threads = max(self._threads // n_workers, 1) if len(shares[0]) > _FEWEST_IN_A_THREAD else 1
        results = run_together([task(share) for share in shares], threads)
        return [pair for share, found in zip(shares, results, strict=True) for pair in zip(share, found, strict=True)]

    def _search_share(self, sources: Sequence[_Source], at_once: int, stop: Event) -> list[list[Hypothesis]]:
        """Search sentences in one thread, at_once of them together."""
        sampling = self._options.sampling
        with torch.inference_mode():
            if sources[0].phrases:
                results = self._constrained_search(sources, at_once, stop)
            elif sampling is None:
                results = self._beam_search(sources, at_once, stop)
            else:
                groups = [sources[start : start + at_once] for start in range(0, len(sources), at_once)]
                results = [outputs for group in groups for outputs in self._sample(group, sampling, stop)]
        if not all(results):
            raise CheckpointError(
                "the model gives no probabilities but NaN",
                "its training diverged: take an earlier checkpoint, or train with a lower learning_rate_scale",
            )
        return results

    def _beam_search(self, sources: Sequence[_Source], at_once: int, stop: Event) -> list[list[Hypothesis]]:
        groups = (sources[start : start + at_once] for start in range(0, len(sources), at_once))
        scorers = (StoppableScorer(stop, self._models, *self._padded(group)) for group in groups)
        return beam_search(
            next(scorers),
            list(map(self._max_length, sources)),
            beam_size=self._decoding.beam_size,
            alpha=self._decoding.alpha,
            n_best=self._n_best,
            restrictions=self._restrictions(sources),
            waiting=scorers,
            at_once=at_once,
        )

    def _constrained_search(self, sources: Sequence[_Source], at_once: int, stop: Event) -> list[list[Hypothesis]]:
        assert self._glossary is not None
        found: list[list[Hypothesis]] = [[] for _ in sources]
        # One beam for each group, so that no output depends on how many phrases its neighbours have.
        for beam_size, numbers in groups_of_one_beam([s.phrases for s in sources], self._decoding.beam_size, at_once):
            chosen = [sources[number] for number in numbers]
            results = constrained_search(
                StoppableScorer(stop, self._models, *self._padded(chosen)),
                list(map(self._max_length, chosen)),
                [source.phrases for source in chosen],
                beam_size=beam_size,
                alpha=self._decoding.alpha,
                n_best=self._n_best,
                restrictions=self._restrictions(chosen),
                word_continuations=self._glossary.word_continuations,
                word_starts=self._glossary.word_starts,
            )
            for number, hypotheses in zip(numbers, results, strict=True):
                found[number] = hypotheses
        return found

    def _sample(self, sources: Sequence[_Source], sampling: Sampling, stop: Event) -> list[list[Hypothesis]]:
        return sample(
            StoppableScorer(stop, self._models, *self._padded(sources)),
            list(map(self._max_length, sources)),
            [source.ids for source in sources],
            sampling,
            alpha=self._decoding.alpha,
            n_samples=self._n_best,
            restrictions=self._restrictions(sources),
        )

    def _padded(self, sources: Sequence[_Source]) -> tuple[Tensor, Tensor | None]:
        """The sources of a batch and their mask, with a width that is one of few; see batch_size()."""
        rows = [[*source.ids, EOS_ID] for source in sources]
        width = min(-(-max(map(len, rows)) // _WIDTHS) * _WIDTHS, self._max_positions)
        src = torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows], device=self._device)
        return src, None if min(map(len, rows)) == width else src != PAD_ID

    def _restrictions(self, sources: Sequence[_Source]) -> Restrictions:
        return Restrictions(
            [min(self._options.min_length + 1, self._max_length(source)) for source in sources],
            [source.prefix for source in sources],
            self._options.no_repeat_ngram,
        )

    def _max_length(self, source: _Source) -> int:
        """The longest output in tokens with EOS."""
        longest = min(len(source.ids) + 1 + self._decoding.max_extra, _LONGEST_OUTPUT)
        if self._options.max_length:
            longest = min(longest, self._options.max_length + 1)
        return min(max(longest, len(source.prefix) + phrase_tokens(source.phrases) + 1), self._max_positions)

    def _texts(self, hypotheses: Sequence[Hypothesis]) -> dict[tuple[int, ...], str]:
        """The text of each output; all are decoded in one call, since each call costs more than a short line."""
        outputs = list({hypothesis.tokens: None for hypothesis in hypotheses})
        return dict(zip(outputs, self._vocab.decode(outputs), strict=True))

    def _outputs(
        self, parts: list[tuple[_Source, list[Hypothesis]]], decoded: dict[tuple[int, ...], str]
    ) -> list[Translation]:
        if not parts:
            return [Translation("", 0.0, 0.0)] * self._n_best
        count = min(len(hypotheses) for _, hypotheses in parts)
        outputs = []
        for rank in range(count):
            chosen = [hypotheses[rank] for _, hypotheses in parts]
            texts = [decoded[hypothesis.tokens] for hypothesis in chosen]
            log_prob = sum(hypothesis.log_prob for hypothesis in chosen)
            length = sum(len(hypothesis.tokens) for hypothesis in chosen) + 1
            score = chosen[0].score if len(parts) == 1 else log_prob / length_penalty(length, self._decoding.alpha)
            passes = tuple(
                Part(tuple(source.ids), hypothesis.tokens, len(hypothesis.tokens) + 1 >= self._max_length(source))
                for (source, _), hypothesis in zip(parts, chosen, strict=True)
            )
            outputs.append(Translation(self._joiner.join(filter(None, texts)), log_prob, score, passes))
        return outputs + [Translation("", -math.inf, -math.inf)] * (self._n_best - count)


def _for_decoding(model: TranslationModel, device: Device) -> TranslationModel:
    if model.training:
        model = copy.deepcopy(model)
    return model.to(device.device, device.dtype).eval().requires_grad_(False)
