"""What is written pair by pair is read back in any order, and a damaged file is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_pairs import read_pair

from aiayn_cli.data import store as module
from aiayn_cli.data.store import SIDES, Tokens, TokenStore, TokenStoreWriter
from aiayn_cli.errors import DataError

Pairs = list[tuple[list[int], list[int]]]
UINT16 = np.dtype("<u2")

pairs_of_ids = st.lists(st.tuples(*[st.lists(st.integers(0, 65_535), max_size=9)] * 2), max_size=30)


def flatten(records: list[list[int]]) -> tuple[Tokens, np.ndarray[tuple[int], np.dtype[np.int32]]]:
    return np.array([i for ids in records for i in ids], np.uint16), np.array([len(ids) for ids in records], np.int32)


def write(folder: Path, pairs: Pairs, *, shard_pairs: int = 1_000, chunk: int = 7, split: str = "train") -> None:
    for shard, first in enumerate(range(0, max(len(pairs), 1), shard_pairs)):
        writer = TokenStoreWriter(folder, split, UINT16, shard)
        end = min(first + shard_pairs, len(pairs))
        for start in range(first, end, chunk):
            part = pairs[start : min(start + chunk, end)]
            writer.add(*flatten([src for src, _ in part]), *flatten([tgt for _, tgt in part]))
        writer.close()
        assert sorted(writer.paths) == sorted(folder.glob(f"{split}-{shard:05d}.*"))


def some_pairs(n: int) -> Pairs:
    return [([i] * (i % 5), [i, 2 * i, 3 * i][: i % 4]) for i in range(n)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, some_pairs(23), shard_pairs=10)
    return tmp_path


@given(pairs=pairs_of_ids, shard_pairs=st.integers(1, 12), chunk=st.integers(1, 12), data=st.data())
def test_pairs_come_back_one_by_one_and_gathered(
    tmp_path_factory: pytest.TempPathFactory, pairs: Pairs, shard_pairs: int, chunk: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("store")
    write(folder, pairs, shard_pairs=shard_pairs, chunk=chunk)
    store = TokenStore(folder, "train")
    assert len(store) == len(pairs)
    assert store.lengths(range(len(store)), "src").tolist() == [len(src) for src, _ in pairs]
    assert store.lengths(range(len(store)), "tgt").tolist() == [len(tgt) for _, tgt in pairs]
    assert [(src.tolist(), tgt.tolist()) for src, tgt in (read_pair(store, i) for i in range(len(pairs)))] == pairs
    indices = data.draw(st.lists(st.integers(0, len(pairs) - 1)) if pairs else st.just([]))
    for number, side in enumerate(SIDES):
        flat, lengths = store.gather(indices, side)
        assert flat.tolist() == [token for i in indices for token in pairs[i][number]]
        assert lengths.tolist() == [len(pairs[i][number]) for i in indices]
        assert (flat.dtype, lengths.dtype) == (UINT16, np.dtype(np.int32))
        assert store.lengths(indices, side).tolist() == lengths.tolist()
        assert store.n_tokens(side) == sum(len(pair[number]) for pair in pairs)
    assert store.longest == tuple(max((len(pair[number]) for pair in pairs), default=0) for number in (0, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LENGTHS_AT_ONCE", chunk)
        chunks = list(store.length_chunks())
    assert [(s, t) for src, tgt in chunks for s, t in zip(src.tolist(), tgt.tolist(), strict=True)] == [
        (len(src), len(tgt)) for src, tgt in pairs
    ]
    assert all(len(src) <= min(chunk, shard_pairs) for src, _ in chunks)


@pytest.mark.parametrize("n_pairs", [0, 1, 9, 10, 11])
def test_the_files_do_not_depend_on_how_many_pairs_are_added_at_once(tmp_path: Path, n_pairs: int) -> None:
    contents = []
    for chunk in (3, 10, 99):
        folder = tmp_path / str(chunk)
        folder.mkdir()
        write(folder, some_pairs(n_pairs), chunk=chunk)
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1] == contents[2]


def test_the_files_are_plain_npy(folder: Path) -> None:
    tokens = np.load(folder / "train-00001.tgt.npy", allow_pickle=False)
    offsets = np.load(folder / "train-00001.tgt.offsets.npy", allow_pickle=False)
    assert (tokens.dtype, offsets.dtype) == (UINT16, np.dtype("<i8"))
    assert tokens[offsets[3] : offsets[4]].tolist() == [13]
    assert offsets.tolist() == [0, *np.cumsum([i % 4 for i in range(10, 20)])]


def test_ids_are_memory_mapped(folder: Path) -> None:
    store = TokenStore(folder, "train")
    path = folder / "train-00001.src.npy"
    with path.open("r+b") as file:  # what is read before would not see the change
        file.seek(-2, 2)
        file.write(np.array([299], UINT16).tobytes())
    assert store.gather(range(23), "src")[0].max() == 299


def test_splits_in_one_folder_do_not_mix(folder: Path) -> None:
    write(folder, [([5], [6, 7])], split="valid")
    assert (len(TokenStore(folder, "valid")), len(TokenStore(folder, "train"))) == (1, 23)


@pytest.mark.parametrize("index", [-1, 23])
def test_a_pair_that_is_not_there_is_an_index_error(folder: Path, index: int) -> None:
    store = TokenStore(folder, "train")
    with pytest.raises(IndexError, match="of 23"):
        store.gather([3, index], "src")
    with pytest.raises(IndexError, match="of 23"):
        store.lengths([3, index], "tgt")


def saving(arrays: dict[str, Any]) -> Callable[[Path], None]:
    """Save arrays under names, or what a function makes of those there."""

    def save(folder: Path) -> None:
        for name, array in arrays.items():
            content = array(np.load(folder / name)) if callable(array) else array
            np.save(folder / name, content, allow_pickle=True)

    return save


def going_back(offsets: np.ndarray) -> np.ndarray:
    offsets[2:5] = offsets[4:1:-1]
    offsets[3] += 1
    return offsets


SRC, TGT, OFFSETS, TGT_OFFSETS = (f"train-00000.{name}.npy" for name in ("src", "tgt", "src.offsets", "tgt.offsets"))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        *((lambda folder, name=name: (folder / name).unlink(), f"{name} is missing")
          for name in (SRC, "train-00001.src.npy", "train-00001.src.offsets.npy", "train-00002.tgt.npy")),
        *((lambda folder, name=name, keep=keep: (folder / name).write_bytes((folder / name).read_bytes()[:keep]),
           f"{name} is damaged: ") for name in (SRC, "train-00001.tgt.offsets.npy") for keep in (0, 50, 130)),
        (saving({SRC: np.zeros(5, np.uint16)}), rf"{OFFSETS} is damaged: its offsets do not end at 5 tokens"),
        (saving({TGT: np.zeros(5, np.uint16), TGT_OFFSETS: np.array([0, 2, 5])}),
         rf"{TGT_OFFSETS} is damaged: 10 source sides, but 2 target sides"),
        (saving({SRC: np.zeros((2, 3), np.uint16)}), rf"{SRC} is damaged: 2 dimensions of"),
        (saving({SRC: np.zeros(5, np.float32)}), rf"{SRC} is damaged: 1 dimensions of"),
        (saving({SRC: np.array([{"a": 1}], dtype=object)}), rf"{SRC} is damaged: "),  # a pickle, which is never loaded
        (saving({OFFSETS: going_back}), rf"{OFFSETS} is damaged: pair 2 begins at token \d+ and ends at"),
        *((saving({TGT_OFFSETS: lambda found, dtype=dtype: found.astype(dtype)}), rf"{TGT_OFFSETS} is damaged: ")
          for dtype in ("<u8", ">i8", "<f8")),
    ],
)  # fmt: skip
def test_damage_is_named_with_its_file(damage: Callable[[Path], object], problem: str, folder: Path) -> None:
    damage(folder)
    with pytest.raises(DataError, match=problem) as caught:
        TokenStore(folder, "train")
    assert caught.value.hint == "remove the folder, and run `aiayn prepare` again"


def test_the_writer_refuses_sides_that_do_not_belong_together(tmp_path: Path) -> None:
    writer = TokenStoreWriter(tmp_path, "train", UINT16)
    with pytest.raises(ValueError, match="2 source sides, but 1 target sides"):
        writer.add(*flatten([[1], [2]]), *flatten([[3]]))


@pytest.mark.parametrize("wrong", [-1, 300])
@pytest.mark.parametrize("place", [0, 7, 8, 40])  # at the ends of blocks and within
def test_the_first_id_that_is_none_is_named_with_its_pair(
    wrong: int, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IDS_AT_ONCE", 8)
    write(tmp_path, some_pairs(23))
    path = tmp_path / "train-00000.src.npy"
    size = path.stat().st_size
    ids, offsets = np.load(path).astype("<i2"), np.load(tmp_path / "train-00000.src.offsets.npy")
    ids[[place, 41]] = wrong
    np.save(path, ids)
    assert path.stat().st_size == size
    store = TokenStore(tmp_path, "train")
    pair = next(i for i in range(len(offsets) - 1) if offsets[i] <= place < offsets[i + 1])
    assert wrong in read_pair(store, pair)[0]
    with pytest.raises(
        DataError, match=rf"{SRC} is damaged: pair {pair} holds the id {wrong}, but the vocabulary has 300"
    ):
        store.check_ids(300)


def test_other_files_in_the_folder_do_not_matter(folder: Path) -> None:
    n_pairs = len(TokenStore(folder, "train"))
    for name in ("train-notes.npy", "train-1.npy", "train-.npy"):
        (folder / name).touch()
    assert len(TokenStore(folder, "train")) == n_pairs
