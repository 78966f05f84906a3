"""Loading collects no garbage, leaves the process as it was, and can be interrupted."""

import gc
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiayn_cli.command_line import loading


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


INTERRUPTED_IMPORT = """
import signal
import sys
from aiayn_cli.command_line import loading
signal.signal(signal.SIGTERM, signal.default_int_handler)  # as main() has one
sys.path.insert(0, {folder!r})
with loading():
    import library
print("went on")
"""
LIBRARY = """
import signal
try:
    signal.raise_signal({signal})
except KeyboardInterrupt:  # as torch does with numpy's
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_an_import_ends_the_process(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(LIBRARY.format(signal=int(number)))
    program = INTERRUPTED_IMPORT.format(folder=str(tmp_path))
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stdout, process.stderr) == (128 + number, "", "")
