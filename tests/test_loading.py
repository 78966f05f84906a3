"""Loading collects no garbage, and leaves the process as it was; what translates leaves a part of torch out."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from translation_models import LINES, best, make_checkpoint, translations

import aiayn_cli.loading
from aiayn_cli.loading import leave_out_shapes_of_torch, loading

PROGRAM = """
import atexit, sys
shapes = "torch._meta_registrations"
atexit.register(lambda: print("torch" in sys.modules, hasattr(sys.modules[shapes], "__file__"), file=sys.stderr))
from aiayn_cli.__main__ import main
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def _frees_what_was_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_collects_nothing_while_it_loads_and_freezes_what_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_for_this_test.py").write_text("import gc\nenabled = gc.isenabled()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    frozen_before = gc.get_freeze_count()
    with loading():
        import made_for_this_test
    monkeypatch.delitem(sys.modules, "made_for_this_test")
    assert not made_for_this_test.enabled
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen_before


def test_freezes_nothing_where_all_is_loaded() -> None:
    frozen_before = gc.get_freeze_count()
    with loading():
        import json  # noqa: F401
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen_before


def test_collects_again_after_an_import_that_fails() -> None:
    with pytest.raises(ModuleNotFoundError), loading():
        import no_module_of_this_name  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_leaves_collection_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def run_fresh(*words: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which ends by saying whether it has torch, and all of it."""
    command = [sys.executable, "-c", PROGRAM, *words]
    env = {**os.environ, **environment}
    return subprocess.run(command, input=text, env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("how", [[], ["--int8"], ["--precision", "bf16"]], ids=" ".join)
def test_translate_needs_nothing_of_what_it_leaves_out(how: list[str], tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path / "model", seed=1)
    text = "".join(f"{line}\n" for line in LINES)
    done = run_fresh("translate", "--quiet", "--model", str(model), *how, text=text)
    assert done.stderr.splitlines()[-1] == "True False"
    assert done.returncode == 0
    assert done.stdout.count("\n") == len(LINES)
    if not how:
        assert done.stdout == best(translations([model], LINES))


ASKED = {
    "the compiler": "import torch._dynamo",
    "a name": "from torch._meta_registrations import device_hint",
    "the attribute": "import torch; torch._meta_registrations.device_hint",
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_what_is_left_out_is_loaded_once_it_is_asked_for(asked: str, tmp_path: Path) -> None:
    """As by a plug-in, which torch loads with itself."""
    plug_in = tmp_path / "plug_in-1.dist-info"
    plug_in.mkdir()
    (plug_in / "METADATA").write_text("Metadata-Version: 2.1\nName: plug_in\nVersion: 1\n", encoding="utf-8")
    (plug_in / "entry_points.txt").write_text("[torch.backends]\nplug_in = plug_in:load\n", encoding="utf-8")
    (tmp_path / "plug_in.py").write_text(f"def load() -> None:\n    {asked}\n", encoding="utf-8")
    model = make_checkpoint(tmp_path / "model", seed=1)
    done = run_fresh("translate", "--quiet", "--model", str(model), text="hund\n", PYTHONPATH=str(tmp_path))
    assert done.stderr == "True True\n"
    assert done.stdout == best(translations([model], ["hund"]))


def test_a_process_that_left_it_out_can_still_compile() -> None:
    program = """
from aiayn_cli.loading import leave_out_shapes_of_torch
left_out = leave_out_shapes_of_torch()
import torch
double = torch.compile(lambda x: torch.nn.functional.embedding(x, torch.ones(3, 2)) * 2, backend="aot_eager")
print(left_out, double(torch.tensor([1])).tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("True [[2.0, 2.0]]\n", "")


def test_other_commands_have_all_of_torch(tmp_path: Path) -> None:
    done = run_fresh("average", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "True True"


def test_the_installed_torch_is_one_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a new one: run the tests with it added to those tried, and compare `translate` with and without."""
    assert aiayn_cli.loading._version_of_torch() == version("torch")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "torch._meta_registrations", None)  # put back afterwards
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    assert leave_out_shapes_of_torch()
    assert sys.modules["torch._meta_registrations"] is not None


@pytest.mark.parametrize("found", ["2.12.1", "2.130.0", "3.0", ""])
def test_a_torch_that_was_not_tried_is_loaded_whole(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(aiayn_cli.loading, "_version_of_torch", lambda: found)
    before = sys.modules.get("torch._meta_registrations")
    assert not leave_out_shapes_of_torch()
    assert sys.modules.get("torch._meta_registrations") is before


def test_a_torch_that_is_loaded_stays_whole() -> None:
    import torch._meta_registrations as shapes

    assert not leave_out_shapes_of_torch()
    assert sys.modules["torch._meta_registrations"] is shapes


def test_no_torch_at_all_is_no_fault_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiayn_cli.loading, "find_spec", lambda _name: None)
    assert aiayn_cli.loading._version_of_torch() == ""
