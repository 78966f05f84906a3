"""The checkpoint directory: one file per reader, written whole or not at all, nothing ever unpickled.

    step-00010000/
      model.json            shape, step, languages, hashes of what it was made from; readable without torch
      weights.safetensors   float32, each shared matrix once
      vocab.model           the vocabulary, so that `translate` needs one path
      vocab.tgt.model       only where the target side has one of its own
      training/             only where training can go on: state.json, moments.safetensors

A directory is written under a temporary name, flushed to the disk, read back, and renamed.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from aiayn_cli import __version__, logs
from aiayn_cli.config import DecodingConfig, ModelConfig, TextConfig
from aiayn_cli.errors import CheckpointError, ConfigError

FORMAT = 1
_TGT_VOCAB = "vocab.tgt.model"
UNFINISHED = ".unfinished-"  # begins the name of what is not whole yet
_SPARE_BYTES = 16 << 20  # disk that must stay free beside a new checkpoint


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What model.json says.

    Attributes:
        path: the directory.
        step: updates of training.
        model: shape of the network.
        decoding: how the recipe wants it to translate.
        vocab_size: rows of its embedding matrices.
        vocab_sha256: of the vocab.model that it was trained with, or of the hashes of two.
        data_sha256: of the prepared data's manifest.
        src_lang, tgt_lang: language codes, such as "en" and "de".
        run_id: what all checkpoints of one run share.
        text: what is done to text before it is split into sub-words, and undone after.
        parents: names of the checkpoints that it is an average of; empty for a trained one.
    """

    path: Path
    step: int
    model: ModelConfig
    decoding: DecodingConfig
    vocab_size: int
    vocab_sha256: str
    data_sha256: str
    src_lang: str
    tgt_lang: str
    run_id: str
    text: TextConfig = field(default_factory=TextConfig)
    parents: tuple[str, ...] = ()

    @property
    def vocab_path(self) -> Path:
        """The vocabulary inside the checkpoint."""
        return self.path / "vocab.model"

    def weights(self) -> dict[str, Tensor]:
        """Float32 weights by parameter name, memory-mapped.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        return _read_tensors(self.path / "weights.safetensors")

    def load_into(self, model: nn.Module) -> None:
        """Copy the weights into a model of the same shape, whatever its dtype and device.

        Raises:
            CheckpointError: a weight is missing, left over, or of another shape.
        """
        weights = self.weights()
        parameters = dict(model.named_parameters())
        if weights.keys() != parameters.keys():
            odd = sorted(weights.keys() ^ parameters.keys())
            raise CheckpointError(f"{self.path}: weights and model differ in {odd[0]}", "the checkpoint is damaged")
        with torch.no_grad():
            for name, parameter in parameters.items():
                if weights[name].shape != parameter.shape:
                    shapes = f"{list(weights[name].shape)}, expected {list(parameter.shape)}"
                    raise CheckpointError(f"{self.path}: {name} has shape {shapes}", "the checkpoint is damaged")
                parameter.copy_(weights[name])


@dataclass(frozen=True)
class TrainingSnapshot:
    """What an exact continuation needs beside the weights.

    Attributes:
        state: JSON values: position in the data, best score so far and so on.
        moments: the optimizer's tensors.
    """

    state: Mapping[str, Any]
    moments: Mapping[str, Tensor]


def save_checkpoint(
    checkpoint: Checkpoint, weights: Mapping[str, Tensor], vocab_file: Path, training: TrainingSnapshot | None = None
) -> Checkpoint:
    """Write a checkpoint directory at checkpoint.path, replacing one of the same name.

    Args:
        checkpoint: what model.json shall say.
        weights: by parameter name; stored as float32.
        vocab_file: copied into the directory, with the vocab.tgt.model beside it if there is one.
        training: for a checkpoint that training can go on from.
    Raises:
        CheckpointError: the disk is full or cannot be written; what was there before is still there.
    """
    path = checkpoint.path
    temporary = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        _check_free_space(path.parent, weights, training)
        temporary.mkdir()
        shutil.copyfile(vocab_file, temporary / "vocab.model")
        if (tgt_vocab := vocab_file.with_name(_TGT_VOCAB)).exists():
            shutil.copyfile(tgt_vocab, temporary / _TGT_VOCAB)
        _write_tensors(temporary / "weights.safetensors", weights)
        if training is not None:
            (temporary / "training").mkdir()
            _write_tensors(temporary / "training" / "moments.safetensors", training.moments)
            _write_json(temporary / "training" / "state.json", training.state)
        _write_json(temporary / "model.json", {"format": FORMAT, "aiayn": __version__, **_to_json(checkpoint)})
        for written in (*temporary.rglob("*"), temporary):
            _flush(written)
        _check_written(temporary / "weights.safetensors", weights)
        if training is not None:
            _check_written(temporary / "training" / "moments.safetensors", training.moments)
        _replace_directory(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"cannot write the checkpoint {path}: {error.strerror or error}",
            "free some space or give another --out; the checkpoints before this one are whole",
        ) from error
    return checkpoint


def load_checkpoint(path: Path) -> Checkpoint:
    """Read model.json of a checkpoint directory.

    Raises:
        CheckpointError: it is missing, damaged, or of a newer format.
    """
    path = path.resolve() if path.is_symlink() else path
    content = read_json(path / "model.json", "a checkpoint")
    try:
        if content["format"] > FORMAT:
            raise CheckpointError(
                f"{path}: written by aiayn {content['aiayn']} in format {content['format']}", "update aiayn"
            )
        fields = {name: content[name] for name in Checkpoint.__dataclass_fields__ if name not in ("path", "text")}
        fields["model"] = ModelConfig(**content["model"])
        fields["decoding"] = DecodingConfig(**content["decoding"])
        fields["text"] = TextConfig(**content.get("text", {}))
        fields["parents"] = tuple(content["parents"])
        return Checkpoint(path=path, **fields)
    except (KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(
            f"{path / 'model.json'} is not a checkpoint's: {error}", "train or average again"
        ) from error


def load_training(path: Path) -> TrainingSnapshot:
    """Read what an exact continuation needs.

    Raises:
        CheckpointError: the checkpoint was not saved for that, or is damaged.
    """
    state = read_json(path / "training" / "state.json", "a checkpoint that training can go on from")
    return TrainingSnapshot(state, _read_tensors(path / "training" / "moments.safetensors"))


def list_checkpoints(run: Path) -> list[Path]:
    """Checkpoints of a run in the order of their steps; links and unfinished ones are not among them."""
    found = [path for path in (run / "checkpoints").glob("step-*") if path.is_dir() and not path.is_symlink()]
    return sorted((path for path in found if path.name[5:].isdecimal()), key=lambda path: int(path.name[5:]))


def checkpoint_path(run: Path, step: int) -> Path:
    """Where a run keeps the checkpoint of an update."""
    return run / "checkpoints" / f"step-{step:08d}"


def interrupted_path(run: Path, step: int) -> Path:
    """Where a run that is stopped between two checkpoints keeps its place; no part of an average."""
    return run / "checkpoints" / f"interrupted-{step:08d}"


def newest_resumable(run: Path) -> Path | None:
    """The checkpoint of the latest update that training can go on from; None where there is none."""
    found = [*list_checkpoints(run), *_interrupted(run)]
    return max(found, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def remove_leftovers(run: Path) -> None:
    """Remove what a crash left half written."""
    for path in (run / "checkpoints").glob(f"{UNFINISHED}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def mark_best(run: Path, path: Path) -> None:
    """Point checkpoints/best at one of the run's checkpoints."""
    link, temporary = run / "checkpoints" / "best", run / "checkpoints" / f"{UNFINISHED}best"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.name)
    if link.is_dir() and not link.is_symlink():  # a copy of the run that followed its links
        link.rename(doomed := link.with_name(f"{UNFINISHED}old-best"))
        _remove(doomed)
    temporary.replace(link)


def prune_checkpoints(run: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` checkpoints and the best one; return what was removed.

    A kept place of an interruption goes as soon as there is a later checkpoint.
    """
    best = (run / "checkpoints" / "best").resolve()
    regular, newest = list_checkpoints(run), newest_resumable(run)
    removed = [path for path in regular[:-keep] if path.resolve() != best]
    removed += [path for path in _interrupted(run) if path != newest]
    for path in removed:
        # Renamed first, so that a crash midway leaves no half of a checkpoint under a whole one's name.
        doomed = path.with_name(f"{UNFINISHED}{path.name}")
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)
    return removed


def newest_run(runs: Path = Path("runs")) -> Path:
    """The run in the working folder's runs/ whose newest checkpoint is the newest.

    Raises:
        CheckpointError: there is none.
    """
    newest = {run: list_checkpoints(run)[-1] for run in sorted(runs.glob("*")) if list_checkpoints(run)}
    if not newest:
        raise CheckpointError(f"no trained model in {runs}/", "train one with `aiayn train`, or name a model's folder")
    return max(newest, key=lambda run: newest[run].stat().st_mtime_ns)


def find_model(path: Path | None = None) -> Path:
    """The checkpoint directory that a user means.

    Args:
        path: a checkpoint, or a run (its averaged model if there is one, else its best checkpoint, else its newest);
            None means the newest run of the working folder.
    Raises:
        CheckpointError: there is no model.
    """
    run = newest_run() if path is None else path
    if (run / "model.json").is_file():
        return run
    for candidate in (run / "averaged", run / "checkpoints" / "best", *reversed(list_checkpoints(run))):
        if (candidate / "model.json").is_file():
            if candidate.name == "averaged" and (found := list_checkpoints(run)):
                step, newest = load_checkpoint(candidate).step, load_checkpoint(found[-1]).step
                if newest > step:
                    logs.warning(f"{candidate} is of update {step:,}, the run at {newest:,}: `aiayn average` renews it")
            return candidate
    raise CheckpointError(
        f"{run} holds no model" if run.exists() else f"there is no {run}",
        "name a checkpoint such as runs/tiny/averaged, or a run with checkpoints",
    )


def _interrupted(run: Path) -> list[Path]:
    return [path for path in (run / "checkpoints").glob("interrupted-*") if path.name[12:].isdecimal()]


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read one JSON object.

    Raises:
        CheckpointError: it is missing or damaged; `what` says what its folder was taken for.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.parent} is not {what}: it has no {path.name}", "check the path") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", "it is damaged; use another checkpoint") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object", "it is damaged; use another checkpoint")
    return content


def at(checkpoint: Checkpoint, path: Path, **changes: Any) -> Checkpoint:
    """The same description for another directory, with some fields changed."""
    return replace(checkpoint, path=path, **changes)


def _to_json(checkpoint: Checkpoint) -> dict[str, Any]:
    content = asdict(checkpoint)
    del content["path"]
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    # Views of one flat tensor are stored as tensors of their own.
    content = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in tensors.items()}
    try:
        save_file(content, path)
    except SafetensorError as error:  # its own wrapping of an OSError
        raise OSError(str(error)) from error


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", "it is damaged; use another checkpoint") from error


def _check_written(path: Path, tensors: Mapping[str, Tensor]) -> None:
    try:
        written = _read_tensors(path)
    except CheckpointError as error:
        raise OSError(f"what was written cannot be read back: {error.problem}") from error
    for name, tensor in tensors.items():
        if not torch.equal(written[name].nan_to_num(), tensor.detach().to("cpu", torch.float32).nan_to_num()):
            raise OSError(f"{name} was read back other than it was written")


def _check_free_space(folder: Path, weights: Mapping[str, Tensor], training: TrainingSnapshot | None) -> None:
    tensors = [*weights.values(), *(training.moments.values() if training else ())]
    needed = 4 * sum(tensor.numel() for tensor in tensors) + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"it takes {needed >> 20:,} MB, and {free >> 20:,} MB are free")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a directory, or a link to one, as far as that is possible."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _replace_directory(new: Path, path: Path) -> None:
    """Rename a directory to a name that may be taken; what was there is removed only when the new one is in place."""
    if path.exists():
        old = path.with_name(f"{UNFINISHED}old-{path.name}")
        _remove(old)
        path.rename(old)
        try:
            new.rename(path)
        except OSError:
            old.rename(path)
            raise
        _remove(old)
    else:
        new.rename(path)
    _flush(path.parent)
