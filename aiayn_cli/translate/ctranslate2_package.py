"""The optional package ctranslate2, whose C++ engine runs Transformers on CPUs and GPUs."""

import importlib
import os
from typing import Any

from aiayn_cli.device import adds_8_bits_in_32
from aiayn_cli.errors import AiaynError


def multiplies_slowly() -> bool:
    """True where load_package() chose exact products in 8 bits instead of fast ones, and the user chose nothing."""
    return not adds_8_bits_in_32() and os.environ.get("CT2_USE_MKL") == "1"


def load_package(module: str = "ctranslate2") -> Any:
    """Import the package, or a module of it.

    On processors of AMD it multiplies by oneDNN, whose sums of 8-bit products overflow on older ones: of 100 outputs 41
    instead of 11 differed from float32's. There it is told to take Intel's MKL, which comes with it and is exact.

    Raises:
        AiaynError: it is not installed.
    """
    if not adds_8_bits_in_32():
        os.environ.setdefault("CT2_USE_MKL", "1")  # read once, when it is imported
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise AiaynError(
            f"this needs the package ctranslate2, which cannot be imported ({error})",
            "pip install 'aiayn-cli[ctranslate2]'",
        ) from error
