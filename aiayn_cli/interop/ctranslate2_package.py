"""The optional package ctranslate2, whose C++ engine runs Transformers on CPUs and GPUs."""

import importlib
from typing import Any

from aiayn_cli.errors import AiaynError


def load_package(module: str = "ctranslate2") -> Any:
    """Import the package, or a module of it.

    Raises:
        AiaynError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise AiaynError(
            f"this needs the package ctranslate2, which cannot be imported ({error})",
            "pip install 'aiayn-cli[ctranslate2]'",
        ) from error
