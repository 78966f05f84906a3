"""torch.compile for the layers of a network, in a bounded number of graphs."""

import torch

from aiayn_cli.config import Compile
from aiayn_cli.model.translation_model import TranslationModel

# Graphs of one layer's code: with and without padding, gradients and dropout, and batches of one pair or one token,
# which torch always treats apart. Beyond its own limit of 8 torch would silently go on without compiling.
_MOST_GRAPHS = 32


def compile_layers(model: TranslationModel, wanted: Compile, device: torch.device) -> bool:
    """Compile each layer of the encoder and the decoder, on first use.

    Lengths and batch sizes are symbols in what is compiled, so that batches of any shape share one graph; and torch
    keeps one graph for all layers of a stack, since it takes their weights as inputs.

    Args:
        model: on its device, in its dtype.
        wanted: "on", "off" or "auto": on a GPU only. On a CPU, the compiled layers of small models were slower.
        device: the model's.
    Returns:
        Whether they are compiled.
    """
    if wanted == "off" or (wanted == "auto" and device.type != "cuda"):
        return False
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _MOST_GRAPHS)
    for layer in (*model.encoder_layers, *model.decoder_layers):
        layer.compile(dynamic=True)
    return True


def is_compiled(model: TranslationModel) -> bool:
    """Whether compile_layers() has compiled the model's layers."""
    return any(layer._compiled_call_impl is not None for layer in model.encoder_layers)
