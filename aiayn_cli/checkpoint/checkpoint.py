"""The checkpoint directory: one file per reader, written completely or not at all, nothing ever unpickled.

    step-00010000/
      model.json            shape, step, languages, hashes of what it was made from; readable without torch
      weights.safetensors   float32, each shared matrix once
      vocab.model           the vocabulary, so that `translate` needs one path
      vocab.tgt.model       only where the target side has one of its own
      training/             only if training can resume from it: state.json, moments.safetensors

A directory is written under a temporary name, flushed to the disk, read back, and renamed.
"""

import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aiayn_cli import __version__
from aiayn_cli.checkpoint import tensor_files
from aiayn_cli.checkpoint.tensor_files import finite, from_json, read_json, read_tensors, write_json
from aiayn_cli.errors import CheckpointError, ConfigError
from aiayn_cli.files import check_free_space, hash_of, whole_folder
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig, TextConfig

FORMAT = 1
_SPARE_BYTES = 16 << 20  # that must stay free on the disk
_WEIGHTS, _VOCAB, _TGT_VOCAB = "weights.safetensors", "vocab.model", "vocab.tgt.model"
_STATE, _MOMENTS = "training/state.json", "training/moments.safetensors"
EMA_PREFIX = "ema."  # begins the names of a moving average's tensors among the moments


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What model.json says."""

    path: Path
    step: int  # updates of training
    model: ModelConfig  # shape of the network
    decoding: DecodingConfig  # how the recipe wants it to translate
    vocab_size: int  # rows of its embedding matrices
    vocab_sha256: str  # of its vocab.model, or of the hashes of two vocabularies
    data_sha256: str  # of the prepared data's manifest
    src_lang: str  # language codes, such as "en" and "de"
    tgt_lang: str
    run_id: str  # what all checkpoints of one run share
    text: TextConfig = field(default_factory=TextConfig)  # done before splitting into sub-words, and undone after
    max_length: int = 250  # sub-words of the longest side in training (DataConfig.max_length)
    # share of the training pairs whose source has several sentences; None if that is unknown
    several_sentences: float | None = None
    parents: tuple[str, ...] = ()  # names of the checkpoints that it averages; empty for a trained one
    # Outputs with a lower mean natural log p per token, end token included, are flagged; 99 % of the validation set's
    # have a higher one. None if that is unknown.
    low_confidence: float | None = None
    # SHA-256 of every other file of the directory, by its name inside; filled in as it is saved
    files: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def vocab_path(self) -> Path:
        return self.path / _VOCAB

    def weights(self, *, checked: bool = True) -> dict[str, Tensor]:
        """Float32 weights by parameter name, memory-mapped; `checked` reads all: finite, and as they were written."""
        path = self.path / _WEIGHTS
        return finite(path, read_tensors(path, self.files.get(_WEIGHTS))) if checked else read_tensors(path)

    def moving_average(self) -> dict[str, Tensor]:
        """The float32 moving average of the weights by parameter name; empty if the checkpoint has none."""
        path = self.path / _MOMENTS
        if not path.exists():  # not resumable, or removed to save space
            return {}
        found = finite(path, read_tensors(path, self.files.get(_MOMENTS), EMA_PREFIX))
        return {name.removeprefix(EMA_PREFIX): tensor for name, tensor in found.items()}

    def load_into(self, model: nn.Module, *, checked: bool = True) -> None:
        """Give the weights to a model of the same shape: see put_into(), and weights()."""
        put_into(model, self.weights_for(dict(model.named_parameters()), checked=checked))

    def weights_for(self, parameters: Mapping[str, Tensor], *, checked: bool = True) -> dict[str, Tensor]:
        """The weights, which must have the names and shapes of these parameters."""
        weights, problem = self.weights(checked=checked), ""
        if odd := sorted(weights.keys() ^ parameters.keys()):
            problem = f"weights and model differ in {odd[0]}"
        for name in weights if not odd else ():
            shape, expected = list(weights[name].shape), list(parameters[name].shape)
            if shape != expected:
                problem = f"{name} has shape {shape}, expected {expected}"
            elif weights[name].dtype != torch.float32:
                problem = f"{name} is {str(weights[name].dtype).removeprefix('torch.')}, not float32"
        if problem:
            raise CheckpointError(f"{self.path}: {problem}", "the checkpoint is damaged")
        return weights


def put_into(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a model of the same shape; on torch's device "meta" they replace its parameters."""
    with torch.no_grad():
        for name, parameter in dict(model.named_parameters()).items():
            if parameter.is_meta:
                owner, _, attribute = name.rpartition(".")
                itself = nn.Parameter(weights[name], requires_grad=parameter.requires_grad)
                setattr(model.get_submodule(owner), attribute, itself)
            else:
                parameter.copy_(weights[name])


@dataclass(frozen=True)
class TrainingSnapshot:
    """What resuming exactly needs in addition to the weights."""

    state: Mapping[str, Any]  # JSON values: position in the data, best score so far and so on
    moments: Mapping[str, Tensor]  # the optimizer's


def save_checkpoint(
    checkpoint: Checkpoint, weights: Mapping[str, Tensor], vocab_file: Path, training: TrainingSnapshot | None = None
) -> Checkpoint:
    """Write checkpoint.path, with copies of vocab_file and of the vocab.tgt.model next to it, if any.

    Raises CheckpointError if it cannot be written; a directory of the same name is then still there.
    """
    path = checkpoint.path
    tensors = {_WEIGHTS: weights} if training is None else {_WEIGHTS: weights, _MOMENTS: training.moments}
    vocabs = {_VOCAB: vocab_file, _TGT_VOCAB: vocab_file.with_name(_TGT_VOCAB)}
    try:
        copied = {name: file for name, file in vocabs.items() if name == _VOCAB or file.exists()}
        needed = sum(tensor_files.bytes_of(some.values()) for some in tensors.values())
        with whole_folder(path) as folder:
            check_free_space(folder, _SPARE_BYTES + needed + sum(file.stat().st_size for file in copied.values()))
            for name, file in copied.items():
                shutil.copyfile(file, folder / name)
            if training is not None:
                (folder / _STATE).parent.mkdir()
                write_json(folder / _STATE, training.state)
            for name, some in tensors.items():
                tensor_files.write_tensors(folder / name, some)
            written = [(file.relative_to(folder).as_posix(), file) for file in folder.rglob("*") if file.is_file()]
            checkpoint = replace(checkpoint, files={name: hash_of(file) for name, file in sorted(written)})
            content = asdict(checkpoint)
            del content["path"]
            write_json(folder / "model.json", {"format": FORMAT, "aiayn": __version__, **content})
            for name, some in tensors.items():
                tensor_files.check_written(folder / name, some)
    except OSError as error:
        problem = f"cannot write the checkpoint {path}: {error.strerror or error}"
        raise CheckpointError(problem, "free some space, or give another --out; earlier ones are intact") from error
    return checkpoint


def load_checkpoint(path: Path) -> Checkpoint:
    """Read model.json of a checkpoint directory; CheckpointError if it is missing, damaged, or of a newer format."""
    path = path.parent / path.readlink() if path.is_symlink() else path  # best may move on meanwhile
    content = read_json(path / "model.json", "a checkpoint")
    try:
        if content["format"] > FORMAT:
            problem = f"{path}: written by aiayn {content['aiayn']} in format {content['format']}"
            raise CheckpointError(problem, "update aiayn")
        named = {name: content[name] for name in Checkpoint.__dataclass_fields__ if name in content}
        named |= {"path": path, "parents": tuple(content["parents"]), "text": content.get("text", {})}
        for name, kind in (("model", ModelConfig), ("decoding", DecodingConfig), ("text", TextConfig)):
            named[name] = from_json(kind, named[name])
        checkpoint = from_json(Checkpoint, named)
        if not math.isfinite(checkpoint.low_confidence or 0.0):
            raise TypeError(f"low_confidence is {checkpoint.low_confidence}")
        return checkpoint
    except (KeyError, TypeError, ConfigError) as error:
        problem = f"{path / 'model.json'} does not describe a checkpoint: {error}"
        raise CheckpointError(problem, "train or average again") from error


def load_training(path: Path) -> TrainingSnapshot:
    """Read what resuming exactly needs; a CheckpointError if the checkpoint was not saved for that."""
    hashes = load_checkpoint(path).files
    state = read_json(path / _STATE, "a checkpoint that training can resume from", hashes.get(_STATE))
    moments = finite(path / _MOMENTS, read_tensors(path / _MOMENTS, hashes.get(_MOMENTS)))
    return TrainingSnapshot(state, moments)
