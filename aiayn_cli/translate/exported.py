"""Where an exported model lies beside its checkpoint, and how it is found again."""

import hashlib
import json
from pathlib import Path

from aiayn_cli.checkpoint.format import Checkpoint
from aiayn_cli.device import Device
from aiayn_cli.errors import CheckpointError
from aiayn_cli.text.codec import Codec
from aiayn_cli.translate.ctranslate2_engine import CTranslate2Engine
from aiayn_cli.translate.ctranslate2_export import check_expressible
from aiayn_cli.translate.ctranslate2_package import load_package, multiplies_slowly

EXPORTED = "exported.json"  # in the folder, beside the format's own files


def default_folder(checkpoint: Checkpoint, int8: bool) -> Path:
    """Where a checkpoint is exported to, and looked for."""
    return checkpoint.path / ("ctranslate2-int8" if int8 else "ctranslate2")


def source_pieces(codec: Codec) -> list[str]:
    """What each source id stands for."""
    return codec.pieces(range(codec.src_size))


def target_pieces(codec: Codec) -> list[str]:
    """What each target id stands for."""
    return codec.tgt_pieces(range(codec.tgt_size))


def fingerprint(checkpoint: Checkpoint) -> str:
    """SHA-256 of the weights, so that an export of others is noticed."""
    with (checkpoint.path / "weights.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_exported(checkpoint: Checkpoint, codec: Codec, device: Device, *, int8: bool) -> tuple[CTranslate2Engine, str]:
    """Load what `aiayn export` made of a checkpoint, and say in one line what was chosen.

    Args:
        checkpoint: the one that was exported.
        codec: its vocabulary.
        device: where to run.
        int8: in 8 bits; weights that were exported in float32 are then rounded while they are loaded.
    Raises:
        AiaynError: there is no export, or can be none, it is of other weights, or ctranslate2 is not installed.
    """
    package = load_package()
    check_expressible(checkpoint.model)
    folders = [default_folder(checkpoint, kind) for kind in ((True, False) if int8 else (False,))]
    folder = next((folder for folder in folders if (folder / EXPORTED).is_file()), None)
    command = f"`aiayn export {checkpoint.path}{' --int8' if int8 else ''}`"
    if folder is None:
        raise CheckpointError(f"{checkpoint.path} has not been exported for CTranslate2", f"{command} does that")
    try:
        known = json.loads((folder / EXPORTED).read_bytes())["weights_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / EXPORTED} cannot be read: {error}", f"{command} writes it anew") from error
    if known != fingerprint(checkpoint):
        raise CheckpointError(f"{folder} was exported from other weights", f"{command} renews it")
    engine = CTranslate2Engine(
        folder, source_pieces(codec), target_pieces(codec),
        device=str(device.device), int8=int8, workers=device.threads,
    )  # fmt: skip
    precision = "weights in 8 bits" if int8 else "fp32"
    if int8 and device.device.type == "cpu" and multiplies_slowly():
        precision += " (slow on this processor, where fast sums of them overflow: --engine torch may be faster)"
    return engine, f"engine: CTranslate2 {package.__version__}, {device.device}, {precision}; {folder}"
