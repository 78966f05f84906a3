"""Lines in, translations out: sub-words, batches by length, beam search, text again."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from aiayn_cli import logs
from aiayn_cli.config import DecodingConfig
from aiayn_cli.data.text import is_blank
from aiayn_cli.decoding.beam_search import Hypothesis, batch_size, beam_search, length_penalty
from aiayn_cli.decoding.scorer import ModelScorer
from aiayn_cli.decoding.split import split_points
from aiayn_cli.device import Device
from aiayn_cli.errors import CheckpointError
from aiayn_cli.model.translation_model import NO_LIMIT, TranslationModel
from aiayn_cli.special_tokens import EOS_ID, PAD_ID

LONGEST_SOURCE = 250  # sub-words of one pass; `prepare` trains on no longer ones unless told to
_MOST_LOGITS = 1 << 25  # next-token scores of one step: 128 MB in float32, however short the sentences are
_NOTICES = 5  # long lines named one by one; the rest are only counted
_WITHOUT_BLANKS = ("zh", "ja", "th", "lo", "km", "my")  # target languages that put no blank between sentences


@dataclass(frozen=True)
class Translation:
    """One of the outputs for a line.

    Attributes:
        text: the output; "" for a blank line.
        log_prob: natural log of its probability, the end token included; summed over the parts of a split line.
        score: log_prob / length penalty, what the outputs are ranked by.
    """

    text: str
    log_prob: float
    score: float


class Vocabulary(Protocol):
    """What a Translator needs of a Vocab or a Codec, which describe it."""

    size: int

    def encode(self, records: Sequence[str], /) -> list[list[int]]:
        """Source lines to ids."""

    def decode(self, sequences: Sequence[Sequence[int]], /) -> list[str]:
        """Ids to target lines."""

    def pieces(self, ids: Sequence[int], /) -> list[str]:
        """Show the sub-words of source ids."""


class Translator:
    """Translates lines with one model or an ensemble.

    A model in training mode is copied, so that training goes on undisturbed; one in evaluation mode is moved to the
    device and its dtype as it is.

    Args:
        models: trained with the same vocabulary; the probabilities of several are averaged.
        vocab: theirs.
        device: where and in which precision they run.
        decoding: beam, length penalty, longest output, batch size.
        n_best: outputs for each line, at most decoding.beam_size.
        tgt_lang: target language, which says how the parts of a long line are joined.

    Attributes:
        split_lines: how many lines were too long for one pass so far.
    """

    def __init__(
        self,
        models: Sequence[TranslationModel],
        vocab: Vocabulary,
        device: Device,
        decoding: DecodingConfig,
        *,
        n_best: int = 1,
        tgt_lang: str = "",
    ) -> None:
        self._models = [_for_decoding(model, device) for model in models]
        self._vocab = vocab
        self._device = device.device
        self._decoding = decoding
        self._n_best = n_best
        self._joiner = "" if tgt_lang.lower().startswith(_WITHOUT_BLANKS) else " "
        self._max_positions = min((model.max_positions for model in self._models), default=NO_LIMIT)
        self.split_lines = 0

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best output for each line, in order."""
        return [outputs[0].text for outputs in self.translate_n_best(lines)]

    def translate_n_best(self, lines: Sequence[str], first_line: int = 1) -> list[list[Translation]]:
        """The n_best best outputs for each line, in order.

        A blank line (in Unicode's sense) has n_best blank outputs, and the model never sees it. A line of more than
        LONGEST_SOURCE sub-words is cut at the ends of its sentences; its k-th output joins the k-th of each part.
        Where the model gives fewer outputs a probability above 0, blank ones with a score of -inf fill up.

        Args:
            lines: without line ends.
            first_line: number of the first one, for notices.

        Raises:
            CheckpointError: the model gives no probabilities but NaN.
        """
        wanted = [number for number, line in enumerate(lines) if not is_blank(line)]
        sources: list[list[int]] = []
        owners: list[int] = []  # the line that each source is (a part) of
        for number, ids in zip(wanted, self._vocab.encode([lines[number] for number in wanted]), strict=True):
            parts = self._parts(ids, first_line + number)
            sources += parts
            owners += [number] * len(parts)
        results: list[list[list[Hypothesis]]] = [[] for _ in lines]
        for number, hypotheses in zip(owners, self._search(sources), strict=True):
            results[number].append(hypotheses)
        return [self._outputs(parts) for parts in results]

    def _parts(self, ids: list[int], line: int) -> list[list[int]]:
        limit = min(LONGEST_SOURCE, self._max_positions - 1)  # room for EOS
        if len(ids) <= limit:
            return [ids]
        ends = split_points(self._vocab.pieces(ids), limit)
        self.split_lines += 1
        if self.split_lines <= _NOTICES:
            logs.notice(
                f"line {line:,} has {len(ids):,} sub-words, more than {limit}: translated in {len(ends):,} parts"
            )
        return [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def _search(self, sources: Sequence[list[int]]) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sources]
        with torch.inference_mode():
            for batch in self._batches([len(ids) for ids in sources]):
                results = self._search_batch([[*sources[number], EOS_ID] for number in batch])
                for number, hypotheses in zip(batch, results, strict=True):
                    found[number] = hypotheses
        return found

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Group sentences of similar length, the longest first, by the padded tokens of their sources."""
        most_sentences = max(_MOST_LOGITS // (self._decoding.beam_size * self._vocab.size), 1)
        order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
        while order:
            fitting = max(self._decoding.batch_tokens // (lengths[order[0]] + 1), 1)  # with EOS
            size = batch_size(min(fitting, most_sentences), up=False)
            yield order[:size]
            del order[:size]

    def _search_batch(self, sources: Sequence[list[int]]) -> list[list[Hypothesis]]:
        width = max(map(len, sources))
        src = torch.tensor([ids + [PAD_ID] * (width - len(ids)) for ids in sources], device=self._device)
        src_mask = None if min(map(len, sources)) == width else src != PAD_ID
        results = beam_search(
            ModelScorer(self._models, src, src_mask),
            [min(len(ids) + self._decoding.max_extra, self._max_positions) for ids in sources],
            beam_size=self._decoding.beam_size,
            alpha=self._decoding.alpha,
            n_best=self._n_best,
        )
        if not all(results):
            raise CheckpointError(
                "the model gives no probabilities but NaN",
                "its training diverged: take an earlier checkpoint, or train with a lower learning_rate_scale",
            )
        return results

    def _outputs(self, parts: list[list[Hypothesis]]) -> list[Translation]:
        if not parts:
            return [Translation("", 0.0, 0.0)] * self._n_best
        count = min(map(len, parts))
        outputs = []
        for rank in range(count):
            hypotheses = [part[rank] for part in parts]
            texts = self._vocab.decode([hypothesis.tokens for hypothesis in hypotheses])
            log_prob = sum(hypothesis.log_prob for hypothesis in hypotheses)
            length = sum(len(hypothesis.tokens) for hypothesis in hypotheses) + 1
            score = hypotheses[0].score if len(parts) == 1 else log_prob / length_penalty(length, self._decoding.alpha)
            outputs.append(Translation(self._joiner.join(filter(None, texts)), log_prob, score))
        return outputs + [Translation("", -math.inf, -math.inf)] * (self._n_best - count)


def _for_decoding(model: TranslationModel, device: Device) -> TranslationModel:
    if model.training:
        model = copy.deepcopy(model)
    return model.to(device.device, device.dtype).eval().requires_grad_(False)
