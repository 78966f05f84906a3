"""8-bit weights for translation on a CPU: integer matrix products, everything else in float32.

This is torch's dynamic quantisation: each row of a weight matrix has its own scale, its largest magnitude / 127; the
inputs are rounded to 8 bits at each call, with one scale for all, and the sums are exact.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from aiayn_cli.device import adds_8_bits_in_32
from aiayn_cli.errors import AiaynError
from aiayn_cli.model.layers import DecoderLayer, FeedForward
from aiayn_cli.model.translation_model import TranslationModel

_HINT = "translate without --int8"
_ENGINES = ("onednn", "x86", "fbgemm", "qnnpack")  # fastest first, for many rows
# FBGEMM has less overhead: for four rows it takes between a third and 0.8 of oneDNN's time, for 1,000 up to 1.3.
_FEW_ROWS, _ENGINE_OF_FEW = 64, "fbgemm"
_BY_AVX512 = ("x86", "fbgemm")  # add in 32 bits only by AVX-512; they do not use AVX-VNNI


@dataclass(frozen=True)
class _Packed:
    """Weights as one engine multiplies them."""

    parts: Mapping[tuple[int, int], object]  # torch's own objects, not tensors: neither moved nor saved with the module
    reduce_range: bool  # whether inputs are rounded to 7 bits, so that no sum overflows


class Int8Linear(nn.Module):
    """A linear layer with 8-bit weights, without gradients.

    Args:
        weight: float32 [out_features, in_features].
        bias: [out_features] or None.
        parts: ranges of output features, in order and without gaps, that rows() can compute alone.
        rectifies: whether a ReLU follows.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, parts: tuple[tuple[int, int], ...] = (), *, rectifies: bool = False
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        parts = parts or ((0, len(weight)),)
        self._many = self._few = _packed(weight, bias, parts, _engine())
        if _ENGINE_OF_FEW in torch.backends.quantized.supported_engines:
            self._few = _packed(weight, bias, parts, _ENGINE_OF_FEW)
        self._multiply = torch.ops.quantized.linear_relu_dynamic if rectifies else torch.ops.quantized.linear_dynamic

    def forward(self, x: Tensor) -> Tensor:
        """float32 [..., in_features] -> float32 [..., out_features]."""
        packed = self._packed_for(x)
        products = [self._multiply(x, part, packed.reduce_range) for part in packed.parts.values()]
        return products[0] if len(products) == 1 else torch.cat(products, dim=-1)

    def rows(self, x: Tensor, first: int, last: int) -> Tensor:
        """Output features first .. last - 1."""
        packed = self._packed_for(x)
        if (first, last) not in packed.parts:
            return self.forward(x)[..., first:last]
        return self._multiply(x, packed.parts[first, last], packed.reduce_range)  # type: ignore[no-any-return]

    def _packed_for(self, x: Tensor) -> _Packed:
        return self._few if x.numel() <= _FEW_ROWS * self.in_features else self._many


def use_int8(model: TranslationModel, cache_dtype: torch.dtype = torch.float32) -> None:
    """Replace the weights of all linear layers by 8-bit ones, in place; embeddings, biases and the rest stay float32.

    Args:
        model: in evaluation mode, float32, on the CPU.
        cache_dtype: of keys and values in incremental decoding, most of what a step reads.
    Raises:
        AiaynError: this torch has no 8-bit kernels.
    """
    for module in model.modules():
        if isinstance(module, DecoderLayer):
            module.cache_dtype = cache_dtype
            # Queries of a target and keys of the memory are never multiplied together.
            memory = module.memory_attention
            weight, qk = memory.w_qkv.weight, memory.n_heads * memory.d_k
            setattr(memory, "w_qkv", Int8Linear(weight, memory.w_qkv.bias, ((0, qk), (qk, len(weight)))))  # noqa: B010
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                first = isinstance(module, FeedForward) and name == "w_1"
                setattr(module, name, Int8Linear(child.weight, child.bias, rectifies=first))
        if isinstance(module, FeedForward):
            module.w_1_rectifies = True
    model.vocab_projection = Int8Linear(model.output.weight, None)


def _packed(weight: Tensor, bias: Tensor | None, parts: tuple[tuple[int, int], ...], engine: str) -> _Packed:
    reduce_range = not adds_8_bits_in_32(by_avx512=engine in _BY_AVX512)
    return _Packed({(first, last): _pack(weight, bias, first, last, engine) for first, last in parts}, reduce_range)


def _pack(weight: Tensor, bias: Tensor | None, first: int, last: int, engine: str) -> object:
    rows = weight.detach()[first:last].float()
    scales = rows.abs().amax(dim=1).double().div(127).clamp_(min=1e-12)
    zero_points = torch.zeros(len(rows), dtype=torch.int64)
    own = None if bias is None else bias.detach()[first:last].float()
    before = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = engine  # the engine that packs is the one that multiplies
        with warnings.catch_warnings():
            # Quantised tensors are deprecated, without a successor so far that also rounds inputs (pytorch issue
            # 184982).
            warnings.simplefilter("ignore", UserWarning)
            quantised = torch.quantize_per_channel(rows.contiguous(), scales, zero_points, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(quantised, own)
    except (AttributeError, NotImplementedError) as error:
        raise AiaynError(f"torch {torch.__version__} no longer has 8-bit kernels: {error}", _HINT) from error
    finally:
        torch.backends.quantized.engine = before


def _engine() -> str:
    for name in _ENGINES:
        if name in torch.backends.quantized.supported_engines:
            return name
    raise AiaynError(f"torch {torch.__version__} has no 8-bit kernels for this processor", _HINT)
