"""Products of each sentence of a batch by themselves, so that no number depends on what else is in the batch.

A library of matrix products chooses how it adds up by the shapes that it is given: the same row of a longer matrix can
come out other in the last digits. Here each sentence has a product of its own, always of one shape, while all that is
computed element by element or row by row is still done for the batch at once. The weights stay in the processor's cache
from one sentence to the next, which makes this twice as fast as one pass for each sentence.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

# Sentences stand in the first dimension of all tensors that these multiply, but of weights; heads may stand there too.
_PRODUCTS = (
    torch.bmm, torch.baddbmm, torch.matmul, Tensor.matmul, Tensor.__matmul__, functional.scaled_dot_product_attention,
)  # fmt: skip
_ALIGNMENT = 64  # bytes, of all memory that torch allocates


class ProductsApart(TorchFunctionMode):
    """In its `with` block every product of a Transformer over whole sequences is done for each sentence alone.

    Args:
        sentences: in the batch, all padded to the same lengths.
    """

    def __init__(self, sentences: int) -> None:
        super().__init__()
        self._sentences = sentences

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func is functional.linear:
            x, *weights = args
            parts = [func(self._part(x, number), *weights, **named) for number in range(self._sentences)]
        elif func in _PRODUCTS:
            parts = [
                func(
                    *(self._part(value, number) for value in args),
                    **{name: self._part(value, number) for name, value in named.items()},
                )
                for number in range(self._sentences)
            ]
        else:
            return func(*args, **named)
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _part(self, value: Any, number: int) -> Any:
        """The part of a tensor that belongs to one sentence; numbers, and masks of all sentences, as they are.

        It lies in memory in one way, since libraries also look at strides and at alignment: those of a view of a batch
        are others than those of a sentence alone.
        """
        if not isinstance(value, Tensor) or len(value) < self._sentences:
            return value
        size = len(value) // self._sentences
        part = value[number * size : (number + 1) * size].contiguous()
        return part if part.data_ptr() % _ALIGNMENT == 0 else part.clone()
