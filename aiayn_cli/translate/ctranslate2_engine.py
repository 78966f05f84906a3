"""Beam search by CTranslate2, on what ctranslate2_export.py wrote."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiayn_cli.errors import AiaynError, CheckpointError
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.translate.ctranslate2_export import SINUSOIDAL_POSITIONS
from aiayn_cli.translate.ctranslate2_package import load_package

_SENTENCES_TOGETHER = 64  # in one batch of a worker: the fastest of those tried
_MOST_TOKENS = 4_096  # in one batch, so that long sentences do not fill the memory

Found = list[tuple[tuple[int, ...], float]]  # outputs of one sentence without special tokens, and their log p


class CTranslate2Engine:
    """An exported model, loaded.

    Args:
        folder: what export() wrote.
        src_pieces, tgt_pieces: what each id stands for, as it was exported.
        device: "cpu", "cuda" or "cuda:N".
        int8: multiply in 8 bits, whatever the weights are stored in.
        workers: batches translated side by side on a CPU, each with one thread.
    Raises:
        CheckpointError: there is no exported model, or it is damaged.
        AiaynError: ctranslate2 is not installed.
    """

    def __init__(
        self,
        folder: Path,
        src_pieces: Sequence[str],
        tgt_pieces: Sequence[str],
        *,
        device: str = "cpu",
        int8: bool = False,
        workers: int = 1,
    ) -> None:
        ctranslate2 = load_package()
        name, _, index = device.partition(":")
        threads = {"inter_threads": workers, "intra_threads": 1} if name == "cpu" else {}
        try:
            self._translator: Any = ctranslate2.Translator(
                str(folder), device=name, device_index=int(index or 0),
                compute_type="int8" if int8 else "float32", **threads,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"{folder} cannot be loaded: {error}", _hint("export the model again")) from error
        self._src_pieces, self._tgt_pieces = list(src_pieces), list(tgt_pieces)
        self._ids = {piece: number for number, piece in enumerate(tgt_pieces)}

    @property
    def max_positions(self) -> int:
        """The longest sequence that is sure to find positions in what was exported."""
        return SINUSOIDAL_POSITIONS  # learned positions are fewer, and the model itself knows how many

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        *,
        beam_size: int,
        alpha: float,
        n_best: int,
        min_length: int,
        no_repeat_ngram: int,
    ) -> list[Found]:
        """Find the best outputs for each source, best first.

        Their log p is CTranslate2's: without EOS where an output is cut at its longest length, and shared out among
        the tokens that may come, so that it is a little higher than the model's own.

        Args:
            sources: ids without EOS.
            prefixes: how the outputs of each begin.
            max_lengths: the longest output of each, in tokens with EOS, at least 1.
            beam_size: hypotheses followed for each sentence.
            alpha: exponent of CTranslate2's own length penalty, n ** alpha.
            n_best: outputs for each sentence.
            min_length: tokens without EOS that an output has at least.
            no_repeat_ngram: length of the sequences of tokens that no output holds twice; 0 = no ban.
        Raises:
            AiaynError: CTranslate2 refuses, such as for what its environment variables say.
            MemoryError: there is none left.
        """

        def search(chosen: Sequence[int], max_length: int) -> list[Found]:
            given = [[self._tgt_pieces[i] for i in prefixes[number]] for number in chosen]
            longest = max(len(sources[number]) for number in chosen) + 1
            share = -(-len(chosen) // self._translator.num_translators)  # or some workers would have nothing to do
            with _refusal_named():
                results = self._translator.translate_batch(
                    [[self._src_pieces[i] for i in sources[number]] for number in chosen],
                    target_prefix=given if any(given) else None,
                    beam_size=beam_size,
                    num_hypotheses=n_best,
                    length_penalty=alpha,
                    min_decoding_length=min(min_length, max_length - 1),
                    max_decoding_length=max(max_length - 1, 1),  # what it cuts has no EOS
                    max_input_length=0,
                    no_repeat_ngram_size=no_repeat_ngram,
                    disable_unk=True,
                    suppress_sequences=[[self._tgt_pieces[PAD_ID]], [self._tgt_pieces[BOS_ID]]],
                    return_end_token=True,
                    return_scores=True,
                    max_batch_size=max(min(_SENTENCES_TOGETHER, _MOST_TOKENS // longest, share), 1),
                    batch_type="examples",
                )
            return [self._found(result, alpha) for result in results]

        if not sources:
            return []
        found = search(range(len(sources)), max(max_lengths))
        # CTranslate2 knows one longest length for all: what is too long for its own is searched once more.
        too_long = defaultdict(list)
        for number, (outputs, length) in enumerate(zip(found, max_lengths, strict=True)):
            if length == 1:  # CTranslate2 writes at least one token
                found[number] = [((), log_prob) for _, log_prob in outputs[:1]]
            elif any(len(tokens) >= length for tokens, _ in outputs):
                too_long[length].append(number)
        for length, numbers in too_long.items():
            for number, outputs in zip(numbers, search(numbers, length), strict=True):
                found[number] = outputs
        return found

    def token_log_probs(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[list[float]]:
        """Natural log p of each token of given outputs, and of EOS at the end; ids without special tokens.

        Each pair is scored by itself: its numbers would else depend, in the last digits, on what is beside it.

        Raises:
            AiaynError, MemoryError: as in search().
        """
        if not pairs:
            return []
        with _refusal_named():
            results = self._translator.score_batch(
                [[self._src_pieces[i] for i in src] for src, _ in pairs],
                [[self._tgt_pieces[i] for i in tgt] for _, tgt in pairs],
                max_batch_size=1,
                batch_type="examples",
                max_input_length=0,
            )
        return [list(result.log_probs) for result in results]

    def _found(self, result: Any, alpha: float) -> Found:
        found = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = tuple(self._ids[piece] for piece in pieces)
            log_prob = score * max(len(tokens), 1) ** alpha  # its score is log p / n ** alpha, EOS counted
            found.append((tokens[:-1] if tokens[-1:] == (EOS_ID,) else tokens, log_prob))
        return found


@contextmanager
def _refusal_named() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if "out of memory" in str(error):  # of a GPU
            raise MemoryError(str(error)) from error
        raise AiaynError(f"CTranslate2 cannot go on: {error}", _hint("translate with --engine torch")) from error


def _hint(otherwise: str) -> str:
    """What a user can do, told of the environment variables that CTranslate2 reads."""
    ours = "CT2_USE_MKL"  # set by load_package()
    names = sorted(name for name in os.environ if name.startswith("CT2_") and name != ours)
    return f"{otherwise}; or look at {', '.join(names)} in the environment" if names else otherwise
