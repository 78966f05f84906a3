"""From a ModelConfig to a model with fresh weights."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.rivals.convolutional import build_convolutional
from aiayn_cli.model.rivals.recurrent import build_recurrent
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


def build_empty(config: ModelConfig, vocab_size: int) -> TranslationModel:
    """Make the same model on torch's meta device: shapes without numbers, for weights that come from elsewhere."""
    with torch.device("meta"), _NothingDrawn():
        return build_model(config, vocab_size)


class _NothingDrawn(TorchFunctionMode):
    """Leaves out the drawing of weights: on the meta device it would load all of torch's compiler first."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (nn.init.normal_, nn.init.uniform_, nn.init.xavier_uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
