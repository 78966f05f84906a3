"""In a batch whose sentences are multiplied apart, a library is asked for the very products of each sentence alone."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.cpu.products_apart import ProductsApart
from aiayn_cli.model.transformer import build_transformer

VOCAB, SENTENCES = 30, 3
MULTIPLY = ("linear", "bmm", "baddbmm", "matmul", "mm", "addmm", "einsum", "scaled_dot_product_attention")


class Products(TorchFunctionMode):
    """Counts the products that reach the library, with all that decides how it adds up."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[tuple[Any, ...]] = Counter()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.__name__.strip("_")
        if name in MULTIPLY:
            factors = args[1:] if name in ("baddbmm", "addmm") else args  # the first of these is added, once
            tensors = [x for x in (*factors, *(kwargs or {}).values()) if isinstance(x, Tensor)]
            self.asked[name, *((x.shape, x.stride(), x.data_ptr() % 64) for x in tensors)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_batch_asks_for_the_products_of_each_sentence_alone(norm: Any) -> None:
    torch.manual_seed(1)
    shape = ModelConfig(
        n_encoder_layers=2, n_decoder_layers=1, d_model=20, d_ff=28, n_heads=2, d_k=6, d_v=10, norm=norm
    )
    model = build_transformer(shape, VOCAB).eval()
    src, tgt = torch.randint(4, VOCAB, (SENTENCES, 8)), torch.randint(4, VOCAB, (SENTENCES, 16))
    src[1, 5:] = 0

    def products(first: int, last: int) -> Counter[tuple[Any, ...]]:
        rows = slice(first, last)
        with torch.inference_mode(), Products() as seen, ProductsApart(last - first):
            mask = src[rows] != 0
            model.decode(tgt[rows], model.encode(src[rows], mask), mask)
        return seen.asked

    alone = sum((products(number, number + 1) for number in range(SENTENCES)), Counter())
    assert alone.total() > 30
    assert products(0, SENTENCES) == alone
