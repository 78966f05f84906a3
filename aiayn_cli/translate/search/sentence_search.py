"""Sentences in, hypotheses out: batches of similar length, searched side by side on the cores of a CPU.

On a CPU every thread or process searches a share of the sentences by itself: small products gain little from a second
thread, and the rest nothing. Threads start immediately but wait for each other in Python, so many sentences are
searched in forked processes (14 to 24 % faster on two cores with d_model 128, more on more cores).
"""

import copy
import multiprocessing
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Self, TypeVar

import torch
from torch import Tensor

from aiayn_cli.device import Device
from aiayn_cli.errors import CheckpointError
from aiayn_cli.model.translation_model import NO_LIMIT, TranslationModel
from aiayn_cli.parsing.tree_grammar import TreeGrammar
from aiayn_cli.processes import Processes
from aiayn_cli.recipe_keys import DecodingConfig
from aiayn_cli.special_tokens import EOS_ID, PAD_ID
from aiayn_cli.translate.aids.glossary import Glossary
from aiayn_cli.translate.ctranslate2_engine import CTranslate2Engine
from aiayn_cli.translate.options import LONGEST_PASS, SearchOptions
from aiayn_cli.translate.search.beam import Hypothesis, batch_size, beam_search, length_penalty
from aiayn_cli.translate.search.constrained import Constraint, constrained_search, groups_of_one_beam, phrase_tokens
from aiayn_cli.translate.search.restrictions import Restrictions, TreeRules
from aiayn_cli.translate.search.sampling import sample
from aiayn_cli.translate.search.scorer import ModelScorer, Stop

LONGEST_SOURCE = 250  # sub-words of one pass; `prepare` trains on no longer ones by default
_FEWEST_IN_A_THREAD = 4  # sentences
_FEWEST_IN_A_PROCESS = 64  # sentences; starting one takes as long as a narrow model needs for ten
_WIDTHS = 8  # sources are padded to a multiple of this, so that products have few shapes
_MOST_LOGITS = 1 << 25  # next-token scores of one step: 128 MB in float32, however short the sentences
_MOST_LOGITS_ON_CPU = 1 << 22  # 16 MB; more is not faster

T = TypeVar("T")


@dataclass(frozen=True)
class SearchInput:
    """A source that goes through the model in one pass."""

    ids: list[int]  # without EOS
    prefix: list[int] = field(default_factory=list)  # ids that its output begins with
    phrases: list[Constraint] = field(default_factory=list)  # that its output must contain
    words: list[str] | None = None  # its output is a tree over these, if there is a grammar; None = the output is free


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """What a search uses in addition to models and settings."""

    glossary: Glossary | None = None  # the origin of the sources' phrases
    tree_grammar: TreeGrammar | None = None  # of outputs that are trees; used if decoding.tree_rules holds
    engine: CTranslate2Engine | None = None  # searches instead of the models
    in_processes: bool = False  # search many sentences in forked processes, where the system can
    stop: Stop | None = None  # called before each step of a search by the models; None = never stop


# The work of one thread or process: sentences, all with phrases or all without, and how to search them.
_Share = tuple[list[SearchInput], DecodingConfig, SearchOptions]


class SentenceSearch:
    """Searches the outputs of sentences with one model or an ensemble.

    Args:
        models: with the same vocabulary; the probabilities of several are averaged. One in training mode is copied, so
            that training is undisturbed; one in evaluation mode is moved to the device and its dtype.
        vocab_size: of the target side.
        options: n_best is at most decoding.beam_size unless outputs are sampled.
    """

    def __init__(
        self,
        models: Sequence[TranslationModel],
        vocab_size: int,
        device: Device,
        decoding: DecodingConfig,
        *,
        options: SearchOptions,
        setup: SearchSetup,
    ) -> None:
        self.models = [_for_decoding(model, device) for model in models]
        self.decoding, self.options = decoding, options
        limits = [model.max_positions for model in self.models]
        limits += [] if setup.engine is None else [setup.engine.max_positions]
        self.max_positions = min(limits, default=NO_LIMIT)  # tokens of the longest sequence that can be read or written
        self._vocab_size = vocab_size
        self.device, self._threads = device.device, device.threads
        self._setup = setup
        self._on_cpu = self.device.type == "cpu"
        self._forks = _Forks() if setup.in_processes and _can_fork() else None

    def variant(self, decoding: DecodingConfig | None, options: SearchOptions | None) -> Self:
        other = copy.copy(self)
        other.decoding, other.options = decoding or self.decoding, options or self.options
        return other

    @property
    def longest_prefix(self) -> int:
        """Tokens of the longest forced beginning of an output."""
        return min(LONGEST_PASS, self.max_positions) - 1  # room for EOS

    def max_length(self, source: SearchInput) -> int:
        """The longest output of a source, in tokens with EOS."""
        longest = max(len(source.ids) + self.decoding.max_extra, self.options.min_length) + 1
        longest = min(longest, LONGEST_PASS)
        if self.options.max_length:
            longest = min(longest, self.options.max_length + 1)
        return min(max(longest, len(source.prefix) + phrase_tokens(source.phrases) + 1), self.max_positions)

    def search(self, sources: Sequence[SearchInput]) -> list[list[Hypothesis]]:
        """Search n_best outputs for each source, best first; fewer if no others have a probability above 0.

        No source may be longer than max_positions with EOS. CheckpointError if the model gives nothing but NaN; Stopped
        if told to stop.
        """
        if self._setup.engine is not None:
            return self._search_with(self._setup.engine, sources)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        # The longest first, dealt out in turn, so that all shares take about as long.
        longest_first = sorted(range(len(sources)), key=lambda number: -len(sources[number].ids))
        for with_phrases in (False, True):  # searched in different ways
            numbers = [number for number in longest_first if bool(sources[number].phrases) == with_phrases]
            n_shares = min(self._threads, -(-len(numbers) // _FEWEST_IN_A_THREAD)) if self._on_cpu else 1
            shares = [numbers[first::n_shares] for first in range(n_shares)]
            results = self._search_side_by_side([[sources[number] for number in share] for share in shares if share])
            for number, outputs in zip(chain(*shares), chain(*results), strict=True):
                found[number] = outputs
        return found

    def _search_with(self, engine: CTranslate2Engine, sources: Sequence[SearchInput]) -> list[list[Hypothesis]]:
        ids, prefixes = [source.ids for source in sources], [source.prefix for source in sources]
        results = engine.search(ids, prefixes, list(map(self.max_length, sources)), self.decoding, self.options)

        def hypothesis(tokens: tuple[int, ...], log_prob: float) -> Hypothesis:
            return Hypothesis(tokens, log_prob, log_prob / length_penalty(len(tokens) + 1, self.decoding.alpha))

        return [sorted((hypothesis(*each) for each in found), key=lambda each: -each.score) for found in results]

    def _search_side_by_side(self, shares: Sequence[list[SearchInput]]) -> list[list[list[Hypothesis]]]:
        if not shares:
            return []
        work: list[_Share] = [(share, self.decoding, self.options) for share in shares]
        if self._forks is not None and len(work) > 1 and len(shares[0]) >= _FEWEST_IN_A_PROCESS:
            found = self._forks.search(self, work)
            if found is not None:
                return found
        # Products of few sentences are too small for a second thread.
        threads = 1 if len(shares[0]) <= _FEWEST_IN_A_THREAD else self._threads // len(shares)
        return run_in_threads([partial(self._search_share, share) for share in work], threads)

    def _search_share(self, share: _Share, cancelled: Stop) -> list[list[Hypothesis]]:
        sources, decoding, options = share
        search = self.variant(decoding, options)  # those of this object may be others, in a process forked earlier
        hypotheses = options.n_best if options.sampling else decoding.beam_size
        most_logits = _MOST_LOGITS_ON_CPU if self._on_cpu else _MOST_LOGITS
        at_most = max(most_logits // (hypotheses * self._vocab_size), 1)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for at_once, numbers in bands([len(source.ids) for source in sources], decoding.batch_tokens, at_most):
            results = search._search_band([sources[number] for number in numbers], at_once, cancelled)
            for number, outputs in zip(numbers, results, strict=True):
                found[number] = outputs
        return found

    def _search_band(self, sources: Sequence[SearchInput], at_once: int, cancelled: Stop) -> list[list[Hypothesis]]:
        sampling = self.options.sampling
        groups = [sources[start : start + at_once] for start in range(0, len(sources), at_once)]
        with torch.inference_mode():
            if sources[0].phrases:
                results = self._constrained_search(sources, at_once, cancelled)
            elif sampling is None:
                scorers = (self._scorer(group, cancelled) for group in groups)
                results = beam_search(
                    next(scorers), list(map(self.max_length, sources)), beam_size=self.decoding.beam_size,
                    alpha=self.decoding.alpha, n_best=self.options.n_best, restrictions=self._restrictions(sources),
                    waiting=scorers, at_once=at_once,
                )  # fmt: skip
            else:
                results = []
                for group in groups:
                    scorer, limits = self._scorer(group, cancelled), list(map(self.max_length, group))
                    results += sample(
                        scorer, limits, [source.ids for source in group], sampling, alpha=self.decoding.alpha,
                        n_samples=self.options.n_best, restrictions=self._restrictions(group),
                    )  # fmt: skip
        if not all(results):
            raise CheckpointError(
                "the model's probabilities are NaN",
                "its training diverged: use an earlier checkpoint, or train with a lower learning_rate_scale",
            )
        return results

    def _constrained_search(
        self, sources: Sequence[SearchInput], at_once: int, cancelled: Stop
    ) -> list[list[Hypothesis]]:
        glossary = self._setup.glossary
        assert glossary is not None
        found: list[list[Hypothesis]] = [[] for _ in sources]
        # One beam per group, so that no output depends on the phrases of its neighbours.
        for beam_size, numbers in groups_of_one_beam([s.phrases for s in sources], self.decoding.beam_size, at_once):
            chosen = [sources[number] for number in numbers]
            scorer, limits = self._scorer(chosen, cancelled), list(map(self.max_length, chosen))
            results = constrained_search(
                scorer, limits, [source.phrases for source in chosen], beam_size=beam_size, alpha=self.decoding.alpha,
                n_best=self.options.n_best, restrictions=self._restrictions(chosen), words=glossary.words,
            )  # fmt: skip
            for number, hypotheses in zip(numbers, results, strict=True):
                found[number] = hypotheses
        return found

    def _scorer(self, sources: Sequence[SearchInput], cancelled: Stop) -> ModelScorer:
        stop = self._setup.stop
        return ModelScorer(
            self.models, *self._padded(sources), cancelled if stop is None else lambda: cancelled() or stop()
        )

    def _padded(self, sources: Sequence[SearchInput]) -> tuple[Tensor, Tensor | None]:
        """The sources of a batch and their mask, padded to one of few widths; see batch_size()."""
        rows = [[*source.ids, EOS_ID] for source in sources]
        width = min(-(-max(map(len, rows)) // _WIDTHS) * _WIDTHS, self.max_positions)
        src = torch.tensor([row + [PAD_ID] * (width - len(row)) for row in rows], device=self.device)
        return src, None if min(map(len, rows)) == width else src != PAD_ID

    def _restrictions(self, sources: Sequence[SearchInput]) -> Restrictions:
        longest = list(map(self.max_length, sources))
        grammar = self._setup.tree_grammar if self.decoding.tree_rules else None
        rules = None if grammar is None else TreeRules(grammar, [source.words for source in sources], longest)
        return Restrictions(
            [min(self.options.min_length + 1, length) for length in longest],
            [source.prefix for source in sources],
            self.options.no_repeat_ngram,
            rules,
        )


def bands(lengths: Sequence[int], batch_tokens: int, at_most: int) -> list[tuple[int, list[int]]]:
    """Group sentences by the number that is searched together, the longest first.

    Lengths are tokens without EOS; a batch has `batch_tokens` source tokens, EOS and padding included, and `at_most`
    sentences. Returns batch sizes, each with positions in `lengths`.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    found: list[tuple[int, list[int]]] = []
    while order:
        fitting = max(batch_tokens // (lengths[order[0]] + 1), 1)  # with EOS
        batch = order[: batch_size(min(fitting, at_most), up=False)]
        if not found or len(batch) > found[-1][0]:
            found.append((len(batch), []))
        found[-1][1].extend(batch)
        del order[: len(batch)]
    return found


class _Forks:
    """Copies of this process that search, one per core, forked when there is first enough work for them."""

    pool: Processes[None, _Share, list[list[Hypothesis]]] | None = None

    def search(self, search: SentenceSearch, work: Sequence[_Share]) -> list[list[list[Hypothesis]]] | None:
        """Search each share in a process; None if one failed: a search here can succeed, or say why not."""
        pool = self.pool
        if pool is None:
            names = [f"search process {number}" for number, _ in enumerate(work, start=1)]
            pool = self.pool = Processes(_start_fork, [(search,)] * len(work), names, start="fork")
            weakref.finalize(self, pool.close)
        futures = [pool.submit(share) for share in work]
        found = None
        try:
            if not any(future.exception() for future in futures):  # raising one here would keep this object alive
                found = [future.result() for future in futures]
        finally:
            if found is None:
                self.pool = None
                pool.close()
        return found


def _start_fork(search: SentenceSearch) -> tuple[None, Callable[[_Share], list[list[Hypothesis]]]]:
    torch.set_num_threads(1)  # the fork has none of the threads that share out products
    return None, lambda share: search._search_share(share, lambda: False)


def _can_fork() -> bool:
    """Whether a fork of this process could search: not on a Mac, nor with a GPU or other ranks in use."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    in_use = distributed or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return sys.platform.startswith("linux") and not in_use and not multiprocessing.current_process().daemon


def run_in_threads(tasks: Sequence[Callable[[Stop], T]], threads_each: int) -> list[T]:
    """Run tasks side by side and return their results in order, or raise what the first failing one raised.

    A task raises Stopped when its argument returns True: another one failed, or the user pressed Ctrl-C. Each has
    `threads_each` of torch's threads, at most as many as now.
    """
    stop = threading.Event()
    threads = torch.get_num_threads()
    torch.set_num_threads(min(threads_each, threads))
    try:
        if len(tasks) == 1:
            return [tasks[0](stop.is_set)]
        with ThreadPoolExecutor(len(tasks), "search") as pool:
            futures = [pool.submit(task, stop.is_set) for task in tasks]
            try:
                for future in wait(futures, return_when="FIRST_EXCEPTION").done:
                    future.result()
            finally:
                stop.set()
            return [future.result() for future in futures]
    finally:
        torch.set_num_threads(threads)


def _for_decoding(model: TranslationModel, device: Device) -> TranslationModel:
    if model.training:
        model = copy.deepcopy(model)
    return model.to(device.device, device.dtype).eval().requires_grad_(False)
