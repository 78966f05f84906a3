"""What `aiayn export` does: a checkpoint in another program's format, and a proof that it says the same there."""

import json
import os
import random
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from aiayn_cli import __version__, logs
from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import find_model
from aiayn_cli.device import choose_device
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.export.ctranslate2_format import export
from aiayn_cli.files import whole_folder
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.special_tokens import N_SPECIAL_TOKENS
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.lines import display_name, is_blank, open_text_bytes, read_records
from aiayn_cli.translate.ctranslate2_engine import (
    EXPORTED,
    CTranslate2Engine,
    default_folder,
    exported_pieces,
    fingerprint,
    load_package,
)
from aiayn_cli.translate.forced_decoding import ForcedDecoder
from aiayn_cli.translate.line_translator import LineTranslator
from aiayn_cli.translate.load_models import load_network
from aiayn_cli.translate.search.sentence_search import SearchSetup

CHECK_SENTENCES = 100
# Bounds on the natural log p of a token: rounding alone makes it differ by 1e-5, a matrix in a wrong place by far more.
LARGEST_DIFFERENCE = 0.01  # of any token, in float32
MEAN_DIFFERENCE_INT8 = 0.1  # over all tokens, in 8 bits
LEAST_SAME = 0.95  # share of equal greedy translations, in float32


@dataclass(frozen=True)
class ExportResult:
    """What `aiayn export` prints."""

    folder: Path  # what ctranslate2.Translator reads
    int8: bool  # whether its weights have 8 bits
    check_sentences: int  # translated with both engines, greedily
    same_translations: int
    largest_difference: float  # of the natural log p that the engines give the same tokens
    mean_difference: float

    def __str__(self) -> str:
        return (
            f"{self.folder}: {self.same_translations} of {self.check_sentences} check sentences are translated alike; "
            f"log p of a token differs by {self.mean_difference:.2g} on average, {self.largest_difference:.2g} at most"
        )


def run_export(
    model: Path | None = None, *, int8: bool = False, out: Path | None = None, check: str | None = None
) -> ExportResult:
    """Export a checkpoint for CTranslate2, and translate a check set with both engines.

    Args:
        model: a checkpoint or run; None = the newest run of the working folder.
        out: folder to write; None = one in the checkpoint, where `aiayn translate` looks for it.
        check: text file whose first lines are the check set; None = random sub-words.
    Raises:
        AiaynError: the model cannot be expressed, the engines disagree, or ctranslate2 is not installed.
    """
    load_package()
    checkpoint = load_checkpoint(find_model(model))
    folder = out or default_folder(checkpoint, int8)
    if folder.exists() and not (folder / EXPORTED).is_file():
        raise UsageError(f"{folder} exists and is not an export", "give another --out")
    logs.notice(f"model: {checkpoint.path}, step {checkpoint.step:,}")
    codec = Codec.load(checkpoint.path, checkpoint.text, checkpoint.src_lang, checkpoint.tgt_lang)
    network = load_network(checkpoint)
    if not isinstance(network, Transformer):
        raise AiaynError(f"CTranslate2 has no {checkpoint.model.kind} models", "only Transformers can be exported")
    sources = [ids[: network.max_positions - 1] for ids in _check_sources(check, codec)]  # room for EOS
    try:
        with whole_folder(Path(os.path.realpath(folder))) as temporary:  # a link stays one, and "." has a name
            export(network, checkpoint.model, *exported_pieces(codec), temporary, int8=int8)
            result = _check(checkpoint, network, codec, temporary, int8, sources)
            content = {"format": 1, "aiayn": __version__, "weights_sha256": fingerprint(checkpoint), **vars(result)}
            del content["folder"]
            (temporary / EXPORTED).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise AiaynError(
            f"cannot write {folder}: {error.strerror or error}",
            "give another --out, or free some space there; an export that was there before is whole",
        ) from error
    return replace(result, folder=folder)


def _check_sources(check: str | None, codec: Codec) -> list[list[int]]:
    if check is None:
        draw = random.Random(1)
        ids = range(N_SPECIAL_TOKENS, codec.src_size)
        return [draw.choices(ids, k=draw.randint(1, 40)) for _ in range(CHECK_SENTENCES)]
    with open_text_bytes(check) as file:
        written = (line for line in read_records(file, display_name(check)) if not is_blank(line))
        lines = list(islice(written, CHECK_SENTENCES))
    if not lines:
        raise AiaynError(f"{check} has no text", "give a file with some lines of the source language")
    return [ids[:100] for ids in codec.encode(lines)]


def _check(
    checkpoint: Checkpoint, network: Transformer, codec: Codec, folder: Path, int8: bool, sources: list[list[int]]
) -> ExportResult:
    device = choose_device("cpu", "fp32")
    greedy = replace(checkpoint.decoding, beam_size=1)
    translator = LineTranslator([network], codec, device, greedy)
    ours = translator.search_ids(sources)
    engine = CTranslate2Engine(folder, *exported_pieces(codec), int8=int8, workers=device.threads)
    theirs = LineTranslator([network], codec, device, greedy, setup=SearchSetup(engine=engine)).search_ids(sources)
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    pairs = list(zip(sources, ours, strict=True))
    differences = [
        abs(mine - other)
        for forced, log_probs in zip(ForcedDecoder(translator).force(pairs), engine.token_log_probs(pairs), strict=True)
        for mine, other in zip(forced.token_log_probs, log_probs, strict=True)
    ]
    largest, mean = max(differences), sum(differences) / len(differences)
    result = ExportResult(folder, int8, len(sources), same, largest, mean)
    agree = largest <= LARGEST_DIFFERENCE and same >= LEAST_SAME * len(sources)
    if not (mean <= MEAN_DIFFERENCE_INT8 if int8 else agree):
        raise AiaynError(
            f"CTranslate2 does not say the same as torch: {str(result).partition(': ')[2]}",
            "nothing was written; translate with --engine torch" + (", or export without --int8" if int8 else ""),
        )
    return result
