"""From a ModelConfig to a model with fresh weights."""

from collections.abc import Callable

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.convolutional import build_convolutional
from aiayn_cli.model.recurrent import build_recurrent
from aiayn_cli.model.transformer import build_transformer
from aiayn_cli.model.translation_model import TranslationModel

_KINDS: dict[str, Callable[[ModelConfig, int], TranslationModel]] = {
    "transformer": build_transformer,
    "recurrent": build_recurrent,
    "convolutional": build_convolutional,
}


def build_model(config: ModelConfig, vocab_size: int) -> TranslationModel:
    """Make a model of the kind that `config.kind` names, its weights drawn from torch's default generator.

    Args:
        config: its shape.
        vocab_size: rows of the embedding matrices, special tokens included.
    """
    return _KINDS[config.kind](config, vocab_size)
