"""From a ModelConfig to a model with fresh weights; the paper does not say how to draw them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.embeddings import LearnedPositions
from aiayn_cli.model.rivals.convolutional import ConvolutionalModel
from aiayn_cli.model.rivals.recurrent import RecurrentModel
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import ModelConfig

_KINDS: dict[str, Callable[[ModelConfig, int], TranslationModel]] = {
    "transformer": Transformer,
    "recurrent": RecurrentModel,
    "convolutional": ConvolutionalModel,
}


def build_model(config: ModelConfig, vocab_size: int) -> TranslationModel:
    """Make a model, its weights drawn from torch's default generator; vocab_size includes special tokens."""
    model = _KINDS[config.kind](config, vocab_size)
    _initialise(model)
    return model


def build_empty(config: ModelConfig, vocab_size: int) -> TranslationModel:
    """Make the same model on torch's meta device: shapes without numbers, for weights that come from elsewhere."""
    with torch.device("meta"), _NothingDrawn():
        return build_model(config, vocab_size)


@torch.no_grad()
def _initialise(model: TranslationModel) -> None:
    """Draw the weights of embeddings and linear layers; norms, LSTMs and convolutions initialise themselves.

    Embeddings are N(0, d_model^-0.5), as in the paper's first code (Tensor2Tensor, June 2017); times sqrt(d_model)
    they enter the network with unit variance. Linear layers are uniform with Glorot and Bengio's (2010) bounds, each
    of the query, key and value matrices on its own, since the fused matrix has other fans. Biases are 0.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.weight, std=0.02)  # small next to the tokens' unit variance
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():  # after the plain pass, which treated w_qkv as one matrix
        if isinstance(module, MultiHeadAttention):
            widths = [module.n_heads * module.d_k, module.n_heads * module.d_k, module.n_heads * module.d_v]
            for matrix in torch.split(module.w_qkv.weight, widths):
                nn.init.xavier_uniform_(matrix)


class _NothingDrawn(TorchFunctionMode):
    """Skips the drawing of weights, which on the meta device would first load all of torch's compiler."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (nn.init.normal_, nn.init.uniform_, nn.init.xavier_uniform_, nn.init.kaiming_uniform_):
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
