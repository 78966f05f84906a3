"""A larger network that computes what a trained one does, so that its speed can be measured at real lengths and BLEU.

Every feature exists several times, and each product takes the mean of the copies (Net2WiderNet; Chen et al. 2016); the
layers that come on top add nothing. To train the larger network itself would take days on a CPU.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from aiayn_cli.model.build import build_model
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.recipe_keys import ModelConfig

_MAX_POSITIONS = 1024  # tokens; a table of them, since a wider network's sinusoids are no copies of a narrow one's


def widened(small: Transformer, shape: ModelConfig, wide_shape: ModelConfig) -> tuple[Transformer, ModelConfig]:
    """Make a network of another shape that gives the same probabilities, but for rounding.

    The trained one is post-norm, without biases in attention, with one matrix for all embeddings, in float32; the wide
    shape is a whole multiple of its d_model, d_ff and n_heads, with as many layers or more and heads as wide. Returns
    the shape too, which has a table of positions; ValueError where the two do not go together.
    """
    factor = wide_shape.d_model // shape.d_model
    many_times = [getattr(shape, name) * factor for name in ("d_model", "d_ff", "n_heads")]
    alike = (shape.norm, shape.attention_bias, shape.share_embeddings, shape.d_k, shape.d_v)
    if (
        [wide_shape.d_model, wide_shape.d_ff, wide_shape.n_heads] != many_times
        or alike != ("post", False, "all", wide_shape.d_k, wide_shape.d_v)
        or wide_shape.n_encoder_layers < shape.n_encoder_layers
        or wide_shape.n_decoder_layers < shape.n_decoder_layers
    ):
        raise ValueError(f"{shape} cannot be widened to {wide_shape}")
    wide_shape = replace(wide_shape, positions="learned", max_positions=_MAX_POSITIONS, **_kept(shape))
    wide = build_model(wide_shape, small.src_embedding.num_embeddings)
    assert isinstance(wide, Transformer)

    def copies(x: Tensor) -> Tensor:
        return torch.cat([x] * factor, dim=-1)

    def mean_of_copies(weight: Tensor) -> Tensor:
        return torch.cat([copies(weight)] * factor) / factor

    with torch.no_grad():
        # Embeddings are scaled by the root of the width, which is larger now.
        wide.src_embedding.weight.copy_(copies(small.src_embedding.weight) / math.sqrt(factor))
        for side in ("src_positions", "tgt_positions"):
            getattr(wide, side).weight.copy_(copies(getattr(small, side)(0, _MAX_POSITIONS)))
        for name in ("encoder_layers", "decoder_layers"):
            _widen_stack(getattr(wide, name), getattr(small, name), copies, mean_of_copies)
        # Each logit is a sum over `factor` copies of embeddings of 1 / sqrt(factor).
        last = wide.decoder_layers[-1].feed_forward_residual.norm
        for part in (last.weight, last.bias):
            part.div_(math.sqrt(factor))
    return wide.eval(), wide_shape


def _kept(shape: ModelConfig) -> dict[str, object]:
    return {name: getattr(shape, name) for name in ("norm", "attention_bias", "share_embeddings")}


def _widen_stack(
    wide: nn.ModuleList, small: nn.ModuleList, copies: Callable[[Tensor], Tensor], mean: Callable[[Tensor], Tensor]
) -> None:
    for layer, trained in zip(wide, small, strict=False):
        modules = dict(trained.named_modules())
        for name, module in layer.named_modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.copy_(copies(modules[name].weight))
                module.bias.copy_(copies(modules[name].bias))
            elif name.endswith("w_qkv"):  # queries, keys and values, one below the other
                module.weight.copy_(torch.cat([mean(part) for part in modules[name].weight.chunk(3)]))
            elif isinstance(module, nn.Linear):
                module.weight.copy_(mean(modules[name].weight))
                if module.bias is not None:
                    module.bias.copy_(copies(modules[name].bias))
    added = wide[len(small) :]
    for layer in added:
        for name, module in layer.named_modules():
            if name.endswith(("w_o", "w_2")):
                for part in module.parameters():
                    part.zero_()
    if len(added):
        # What has no mean and a variance of 1 passes through a fresh norm as it is, so the trained gain and bias of
        # the last layer move to the end.
        end, before = added[-1].feed_forward_residual.norm, wide[len(small) - 1].feed_forward_residual.norm
        end.load_state_dict(before.state_dict())
        before.reset_parameters()
