"""Beam search by CTranslate2, an optional package whose C++ engine runs what `aiayn export` wrote."""

import importlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiayn_cli.checkpoint.checkpoint import Checkpoint
from aiayn_cli.device import Device, adds_8_bits_in_32
from aiayn_cli.errors import AiaynError, CheckpointError
from aiayn_cli.files import hash_of
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.options import SearchOptions

EXPORTED = "exported.json"  # in the exported folder, next to the format's own files
SINUSOIDAL_POSITIONS = 2_048  # rows written of a table that has no end of its own
_SENTENCES_TOGETHER = 64  # in one batch of a worker: the fastest of those tried
_MOST_TOKENS = 4_096  # in one batch, so that long sentences do not fill the memory

Found = list[tuple[tuple[int, ...], float]]  # outputs of one sentence without special tokens, and their log p


def multiplies_slowly() -> bool:
    """True where load_package() chose exact products in 8 bits instead of fast ones, and the user chose nothing."""
    return not adds_8_bits_in_32() and os.environ.get("CT2_USE_MKL") == "1"


def load_package(module: str = "ctranslate2") -> Any:
    """Import the package, or a module of it; AiaynError if it is not installed.

    On AMD processors it multiplies by oneDNN, whose sums of 8-bit products overflow on older ones: of 100 outputs 41
    instead of 11 differed from float32's. There it is told to take Intel's MKL, which comes with it and is exact.
    """
    if not adds_8_bits_in_32():
        os.environ.setdefault("CT2_USE_MKL", "1")  # read once, when it is imported
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise AiaynError(
            f"this needs the package ctranslate2, but importing it fails: {error}",
            "pip install '.[ctranslate2]' in a checkout",
        ) from error


def check_expressible(config: ModelConfig) -> None:
    """Refuse a model that CTranslate2 does not support, by an AiaynError that says why."""
    hint = "translate with --engine torch instead"
    if config.kind != "transformer":
        raise AiaynError(f"CTranslate2 does not support {config.kind} models", hint)
    if config.attention_window:
        raise AiaynError("CTranslate2 does not support local attention (attention_window)", hint)
    width = config.d_model / config.n_heads
    if (config.d_k, config.d_v) != (width, width):
        given = f"d_k is {config.d_k} and d_v {config.d_v}"
        raise AiaynError(f"{given}, but CTranslate2 supports only d_model / n_heads = {width:g}", hint)


class CTranslate2Engine:
    """A model that `aiayn export` wrote into a folder; AiaynError if it cannot be loaded.

    Args:
        src_pieces, tgt_pieces: what each id stands for, as exported.
        device: "cpu", "cuda" or "cuda:N".
        int8: multiply in 8 bits, whatever the weights are stored in.
        workers: batches translated in parallel on a CPU, each with one thread.
    """

    max_positions = SINUSOIDAL_POSITIONS  # learned positions are fewer, and the model itself knows how many

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

    def search(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        decoding: DecodingConfig,
        options: SearchOptions,
    ) -> list[Found]:
        """Find n_best outputs for each source, best first; ids are without special tokens.

        Log p is CTranslate2's: without EOS if an output is cut at its longest length, and normalised over the tokens
        that are allowed, so that it is a little higher than the model's own. Its length penalty is n ** alpha.

        The longest output of each source counts EOS and is at least 1; max_length and sampling of the options do not
        count. AiaynError if CTranslate2 fails, for example because of its environment variables; MemoryError, also of a
        GPU.
        """

        def search(chosen: Sequence[int], max_length: int) -> list[Found]:
            given = [[self._tgt_pieces[i] for i in prefixes[number]] for number in chosen]
            longest = max(len(sources[number]) for number in chosen) + 1
            share = -(-len(chosen) // self._translator.num_translators)  # or some workers would have nothing to do
            with _refusal_named():
                results = self._translator.translate_batch(
                    [[self._src_pieces[i] for i in sources[number]] for number in chosen],
                    target_prefix=given if any(given) else None,
                    beam_size=decoding.beam_size,
                    num_hypotheses=options.n_best,
                    length_penalty=decoding.alpha,
                    min_decoding_length=min(options.min_length, max_length - 1),
                    max_decoding_length=max(max_length - 1, 1),  # what it cuts has no EOS
                    max_input_length=0,
                    no_repeat_ngram_size=options.no_repeat_ngram,
                    disable_unk=True,
                    suppress_sequences=[[self._tgt_pieces[PAD_ID]], [self._tgt_pieces[BOS_ID]]],
                    return_end_token=True,
                    return_scores=True,
                    max_batch_size=max(min(_SENTENCES_TOGETHER, _MOST_TOKENS // longest, share), 1),
                    batch_type="examples",
                )
            return [self._outputs(result, decoding.alpha) for result in results]

        if not sources:
            return []
        found = search(range(len(sources)), max(max_lengths))
        # CTranslate2 takes one longest length for all: outputs longer than their own are searched again.
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
        """Natural log p of each token of given outputs, and of EOS at the end; raises as search()."""
        with _refusal_named():
            results = self._translator.score_batch(
                [[self._src_pieces[i] for i in src] for src, _ in pairs],
                [[self._tgt_pieces[i] for i in tgt] for _, tgt in pairs],
                max_batch_size=_SENTENCES_TOGETHER,
                batch_type="examples",
                max_input_length=0,
            )
        return [list(result.log_probs) for result in results]

    def _outputs(self, result: Any, alpha: float) -> Found:
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
        raise AiaynError(f"CTranslate2 failed: {error}", _hint("translate with --engine torch")) from error


def _hint(otherwise: str) -> str:
    """A hint that also names the environment variables that CTranslate2 reads, if any are set."""
    ours = "CT2_USE_MKL"  # set by load_package()
    names = sorted(name for name in os.environ if name.startswith("CT2_") and name != ours)
    return f"{otherwise}; or look at {', '.join(names)} in the environment" if names else otherwise


def default_folder(checkpoint: Checkpoint, int8: bool) -> Path:
    return checkpoint.path / ("ctranslate2-int8" if int8 else "ctranslate2")


def exported_pieces(codec: Codec) -> tuple[list[str], list[str]]:
    """What each id of the source and the target stands for."""
    return codec.pieces(range(codec.src_size)), codec.tgt_pieces(range(codec.tgt_size))


def fingerprint(checkpoint: Checkpoint) -> str:
    """SHA-256 of the weights, so that an export of others is noticed."""
    return hash_of(checkpoint.path / "weights.safetensors")


def load_exported(checkpoint: Checkpoint, codec: Codec, device: Device, *, int8: bool) -> tuple[CTranslate2Engine, str]:
    """Load what `aiayn export` made of a checkpoint, with a line that says what was chosen.

    With int8, float32 weights are rounded while they are loaded. AiaynError for a missing or outdated export, a model
    that cannot be exported, and a missing package.
    """
    check_expressible(checkpoint.model)
    folders = [default_folder(checkpoint, kind) for kind in ((True, False) if int8 else (False,))]
    folder = next((folder for folder in folders if (folder / EXPORTED).is_file()), None)
    command = f"`aiayn export {checkpoint.path}{' --int8' if int8 else ''}`"
    if folder is None:
        raise CheckpointError(f"{checkpoint.path} has not been exported for CTranslate2", f"run {command}")
    try:
        known = json.loads((folder / EXPORTED).read_bytes())["weights_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / EXPORTED} cannot be read: {error}", f"run {command} again") from error
    if known != fingerprint(checkpoint):
        raise CheckpointError(f"{folder} was exported from other weights", f"run {command} again")
    package, pieces = load_package(), exported_pieces(codec)
    engine = CTranslate2Engine(folder, *pieces, device=str(device.device), int8=int8, workers=device.threads)
    precision = "weights in 8 bits" if int8 else "fp32"
    if int8 and device.device.type == "cpu" and multiplies_slowly():
        precision += " (slow on this processor, where the fast 8-bit sums overflow: --engine torch may be faster)"
    return engine, f"engine: CTranslate2 {package.__version__}, {device.device}, {precision}; {folder}"
