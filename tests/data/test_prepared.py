"""Prepared data is opened whole or refused by name; its manifest names every file."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_pairs import read_pair, write_store

from aiayn_cli.data.prepared import MANIFEST, PreparedData, find_prepared, read_manifest, write_manifest
from aiayn_cli.errors import DataError


def make(folder: Path, *, splits: tuple[str, ...] = ("train", "valid")) -> Path:
    folder.mkdir(parents=True)
    (folder / "vocab.model").write_bytes(b"a vocabulary")
    described = {}
    for n, split in enumerate(splits, start=3):
        ids, lengths = np.arange(2 * n, dtype=np.uint16), np.full(n, 2, np.int32)
        write_store(folder, split, ids, lengths, ids + 1, lengths)
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
    with pytest.raises(DataError, match="has no test text") as caught:
        PreparedData.load(folder).read_text("test", "src")
    assert caught.value.hint == "prepare it anew with --test"


def test_the_manifest_names_every_other_file_with_its_hash(folder: Path) -> None:
    content, _ = read_manifest(folder)
    assert (content["format"], content["format_version"]) == ("aiayn-prepared", 1)
    assert set(content["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    for name, entry in content["files"].items():
        found = (folder / name).read_bytes()
        assert entry == {"bytes": len(found), "sha256": hashlib.sha256(found).hexdigest()}


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def manifest(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Change the content of manifest.json."""

    def rewrite(folder: Path) -> None:
        content = json.loads((folder / MANIFEST).read_bytes())
        change(content)
        (folder / MANIFEST).write_text(json.dumps(content))

    return rewrite


AGAIN, OTHER_FOLDER = "remove the folder, and run `aiayn prepare` again", "name a folder that `aiayn prepare` made"


@pytest.mark.parametrize(
    ("damage", "problem", "hint"),
    [
        *((lambda folder, name=name: (folder / name).unlink(), rf"{name} is missing", AGAIN)
          for name in ("vocab.model", "train-00000.tgt.npy", "valid.de")),
        (rewritten("valid.en", lambda old: old + b"one more\n"),
         "valid.en has 53 bytes, but manifest.json says 44", AGAIN),
        (rewritten("vocab.model", lambda _: b"A vocabulary"), "vocab.model is not the vocabulary of this data", AGAIN),
        (rewritten("train-00000.tgt.npy", lambda old: old[:-3] + b"\xfe\xca" + old[-1:]),
         "train-00000.tgt.npy is damaged: pair 2 holds the id .* has 99 sub-words", AGAIN),
        (manifest(lambda content: content["splits"]["train"].update(pairs_kept=2)),
         "holds 3 train pairs, but manifest.json says 2", AGAIN),
        *((rewritten(MANIFEST, lambda _, new=new: new), "manifest.json is damaged", AGAIN)
          for new in (b"", b"\xff\xfe", b"[" * 200_000)),
        *((rewritten(MANIFEST, lambda _, new=new: new), "manifest.json does not describe prepared data", OTHER_FOLDER)
          for new in (b"[]", b'{"format": "something else"}')),
        (manifest(lambda content: content.update(format_version=2)),
         "has format version 2, but this version of aiayn reads 1",
         "prepare the data again with the installed version"),
        *((manifest(lambda content, key=key: content.pop(key)), f"manifest.json is damaged: KeyError '{key}'", AGAIN)
          for key in ("files", "splits", "src_lang", "vocab")),
        *((manifest(change), "manifest.json is damaged: ", AGAIN) for change in (
            lambda content: content.update(files=["vocab.model"]),
            lambda content: content["files"]["vocab.model"].update(bytes="many"),
            lambda content: content.update(files={"vocab.model": 3}),
            lambda content: content.update(splits=["train"]),
            lambda content: content["splits"]["train"].update(pairs_kept="3"),
            lambda content: content["vocab"].update(size="99"),
            lambda content: content.update(vocab=[]),
            lambda content: content.update(settings=["text"]),
        )),
        (lambda folder: (folder / MANIFEST).unlink(), "is not prepared data: it has no manifest.json",
         "run `aiayn prepare` first"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(damage: Callable[[Path], object], problem: str, hint: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises(DataError, match=problem) as caught:
        PreparedData.load(folder)
    assert caught.value.hint == hint


def test_data_is_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("prepared/multi30k"))
    make(Path("elsewhere/data"))
    assert find_prepared("multi30k") == Path("prepared/multi30k")
    assert find_prepared("elsewhere/data") == Path("elsewhere/data")
    assert find_prepared(tmp_path / "elsewhere" / "data") == tmp_path / "elsewhere" / "data"


def test_an_unknown_name_is_answered_with_the_nearest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="multi30k has not been prepared yet") as caught:
        find_prepared("multi30k")
    assert caught.value.hint == "run `aiayn prepare multi30k` first, or name other data with --data"
    make(Path("prepared/multi30k"))
    with pytest.raises(DataError, match="mutli30k has not been prepared yet") as caught:
        find_prepared("mutli30k")
    assert caught.value.hint == "did you mean multi30k?"
    with pytest.raises(DataError, match="prepared/mutli30k does not exist") as caught:
        find_prepared("prepared/mutli30k")
    assert caught.value.hint == "did you mean prepared/multi30k?"


def test_a_manifest_that_a_killed_call_left_is_no_part_of_the_next(folder: Path) -> None:
    before = (folder / MANIFEST).read_bytes()
    content = json.loads(before)
    for key in ("files", "format", "format_version"):
        del content[key]
    write_manifest(folder, content)
    assert (folder / MANIFEST).read_bytes() == before
