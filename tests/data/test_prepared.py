"""Prepared data is opened whole or refused by name; its manifest names every file."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_pairs import read_pair

from aiayn_cli.data.prepared import MANIFEST, PreparedData, find_prepared, read_manifest, write_manifest
from aiayn_cli.data.store import TokenStoreWriter
from aiayn_cli.errors import DataError


def make(folder: Path, *, splits: tuple[str, ...] = ("train", "valid")) -> Path:
    folder.mkdir(parents=True)
    (folder / "vocab.model").write_bytes(b"a vocabulary")
    described = {}
    for n, split in enumerate(splits, start=3):
        writer = TokenStoreWriter(folder, split, np.dtype("<u2"))
        ids, lengths = np.arange(2 * n, dtype=np.uint16), np.full(n, 2, np.int32)
        writer.add(ids, lengths, ids + 1, lengths)
        writer.close()
        described[split] = {"pairs_kept": n}
        if split != "train":
            for lang in ("en", "de"):
                (folder / f"{split}.{lang}").write_text("".join(f"{split} {lang} {i}\n" for i in range(n)))
    vocab = {"size": 99, "sha256": hashlib.sha256(b"a vocabulary").hexdigest()}
    write_manifest(folder, {"src_lang": "en", "tgt_lang": "de", "vocab": vocab, "splits": described})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "data")


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_prepared_data_opens_with_all_that_training_needs(folder: Path) -> None:
    data = PreparedData.load(folder)
    assert (data.src_lang, data.tgt_lang, data.vocab_size) == ("en", "de", 99)
    assert data.vocab_sha256 == hashlib.sha256(data.vocab_path.read_bytes()).hexdigest()
    assert data.sha256 == hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    assert data.valid is not None
    assert (len(data.train), len(data.valid), data.test) == (3, 4, None)
    assert [ids.tolist() for ids in read_pair(data.train, 2)] == [[4, 5], [5, 6]]


def test_raw_text_has_as_many_lines_as_the_split_has_pairs(tmp_path: Path) -> None:
    data = PreparedData.load(make(tmp_path / "data", splits=("train", "valid", "test")))
    assert data.read_text("valid", "src") == [f"valid en {i}" for i in range(4)]
    assert data.read_text("valid", "tgt") == [f"valid de {i}" for i in range(4)]
    assert data.read_text("test", "src") == [f"test en {i}" for i in range(5)]
    assert data.read_text("test", "tgt") == [f"test de {i}" for i in range(5)]


def test_raw_text_that_was_changed_to_as_many_bytes_is_refused(tmp_path: Path) -> None:
    data = PreparedData.load(make(tmp_path / "data"))
    path = data.folder / "valid.de"
    path.write_bytes(path.read_bytes().replace(b"\n", b" ", 1))
    assert PreparedData.load(data.folder).read_text("valid", "src") == data.read_text("valid", "src")
    with pytest.raises(DataError, match=r"valid\.de is not as it was written") as error:
        PreparedData.load(data.folder).read_text("valid", "tgt")
    assert "aiayn prepare" in error.value.hint


def test_text_of_a_split_that_is_not_there_is_an_error(folder: Path) -> None:
    with pytest.raises(DataError, match="has no test data") as caught:
        PreparedData.load(folder).read_text("test", "src")
    assert caught.value.hint == "run `aiayn prepare` with --test"


def test_the_manifest_names_every_other_file_with_its_hash(folder: Path) -> None:
    manifest, _ = read_manifest(folder)
    assert (manifest["format"], manifest["format_version"]) == ("aiayn-prepared", 1)
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    for name, entry in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert entry == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.mark.parametrize("name", ["vocab.model", "train-00000.tgt.npy", "valid.de"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(DataError, match=rf"{name} is missing") as caught:
        PreparedData.load(folder)
    assert caught.value.hint == "remove the folder, and run `aiayn prepare` again"


def test_a_file_of_another_size_is_named(folder: Path) -> None:
    with (folder / "valid.en").open("ab") as file:
        file.write(b"one more\n")
    with pytest.raises(DataError, match=r"valid\.en has 53 bytes, but manifest\.json says 44"):
        PreparedData.load(folder)


def test_an_exchanged_vocabulary_is_refused(folder: Path) -> None:
    (folder / "vocab.model").write_bytes(b"A vocabulary")
    with pytest.raises(DataError, match=r"vocab\.model is not the vocabulary of this data"):
        PreparedData.load(folder)


def test_another_number_of_pairs_is_refused(folder: Path) -> None:
    change_manifest(folder, lambda manifest: manifest["splits"]["train"].update(pairs_kept=2))
    with pytest.raises(DataError, match=r"holds 3 train pairs, but manifest\.json says 2"):
        PreparedData.load(folder)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b"[" * 200_000, "is damaged"),
        (b"[]", "does not describe prepared data"),
        (b'{"format": "something else"}', "does not describe prepared data"),
    ],
)
def test_a_manifest_of_something_else_is_refused(folder: Path, content: bytes, problem: str) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(DataError, match=rf"manifest\.json {problem}"):
        PreparedData.load(folder)


def test_a_newer_format_is_refused(folder: Path) -> None:
    change_manifest(folder, lambda manifest: manifest.update(format_version=2))
    with pytest.raises(DataError, match="has format version 2, but this version of aiayn reads 1"):
        PreparedData.load(folder)


@pytest.mark.parametrize("key", ["files", "splits", "src_lang", "vocab"])
def test_a_manifest_without_a_key_is_damaged(folder: Path, key: str) -> None:
    change_manifest(folder, lambda manifest: manifest.pop(key))
    with pytest.raises(DataError, match=rf"manifest\.json is damaged: KeyError '{key}'"):
        PreparedData.load(folder)


def test_a_folder_without_manifest_is_no_prepared_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is not prepared data: it has no manifest\.json") as caught:
        PreparedData.load(tmp_path)
    assert caught.value.hint == "run `aiayn prepare` first"


def test_data_is_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("prepared/multi30k"))
    make(Path("elsewhere/data"))
    assert find_prepared("multi30k") == Path("prepared/multi30k")
    assert find_prepared("elsewhere/data") == Path("elsewhere/data")
    assert find_prepared(tmp_path / "elsewhere" / "data") == tmp_path / "elsewhere" / "data"


def test_an_unknown_name_is_answered_with_the_nearest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="no prepared data multi30k") as caught:
        find_prepared("multi30k")
    assert caught.value.hint == "run `aiayn prepare multi30k` first, or name other data with --data"
    make(Path("prepared/multi30k"))
    with pytest.raises(DataError, match="no prepared data mutli30k") as caught:
        find_prepared("mutli30k")
    assert caught.value.hint == "did you mean multi30k?"


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.update(files=["vocab.model"]),
        lambda manifest: manifest["files"]["vocab.model"].update(bytes="many"),
        lambda manifest: manifest.update(files={"vocab.model": 3}),
        lambda manifest: manifest.update(splits=["train"]),
        lambda manifest: manifest["splits"]["train"].update(pairs_kept="3"),
        lambda manifest: manifest["vocab"].update(size="99"),
        lambda manifest: manifest.update(vocab=[]),
        lambda manifest: manifest.update(settings=["text"]),
    ],
)
def test_a_manifest_with_values_of_other_types_is_damaged(
    folder: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    change_manifest(folder, change)
    with pytest.raises(DataError, match=r"manifest\.json is damaged: ") as caught:
        PreparedData.load(folder)
    assert caught.value.hint == "remove the folder, and run `aiayn prepare` again"


def test_ids_that_are_garbage_of_the_same_size_are_refused(folder: Path) -> None:
    path = folder / "train-00000.tgt.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-3] + b"\xfe\xca" + content[-1:])
    with pytest.raises(DataError, match=r"train-00000\.tgt\.npy is damaged: pair 2 holds the id .* has 99 sub-words"):
        PreparedData.load(folder)


def test_a_manifest_that_a_killed_call_left_is_no_part_of_the_next(folder: Path) -> None:
    before = (folder / MANIFEST).read_bytes()
    content = json.loads(before)
    for key in ("files", "format", "format_version"):
        del content[key]
    write_manifest(folder, content)
    assert (folder / MANIFEST).read_bytes() == before
