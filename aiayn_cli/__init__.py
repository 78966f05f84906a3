"""A translation toolkit around one Transformer; `Translator` translates from Python."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiayn_cli.translate.translator import Translator

__version__ = "0.1.0"
__all__ = ["Translator", "__version__"]


def __getattr__(name: str) -> Any:
    """Load torch only for those who ask for Translator (PEP 562)."""
    if name == "Translator":
        from aiayn_cli.translate.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
