"""How the files of a checkpoint are written and read: flushed, read back, hashed; nothing ever unpickled."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from aiayn_cli.errors import CheckpointError
from aiayn_cli.files import hash_of

_DAMAGED = "the checkpoint is damaged; use another one"

T = TypeVar("T")


def read_json(path: Path, what: str, sha256: str | None = None) -> dict[str, Any]:
    """Read one JSON object; a CheckpointError names `what` its folder was taken for."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.parent} is not {what}: it has no {path.name}", "check the path") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", _DAMAGED) from error
    _check_hash(path, sha256)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a JSON object", _DAMAGED)
    return content


def _check_hash(path: Path, sha256: str | None) -> None:
    if sha256 is not None and sha256 != hash_of(path):
        raise CheckpointError(f"{path} is not as it was written: its SHA-256 has changed", _DAMAGED)


def from_json(kind: type[T], content: object) -> T:
    """Make a dataclass from JSON; a TypeError if a value has the wrong type, or a name is missing or unknown."""
    if not isinstance(content, Mapping):
        raise TypeError(f"{kind.__name__} from {content!r}")
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in content and not _is_of(content[field.name], hints[field.name]):
            raise TypeError(f"{field.name} is {content[field.name]!r}")
    return kind(**content)


def _is_of(value: object, kind: Any) -> bool:
    if get_origin(kind) is UnionType:
        return any(_is_of(value, each) for each in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, NoneType if kind is None else get_origin(kind) or kind)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors: floating-point numbers as float32, others as they are; views become tensors of their own."""
    content = {name: _as_stored(tensor).clone() for name, tensor in tensors.items()}
    path.touch()
    mode = path.stat().st_mode  # honours the umask; save_file creates files that only the owner can read
    try:
        save_file(content, path)
    except SafetensorError as error:  # its own wrapping of an OSError
        raise OSError(str(error)) from error
    path.chmod(mode)


def read_tensors(path: Path, sha256: str | None = None, prefix: str = "") -> dict[str, Tensor]:
    """Read tensors whose names begin with prefix, memory-mapped; the file must have the SHA-256 if one is given."""
    try:
        if path.exists():
            _check_hash(path, sha256)
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 (not a dict)
            return {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}", _DAMAGED) from error


def finite(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose floating-point numbers must all be finite; path is for the message."""
    for name, tensor in tensors.items():
        # The extremes need no memory for a second tensor; NaN is both of them.
        extremes = tensor.float().aminmax() if tensor.is_floating_point() and tensor.numel() else ()
        if not all(extreme.isfinite() for extreme in extremes):
            flat = tensor.float().flatten()
            place = int((~flat.isfinite()).nonzero()[0])
            problem = f"{path}: number {place:,} of {name} is {float(flat[place])}"
            raise CheckpointError(problem, "training diverged, or the file is damaged; use another checkpoint")
    return tensors


def check_written(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Read tensors back; an OSError if they differ from what was written."""
    try:
        written = read_tensors(path)
    except CheckpointError as error:
        raise OSError(f"what was written cannot be read back: {error.problem}") from error
    for name, tensor in tensors.items():
        if not torch.equal(written[name].nan_to_num(), _as_stored(tensor).nan_to_num()):
            raise OSError(f"{name} differs when read back")


def _as_stored(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float32 if tensor.is_floating_point() else tensor.dtype)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return 4 * sum(tensor.numel() for tensor in tensors)
