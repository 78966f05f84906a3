"""A checkpoint is there whole or not at all, comes back bit for bit, and says in one line what is wrong with it."""

import ast
import json
import os
import resource
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import STATE, bits, change_tensors, described, fail_at, hash_anew, is_whole, kill, refuse, some_weights
from safetensors.torch import save_file
from torch import Tensor, nn

from aiayn_cli.checkpoint import tensor_files
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training, save_checkpoint
from aiayn_cli.checkpoint.run_checkpoints import checkpoint_path, list_checkpoints, remove_leftovers
from aiayn_cli.errors import CheckpointError
from aiayn_cli.recipe_keys import TextConfig

PACKAGE = Path(__file__).parents[2] / "aiayn_cli"

pytestmark = pytest.mark.usefixtures("no_flush")


def test_what_was_saved_comes_back_bit_for_bit(saved: Callable[..., Path], vocab: Path) -> None:
    path = saved()
    assert is_whole(path, 0, vocab)
    assert load_checkpoint(path) == described(path)
    assert load_training(path).state == STATE
    assert {tensor.dtype for tensor in load_checkpoint(path).weights().values()} == {torch.float32}


def test_the_umask_decides_who_may_read_a_checkpoint(saved: Callable[..., Path]) -> None:
    before = os.umask(0o027)
    try:
        path = saved()
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.rglob("*") if file.is_file()}
    assert set(modes.values()) == {0o640}, modes


def test_parents_processing_of_text_a_threshold_and_a_second_vocabulary_come_back(tmp_path: Path, vocab: Path) -> None:
    vocab.with_name("vocab.tgt.model").write_bytes(b"target")
    text, parents = TextConfig(moses_tokenise=True), ("step-00000002", "step-00000004")
    changed = replace(described(tmp_path / "two"), text=text, parents=parents, low_confidence=-0.59)
    saved = save_checkpoint(changed, some_weights(), vocab)
    found = load_checkpoint(saved.path)
    assert found == saved
    assert (found.text, found.parents, found.low_confidence) == (text, parents, -0.59)
    assert (saved.path / "vocab.tgt.model").read_bytes() == b"target"
    assert not (saved.path / "training").exists()


def test_a_checkpoint_that_says_nothing_of_text_or_a_threshold_is_one_of_raw_text_without_one(
    saved: Callable[..., Path],
) -> None:
    path = saved()
    content = json.loads((path / "model.json").read_text(encoding="utf-8"))
    del content["text"], content["low_confidence"]
    (path / "model.json").write_text(json.dumps(content), encoding="utf-8")
    assert (load_checkpoint(path).text, load_checkpoint(path).low_confidence) == (TextConfig(), None)


def test_views_of_one_tensor_and_other_types_are_stored_as_float32_by_themselves(tmp_path: Path, vocab: Path) -> None:
    flat = torch.arange(10.0)
    weights = {"a": flat[:6].view(2, 3), "b": flat[6:], "c": torch.tensor([1.5, -3.0], dtype=torch.bfloat16)}
    found = save_checkpoint(described(tmp_path / "views"), weights, vocab).weights()
    assert bits(found) == bits({name: tensor.float().clone() for name, tensor in weights.items()})


def test_model_json_says_it_all_without_torch(saved: Callable[..., Path]) -> None:
    content = json.loads((saved() / "model.json").read_text(encoding="utf-8"))
    assert (content["format"], content["step"], content["src_lang"], content["tgt_lang"]) == (1, 7, "en", "de")
    assert content["model"]["d_ff"] == 11
    assert content["decoding"]["beam_size"] == 5
    assert (content["vocab_sha256"], content["data_sha256"], content["run_id"]) == ("a1" * 32, "b2" * 32, "c3" * 16)
    assert "path" not in content  # a checkpoint may be moved


def test_a_checkpoint_may_be_moved(saved: Callable[..., Path], tmp_path: Path, vocab: Path) -> None:
    saved().rename(tmp_path / "elsewhere")
    assert is_whole(tmp_path / "elsewhere", 0, vocab)
    assert load_checkpoint(tmp_path / "elsewhere").path == tmp_path / "elsewhere"


# Every call by which writing touches the disk, and how often it does so under a new name.
STAGES: list[tuple[Any, str, int]] = [
    (shutil, "copyfile", 1),
    *(
        (owner, name, number)
        for owner, name in ((tensor_files, "save_file"), (Path, "write_text"))
        for number in (1, 2)
    ),
    *((Path, "mkdir", number) for number in (1, 2)),
    *((os, "fsync", number) for number in range(1, 9)),
    (Path, "rename", 1),
]
WHEN_REPLACING = [*STAGES, (Path, "rename", 2)]  # what was there gets out of the way first


def test_the_stages_below_are_all_there_are(saved: Callable[..., Path]) -> None:
    taken = saved(99)
    for stages in (STAGES, WHEN_REPLACING):
        for owner, name in {(owner, name) for owner, name, _ in stages}:
            path = taken if stages is WHEN_REPLACING else taken.with_name(name)
            with pytest.MonkeyPatch.context() as patch:
                calls = fail_at(patch, owner, name, 0, refuse)
                saved(path=path)
            assert len(calls) == max(number for _, other, number in stages if other == name), name


@pytest.mark.parametrize(
    ("stage", "replaced"),
    [*((stage, True) for stage in WHEN_REPLACING), *((stage, False) for stage in STAGES)],
    ids=lambda value: "-".join(map(str, value[1:])) if isinstance(value, tuple) else "replaced" if value else "new",
)
def test_a_disk_that_fails_at_any_stage_harms_no_checkpoint(
    stage: tuple[Any, str, int], replaced: bool, saved: Callable[..., Path], vocab: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    before = saved(5)
    target = checkpoint_path(tmp_path / "run", 5 if replaced else 6)
    with monkeypatch.context() as patch:
        fail_at(patch, *stage, refuse)
        with pytest.raises(CheckpointError) as error:
            saved(path=target, seed=1)
    assert "\n" not in error.value.problem
    assert "cannot write the checkpoint" in error.value.problem
    assert "Input/output error" in error.value.problem
    assert "are intact" in error.value.hint
    new_is_there = replaced and stage[1] == "fsync" and is_whole(before, 1, vocab)
    assert new_is_there or is_whole(before, 0, vocab)
    for path in list_checkpoints(tmp_path / "run"):
        assert is_whole(path, 0, vocab) or is_whole(path, 1, vocab)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: f"{stage[1]}-{stage[2]}")
def test_a_kill_at_any_stage_leaves_only_what_the_next_run_removes(
    stage: tuple[Any, str, int], saved: Callable[..., Path], vocab: Path, tmp_path: Path
) -> None:
    before, run = saved(5), tmp_path / "run"
    new = checkpoint_path(run, 6)
    child = os.fork()
    if child == 0:  # no test's clean-up may run here: the child ends by the signal, or at once
        with pytest.MonkeyPatch.context() as patch:
            fail_at(patch, *stage, kill)
            saved(path=new, seed=1)
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert is_whole(before, 0, vocab)
    assert list_checkpoints(run) in ([before], [before, new])
    if new in list_checkpoints(run):
        assert is_whole(new, 1, vocab)
    odd = {path.name for path in (run / "checkpoints").iterdir()} - {before.name, new.name}
    assert all(name.startswith(".unfinished-") for name in odd)
    remove_leftovers(run)
    assert set((run / "checkpoints").iterdir()) == set(list_checkpoints(run))
    saved(6, seed=2)
    assert is_whole(new, 2, vocab)


def test_a_full_disk_is_noticed_before_anything_is_written(
    saved: Callable[..., Path], vocab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = saved(5)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10 << 30, 10 << 30, 3 << 20))
    monkeypatch.setattr(tensor_files, "save_file", lambda *_: pytest.fail("it wrote"))
    with pytest.raises(CheckpointError, match="it takes 16 MB, and 3 MB are free") as error:
        saved(6)
    assert "free some space" in error.value.hint
    assert list_checkpoints(tmp_path / "run") == [before]
    assert is_whole(before, 0, vocab)


@pytest.mark.skipif(sys.platform == "win32", reason="has no limits of resources")
@pytest.mark.parametrize("size", [0, 400])
def test_a_file_that_cannot_grow_leaves_what_was_there(
    size: int, saved: Callable[..., Path], vocab: Path, tmp_path: Path
) -> None:
    before = saved(5)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"cannot write .*File too large") as error:
            saved(5, seed=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in error.value.problem
    assert is_whole(before, 0, vocab)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == [before.name]


@pytest.mark.parametrize("damaged", ["weights.safetensors", "moments.safetensors"])
def test_what_reads_back_other_than_it_was_written_is_no_checkpoint(
    damaged: str, saved: Callable[..., Path], vocab: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = saved(5)

    def lossy(content: dict[str, Tensor], path: Path) -> None:
        save_file(content, path)
        if path.name == damaged:
            data = bytearray(path.read_bytes())
            data[-3] ^= 1
            path.write_bytes(data)

    monkeypatch.setattr(tensor_files, "save_file", lossy)
    with pytest.raises(CheckpointError, match="differs when read back"):
        saved(6)
    assert list_checkpoints(tmp_path / "run") == [before]


def overwrite(name: str, content: bytes | Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        file = path / name
        file.write_bytes(content if isinstance(content, bytes) else content(file.read_bytes()))

    return change


def model_json(**changes: Any) -> Callable[[Path], None]:
    """Change values of model.json; None takes the name out."""

    def change(path: Path) -> None:
        content = {**json.loads((path / "model.json").read_bytes()), **changes}
        content = {name: value for name, value in content.items() if value is not None}
        (path / "model.json").write_text(json.dumps(content), encoding="utf-8")

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("model.json"), "is not a checkpoint: it has no model.json"),
        (remove("weights.safetensors"), "weights.safetensors cannot be read"),
        (remove("training/state.json"), "is not a checkpoint that training can resume from: it has no state.json"),
        (remove("training/moments.safetensors"), "moments.safetensors cannot be read"),
        (overwrite("model.json", b""), "model.json cannot be read"),
        (overwrite("model.json", b"[1, 2]"), "model.json does not hold a JSON object"),
        (overwrite("model.json", b"{}"), "model.json does not describe a checkpoint: 'format'"),
        (overwrite("model.json", b'{"format": 1'), "model.json cannot be read"),
        (overwrite("training/state.json", b"\x00" * 40), "state.json cannot be read"),
        (model_json(format=2, aiayn="9.1"), "written by aiayn 9.1 in format 2"),
        (model_json(format="one"), "does not describe a checkpoint"),
        (model_json(step=None), "does not describe a checkpoint: .*'step'"),
        (model_json(model={"d_mode": 3}), "does not describe a checkpoint.*d_mode"),
        (model_json(model={"d_model": -3}), "does not describe a checkpoint.*d_model is -3"),
        (model_json(decoding={"beam_size": 0}), "does not describe a checkpoint.*beam_size is 0"),
        (model_json(parents=7), "does not describe a checkpoint"),
        (model_json(step="x"), "does not describe a checkpoint: step is 'x'"),
        (model_json(vocab_size=9.5), "does not describe a checkpoint: vocab_size is 9.5"),
        (model_json(low_confidence="low"), "does not describe a checkpoint: low_confidence is 'low'"),
        (model_json(model={"d_model": "wide"}), "does not describe a checkpoint: d_model is 'wide'"),
        (model_json(model=[]), "does not describe a checkpoint"),
        (model_json(decoding={"alpha": [0.6]}), r"does not describe a checkpoint: alpha is \[0.6\]"),
        (model_json(text={"moses_tokenise": 1}), "does not describe a checkpoint: moses_tokenise is 1"),
        (model_json(files="none"), "does not describe a checkpoint: files is 'none'"),
        *(
            (overwrite(name, change), f"{Path(name).name} is not as it was written: its SHA-256 has changed")
            for name in ("weights.safetensors", "training/moments.safetensors")
            for change in (
                b"",
                lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
                lambda content: content + b"x",
                lambda content: content[:-1],
                lambda content: b"\xff" * 8 + content[8:],  # a header longer than the file
            )
        ),
    ],
)
def test_damage_is_one_clear_message(damage: Callable[[Path], None], message: str, saved: Callable[..., Path]) -> None:
    path = saved()
    damage(path)
    with pytest.raises(CheckpointError, match=message) as error:
        read_all(path)
    assert "\n" not in error.value.problem
    assert str(path) in error.value.problem
    assert error.value.hint


@pytest.mark.parametrize("name", ["weights.safetensors", "training/moments.safetensors"])
@pytest.mark.parametrize("keep", [0, 40, -1])
def test_damage_of_a_checkpoint_without_hashes_is_noticed_by_its_form(
    name: str, keep: int, saved: Callable[..., Path]
) -> None:
    path = saved()
    model_json(files=None)(path)  # as earlier versions wrote it
    read_all(path)
    overwrite(name, lambda content: content[:keep])(path)
    with pytest.raises(CheckpointError, match=f"{Path(name).name} cannot be read"):
        read_all(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("file", "name", "place"), [("weights", "embedding.weight", 52), ("training/moments", "exp_avg_sq", 59)]
)
def test_a_number_that_is_not_finite_is_named_with_its_place(
    value: float, file: str, name: str, place: int, saved: Callable[..., Path]
) -> None:
    path = saved()
    change_tensors(path / f"{file}.safetensors", lambda tensors: tensors[name].flatten()[place].fill_(value))
    hash_anew(path)
    with pytest.raises(CheckpointError, match=rf"{file}\.safetensors: number {place} of {name} is {value}") as error:
        read_all(path)
    assert "another checkpoint" in error.value.hint


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.float8_e5m2])
def test_weights_of_another_type_and_the_same_size_are_refused_by_name(
    dtype: torch.dtype, saved: Callable[..., Path]
) -> None:
    path = saved()
    name = "norm.bias"
    change_tensors(
        path / "weights.safetensors",
        lambda tensors: tensors.update({name: torch.ones(6 * 4 // dtype.itemsize).to(dtype)}),
    )
    hash_anew(path)
    parameters = {**some_weights(), name: torch.empty(6 * 4 // dtype.itemsize)}
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(CheckpointError, match=rf"norm\.bias is {kind}, not float32"):
        load_checkpoint(path).weights_for(parameters)


def read_all(path: Path) -> None:
    load_checkpoint(path).weights()
    load_training(path)


def test_weights_of_another_model_are_refused_by_name(saved: Callable[..., Path]) -> None:
    class Model(nn.Module):
        def __init__(self, rows: int, bias: bool = True) -> None:
            super().__init__()
            self.embedding, self.norm = nn.Embedding(rows, 6), nn.LayerNorm(6, bias=bias)
            del self.norm.weight

    found = load_checkpoint(saved())
    with pytest.raises(CheckpointError, match=r"embedding.weight has shape \[9, 6\], expected \[8, 6\]"):
        found.load_into(Model(8))
    with pytest.raises(CheckpointError, match=r"weights and model differ in norm\.bias"):
        found.load_into(Model(9, bias=False))
    model = Model(9).to(torch.bfloat16)
    found.load_into(model)
    assert torch.equal(model.embedding.weight, some_weights()["embedding.weight"].to(torch.bfloat16))
    with torch.device("meta"):
        empty = Model(9)
    found.load_into(empty)
    for name, parameter in empty.named_parameters():
        assert torch.equal(parameter, found.weights()[name])


def test_nothing_in_the_package_unpickles() -> None:
    paths = list(PACKAGE.rglob("*.py"))
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & {"pickle", "shelve", "dill"}, where
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("pickle", "shelve", "marshal"), where
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
                owner = ast.unparse(node.func.value)
                allowed = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert owner != "torch", where
                assert owner not in ("np", "numpy") or allowed.get("allow_pickle") == "False", where
