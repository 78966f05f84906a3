"""Prepared data: a folder with the token ids of each split, the vocabulary, the raw text of the pairs to be scored,
and manifest.json, which records the origin of all this and is written last.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from aiayn_cli import logs
from aiayn_cli.data.store import Side, TokenStore
from aiayn_cli.errors import DataError, did_you_mean
from aiayn_cli.files import hash_of
from aiayn_cli.recipe_keys import DataConfig, TextConfig
from aiayn_cli.text.codec import TGT_VOCAB, VOCAB, Codec
from aiayn_cli.text.lines import read_file

FORMAT = "aiayn-prepared"
FORMAT_VERSION = 1  # goes up when an older reader would misread the folder
PREPARED_FOLDER = Path("prepared")  # in the working folder; prepared/NAME
MANIFEST = "manifest.json"

_AGAIN = "remove the folder, and run `aiayn prepare` again"


@dataclass(frozen=True)
class PreparedData:
    """What one `aiayn prepare` made."""

    folder: Path
    manifest: Mapping[str, Any]  # manifest.json; see `write_manifest`
    sha256: str  # of manifest.json, which holds the hash of every other file: it identifies this data
    src_lang: str  # a code such as "en"
    tgt_lang: str
    vocab_path: Path  # a separate target vocabulary lies in the same folder
    vocab_sha256: str  # of that file, or of both hashes
    vocab_size: int  # sub-words, special tokens included, of the larger vocabulary
    separate_vocabs: bool  # each side has its own vocabulary
    text: TextConfig  # processing before text is split into sub-words
    max_length: int  # sub-words of the longest side of a training pair allowed
    several_sentences: float | None  # share of the training pairs with several on the source side; None = not counted
    train: TokenStore
    valid: TokenStore | None  # as many pairs as there are lines of raw text
    test: TokenStore | None

    @classmethod
    def load(cls, folder: Path) -> "PreparedData":
        """Open prepared data; token ids stay on disk until they are read. Raises DataError."""
        manifest, sha256 = read_manifest(folder)
        try:
            return cls._open(folder, manifest, sha256)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise damaged_manifest(folder, error) from error

    @classmethod
    def _open(cls, folder: Path, manifest: dict[str, Any], sha256: str) -> "PreparedData":
        _check_files(folder, manifest["files"])
        splits = {name: TokenStore(folder, name) for name in manifest["splits"]}
        settings = dict(manifest.get("settings", {}))
        text_fields = {field.name for field in fields(TextConfig)}
        for name, store in splits.items():
            expected = manifest["splits"][name]["pairs_kept"]
            if len(store) != expected:
                found = logs.counted(len(store), f"{name} pair")
                raise DataError(f"{folder} holds {found}, but {MANIFEST} says {expected:,}", _AGAIN)
            store.check_ids(manifest["vocab"]["size"])
        return cls(
            folder=folder,
            manifest=manifest,
            sha256=sha256,
            src_lang=manifest["src_lang"],
            tgt_lang=manifest["tgt_lang"],
            vocab_path=folder / VOCAB,
            vocab_sha256=manifest["vocab"]["sha256"],
            vocab_size=manifest["vocab"]["size"],
            separate_vocabs=TGT_VOCAB in manifest["files"],
            text=TextConfig(**{key: value for key, value in settings.items() if key in text_fields}),
            max_length=int(settings.get("max_length", DataConfig.max_length)),
            several_sentences=manifest["splits"]["train"].get("several_sentences"),
            train=splits["train"],
            valid=splits.get("valid"),
            test=splits.get("test"),
        )

    def codec(self) -> Codec:
        return Codec.load(self.folder, self.text, self.src_lang, self.tgt_lang)

    def read_text(self, split: Literal["valid", "test"], side: Side) -> list[str]:
        """The raw lines of one side; raises DataError if there are none, or they have changed."""
        if split not in self.manifest["splits"]:
            raise DataError(f"{self.folder} has no {split} text", f"prepare it anew with --{split}")
        path = self.folder / f"{split}.{self.src_lang if side == 'src' else self.tgt_lang}"
        if hash_of(path) != self.manifest["files"][path.name]["sha256"]:
            raise DataError(f"{path} is not as it was written: its SHA-256 has changed", _AGAIN)
        return read_file(path)


def write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    """Write manifest.json after every other file of the folder.

    `content` has "corpus", "src_lang", "tgt_lang", "vocab", "splits", "settings" and "inputs"; the format and each
    file's size and SHA-256 are added.
    """
    files = {}
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and path.name != MANIFEST:  # killed here, an earlier call has left one
            files[path.name] = {"bytes": path.stat().st_size, "sha256": hash_of(path)}
    manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, **content, "files": files}
    (folder / MANIFEST).write_bytes(json.dumps(manifest, indent=2, ensure_ascii=False).encode() + b"\n")


def read_manifest(folder: Path) -> tuple[dict[str, Any], str]:
    """Read manifest.json and return it with its own SHA-256; raises DataError."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{folder} is not prepared data: it has no {MANIFEST}", "run `aiayn prepare` first") from error
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}", _AGAIN) from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DataError(f"{path} does not describe prepared data", "name a folder that `aiayn prepare` made")
    if (found := manifest.get("format_version")) != FORMAT_VERSION:
        problem = f"{path} has format version {found}, but this version of aiayn reads {FORMAT_VERSION}"
        raise DataError(problem, "prepare the data again with the installed version")
    return manifest, hashlib.sha256(content).hexdigest()


def damaged_manifest(folder: Path, error: Exception) -> DataError:
    """The error for a manifest.json that is JSON, but incomplete."""
    return DataError(f"{folder / MANIFEST} is damaged: {type(error).__name__} {error}", _AGAIN)


def find_prepared(name_or_path: str | Path) -> Path:
    """Find prepared data: prepared/NAME in the working folder, or the folder itself; raises DataError."""
    for folder in (PREPARED_FOLDER / name_or_path, Path(name_or_path)):
        if (folder / MANIFEST).is_file():
            return folder
    if Path(name_or_path).exists():
        read_manifest(Path(name_or_path))  # says what is wrong with it
    is_path = len(Path(name_or_path).parts) > 1
    known = [str(path.parent) if is_path else path.parent.name for path in PREPARED_FOLDER.glob(f"*/{MANIFEST}")]
    hint = did_you_mean(str(name_or_path), (), unlisted=known)
    command = f"aiayn prepare {'... --out ' if is_path else ''}{name_or_path}"
    hint = hint or f"run `{command}` first, or name other data with --data"
    raise DataError(f"{name_or_path} {'does not exist' if is_path else 'has not been prepared yet'}", hint)


def find_only_prepared() -> Path | None:
    """The only folder of prepared data in the working folder, or None; DataError if there are several."""
    found = sorted(path.parent for path in PREPARED_FOLDER.glob(f"*/{MANIFEST}"))
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise DataError(f"several prepared corpora: {names}", f"choose one, such as --data {found[0]}")
    return found[0] if found else None


def _check_files(folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare names and sizes, and the vocabulary's hash; hashing all token ids would take too long at each start."""
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing", _AGAIN)
        if (size := path.stat().st_size) != expected["bytes"]:
            raise DataError(f"{path} has {size:,} bytes, but {MANIFEST} says {expected['bytes']:,}", _AGAIN)
    for name in (VOCAB, TGT_VOCAB):
        if name in files and hash_of(folder / name) != files[name]["sha256"]:
            raise DataError(f"{folder / name} is not the vocabulary of this data", _AGAIN)
