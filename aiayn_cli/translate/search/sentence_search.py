"""Sentences in, hypotheses out: batches by length, and the search that is asked for in each thread of a CPU."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import torch
from torch import Tensor

from aiayn_cli.config import DecodingConfig
from aiayn_cli.device import Device
from aiayn_cli.errors import CheckpointError
from aiayn_cli.model.translation_model import NO_LIMIT, TranslationModel
from aiayn_cli.parsing.tree_grammar import TreeGrammar
from aiayn_cli.special_tokens import EOS_ID, PAD_ID
from aiayn_cli.translate.aids.glossary import Glossary
from aiayn_cli.translate.search.batches import bands, batches, most_sentences
from aiayn_cli.translate.search.beam import Hypothesis, beam_search, length_penalty
from aiayn_cli.translate.search.constrained import constrained_search, groups_of_one_beam
from aiayn_cli.translate.search.copies import Copies, can_fork
from aiayn_cli.translate.search.phrases import Constraint, phrase_tokens
from aiayn_cli.translate.search.restrictions import Restrictions, TreeRules
from aiayn_cli.translate.search.sampling import Sampling, sample
from aiayn_cli.translate.search.scorer import StoppableScorer
from aiayn_cli.translate.search.workers import AnyStop, Stop, run_together
from aiayn_cli.translate.translation import SearchEngine, SearchOptions

LONGEST_SOURCE = 250  # sub-words of one pass; `prepare` trains on no longer ones unless told to
LONGEST_PASS = 1_000  # of one pass on either side, whatever it was told: memory stays bounded
_FEWEST_IN_A_THREAD = 4  # sentences; fewer are not shared out
_FEWEST_IN_A_PROCESS = 64  # sentences; to start one takes as long as a narrow model needs for ten of them
_WIDTHS = 8  # sources are padded to a multiple of this, so that few shapes of products occur


@dataclass(frozen=True)
class Source:
    """What goes through the model in one pass.

    Attributes:
        ids: of the source, without EOS.
        prefix: ids that its output begins with.
        phrases: what its output holds.
        words: that its output is a tree over, where the search has a grammar for trees; None = the output is free.
    """

    ids: list[int]
    prefix: list[int] = field(default_factory=list)
    phrases: list[Constraint] = field(default_factory=list)
    words: list[str] | None = None


@dataclass(frozen=True)
class _Share:
    """The work of one thread or process.

    Attributes:
        sources: sentences, all with phrases or all without.
        decoding, options: how they are searched.
    """

    sources: list[Source]
    decoding: DecodingConfig
    options: SearchOptions


class SentenceSearch:
    """Searches the outputs of sentences with one model or an ensemble.

    A model in training mode is copied, so that training goes on undisturbed; one in evaluation mode is moved to the
    device and its dtype as it is.

    Args:
        models: trained with the same vocabulary; the probabilities of several are averaged.
        vocab_size: of its target side.
        device: where and in which precision they run.
        decoding: beam, length penalty, longest output, batch size.
        n_best: outputs for each sentence, at most decoding.beam_size unless they are sampled.
        options: what is asked for beside that.
        glossary: where the phrases of sources come from.
        engine: what searches instead of the models.
        in_processes: search many sentences in copies of this process, where the system can make some.
        tree_grammar: of what is written, where that is trees, and decoding.tree_rules holds.
        stop: set where nobody wants the outputs any more; None = they always are.

    Attributes:
        models: on the device.
        device: torch's.
        threads: of a CPU.
        decoding, options, n_best: as given.
        max_positions: the longest sequence that the models can read or write, in tokens.
    """

    def __init__(
        self,
        models: Sequence[TranslationModel],
        vocab_size: int,
        device: Device,
        decoding: DecodingConfig,
        *,
        n_best: int,
        options: SearchOptions,
        glossary: Glossary | None,
        engine: SearchEngine | None,
        in_processes: bool = False,
        tree_grammar: TreeGrammar | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.models = [_for_decoding(model, device) for model in models]
        self.decoding, self.options, self.n_best = decoding, options, n_best
        self.max_positions = min((model.max_positions for model in self.models), default=NO_LIMIT)
        if engine is not None:
            self.max_positions = min(self.max_positions, engine.max_positions)
        self._vocab_size = vocab_size
        self.device, self.threads = device.device, device.threads
        self._glossary = glossary
        self._engine = engine
        self._tree_grammar = tree_grammar
        self._stop = stop
        self._copies = Copies[_Share, list[list[Hypothesis]]]() if in_processes and can_fork() else None

    def variant(self, decoding: DecodingConfig | None, options: SearchOptions | None) -> Self:
        """One with the same models that searches in another way; None leaves what it is."""
        other = copy.copy(self)
        other.decoding, other.options = decoding or self.decoding, options or self.options
        return other

    @property
    def longest_prefix(self) -> int:
        """How many tokens an output can begin with."""
        return min(LONGEST_PASS, self.max_positions) - 1  # room for EOS

    def max_length(self, source: Source) -> int:
        """The longest output of a source in tokens with EOS."""
        longest = max(len(source.ids) + self.decoding.max_extra, self.options.min_length) + 1
        longest = min(longest, LONGEST_PASS)
        if self.options.max_length:
            longest = min(longest, self.options.max_length + 1)
        return min(max(longest, len(source.prefix) + phrase_tokens(source.phrases) + 1), self.max_positions)

    def search(self, sources: Sequence[Source]) -> list[list[Hypothesis]]:
        """Give n_best outputs for each source, best first; fewer where no more have a probability above 0.

        Args:
            sources: none longer than max_positions with EOS.

        Raises:
            CheckpointError: the model gives no probabilities but NaN.
            Stopped: nobody wants the outputs any more.
        """
        if self._engine is not None:
            return self._search_with(self._engine, sources)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for wanted in (False, True):  # those with phrases are searched in another way
            # The longest first, of which every worker takes each n-th, so that all have equal work.
            numbers = sorted(
                (number for number, source in enumerate(sources) if bool(source.phrases) == wanted),
                key=lambda number: -len(sources[number].ids),
            )
            if not numbers:
                continue
            n_workers = min(self.threads, -(-len(numbers) // _FEWEST_IN_A_THREAD)) if self._on_cpu else 1
            shares = [numbers[worker::n_workers] for worker in range(n_workers)]
            results = self._search_side_by_side([[sources[number] for number in share] for share in shares])
            for share, outputs in zip(shares, results, strict=True):
                for number, hypotheses in zip(share, outputs, strict=True):
                    found[number] = hypotheses
        return found

    def _search_with(self, engine: SearchEngine, sources: Sequence[Source]) -> list[list[Hypothesis]]:
        alpha = self.decoding.alpha
        results = engine.search(
            [source.ids for source in sources],
            [source.prefix for source in sources],
            list(map(self.max_length, sources)),
            beam_size=self.decoding.beam_size,
            alpha=alpha,
            n_best=self.n_best,
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

    @property
    def _on_cpu(self) -> bool:
        return self.device.type == "cpu"

    def _most_sentences(self) -> int:
        """How many sentences one step may have."""
        hypotheses = self.n_best if self.options.sampling else self.decoding.beam_size
        return most_sentences(hypotheses, self._vocab_size, on_cpu=self._on_cpu)

    def _search_side_by_side(self, shares: Sequence[list[Source]]) -> list[list[list[Hypothesis]]]:
        """Search each share in a thread or a process of its own."""
        works = [_Share(share, self.decoding, self.options) for share in shares]
        if self._copies is not None and len(works) > 1 and len(shares[0]) >= _FEWEST_IN_A_PROCESS:
            return self._copies.run(self._search_share, works)
        # A second thread would be waited for in each product, and those of a few rows are too small for that.
        few = len(shares[0]) <= _FEWEST_IN_A_THREAD
        threads = 1 if few else self.threads // len(shares)
        return run_together([partial(self._search_share, work) for work in works], threads)

    def _search_share(self, share: "_Share", stop: Stop) -> list[list[Hypothesis]]:
        """Search the sentences of one thread or process, in batches of similar length."""
        search = self.variant(share.decoding, share.options)  # in another process this one may be older
        stop = stop if self._stop is None else AnyStop(stop, self._stop)
        lengths = [len(source.ids) for source in share.sources]
        found: list[list[Hypothesis]] = [[] for _ in share.sources]
        grouped = batches(lengths, batch_tokens=share.decoding.batch_tokens, at_most=search._most_sentences())
        for band in bands(grouped):
            numbers = [number for batch in band for number in batch]
            results = search._search_band([share.sources[number] for number in numbers], len(band[0]), stop)
            for number, hypotheses in zip(numbers, results, strict=True):
                found[number] = hypotheses
        return found

    def _search_band(self, sources: Sequence[Source], at_once: int, stop: Stop) -> list[list[Hypothesis]]:
        """Search sentences in one thread, the longest first, at_once of them together."""
        sampling = self.options.sampling
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

    def _beam_search(self, sources: Sequence[Source], at_once: int, stop: Stop) -> list[list[Hypothesis]]:
        groups = (sources[start : start + at_once] for start in range(0, len(sources), at_once))
        scorers = (StoppableScorer(stop, self.models, *self._padded(group)) for group in groups)
        return beam_search(
            next(scorers),
            list(map(self.max_length, sources)),
            beam_size=self.decoding.beam_size,
            alpha=self.decoding.alpha,
            n_best=self.n_best,
            restrictions=self._restrictions(sources),
            waiting=scorers,
            at_once=at_once,
        )

    def _constrained_search(self, sources: Sequence[Source], at_once: int, stop: Stop) -> list[list[Hypothesis]]:
        assert self._glossary is not None
        found: list[list[Hypothesis]] = [[] for _ in sources]
        # One beam for each group, so that no output depends on how many phrases its neighbours have.
        for beam_size, numbers in groups_of_one_beam([s.phrases for s in sources], self.decoding.beam_size, at_once):
            chosen = [sources[number] for number in numbers]
            results = constrained_search(
                StoppableScorer(stop, self.models, *self._padded(chosen)),
                list(map(self.max_length, chosen)),
                [source.phrases for source in chosen],
                beam_size=beam_size,
                alpha=self.decoding.alpha,
                n_best=self.n_best,
                restrictions=self._restrictions(chosen),
                word_continuations=self._glossary.word_continuations,
                word_starts=self._glossary.word_starts,
            )
            for number, hypotheses in zip(numbers, results, strict=True):
                found[number] = hypotheses
        return found

    def _sample(self, sources: Sequence[Source], sampling: Sampling, stop: Stop) -> list[list[Hypothesis]]:
        return sample(
            StoppableScorer(stop, self.models, *self._padded(sources)),
            list(map(self.max_length, sources)),
            [source.ids for source in sources],
            sampling,
            alpha=self.decoding.alpha,
            n_samples=self.n_best,
            restrictions=self._restrictions(sources),
        )

    def _padded(self, sources: Sequence[Source]) -> tuple[Tensor, Tensor | None]:
        """The sources of a batch and their mask, with a width that is one of few; see batch_size()."""
        rows = [[*source.ids, EOS_ID] for source in sources]
        width = min(-(-max(map(len, rows)) // _WIDTHS) * _WIDTHS, self.max_positions)
        src = torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows], device=self.device)
        return src, None if min(map(len, rows)) == width else src != PAD_ID

    def _restrictions(self, sources: Sequence[Source]) -> Restrictions:
        longest = list(map(self.max_length, sources))
        rules = None
        if self._tree_grammar is not None and self.decoding.tree_rules:
            rules = TreeRules(self._tree_grammar, [source.words for source in sources], longest)
        return Restrictions(
            [min(self.options.min_length + 1, length) for length in longest],
            [source.prefix for source in sources],
            self.options.no_repeat_ngram,
            rules,
        )


def _for_decoding(model: TranslationModel, device: Device) -> TranslationModel:
    if model.training:
        model = copy.deepcopy(model)
    return model.to(device.device, device.dtype).eval().requires_grad_(False)
