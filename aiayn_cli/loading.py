"""Loading a command's libraries in less time; tests/benchmarks/startup.py says how much less."""

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_SHAPES_OF_TORCH = "torch._meta_registrations"
_COMPILER_OF_TORCH = "torch._dynamo"
_VERSIONS_TRIED = ("2.13",)  # of torch, in which nothing that translates asks for the above


@contextmanager
def loading() -> Iterator[None]:
    """Import without a search for garbage meanwhile, nor ever again in what was imported.

    torch alone makes several hundred thousand objects that stay and hardly any that do not; to look through them again
    and again takes a sixth of the time.
    """
    modules_before = len(sys.modules)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules_before:  # not where all is there already, since garbage would be kept with it
            gc.freeze()
        if was_enabled:
            gc.enable()


def leave_out_shapes_of_torch() -> bool:
    """Have this process import torch without what tells the shape of a result without computing it.

    It takes a fifth of the time of the import. torch.compile and torch.export ask for it, and so may a plug-in that
    torch loads with itself; when they do it is loaded late. Operations on torch's meta device may ask for it too, and
    fail, until then. So this is for a process that does nothing but translate, and for versions of torch with which
    that was tried: any other is imported whole.

    Returns:
        Whether it will be left out.
    """
    if "torch" in sys.modules or not _version_of_torch().startswith(tuple(f"{tried}." for tried in _VERSIONS_TRIED)):
        return False
    sys.modules[_SHAPES_OF_TORCH] = _LeftOut(_SHAPES_OF_TORCH)
    sys.meta_path.insert(0, _BeforeTheCompiler())
    return True


class _LeftOut(ModuleType):
    """Stands for the module until one of its names is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what is asked of any module
            raise AttributeError(name)
        return getattr(_load_late(), name)


class _BeforeTheCompiler:
    """Finds nothing, but hears of the import of torch's compiler, which would fail without what was left out."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == _COMPILER_OF_TORCH:
            _load_late()


def _load_late() -> ModuleType:
    if isinstance(sys.modules[_SHAPES_OF_TORCH], _LeftOut):
        del sys.modules[_SHAPES_OF_TORCH]
    return import_module(_SHAPES_OF_TORCH)


def _version_of_torch() -> str:
    """As its files say, since to import it is what takes the time; "" where they do not."""
    spec = find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec is not None and spec.origin is not None else None
    text = file.read_text(encoding="utf-8") if file is not None and file.exists() else ""
    found = re.search(r"^__version__ = '([^']*)'", text, re.MULTILINE)
    return found[1] if found is not None else ""
