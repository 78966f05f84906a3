"""Times attention on the CPU: written out against torch's fused kernel. attend() changes over where this says so.

    python tests/benchmarks/attention.py [--mask causal] [--forward-only]

Both ways get what the model gives them: queries, keys and values as slices of one fused projection, and a bool mask.
They take turns, and the medians are compared, so that other work on the machine weighs on both alike; with one thread
(the default) processor time is measured, which other work touches least, with more threads wall time. A ratio above 1
says that the written-out form is faster.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.device import choose_device
from aiayn_cli.model.attention import written_out_attention
from aiayn_cli.model.masks import Causal, padding_mask

_LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)
_HEAD_COUNTS = (4, 8)
_HEAD_WIDTH = 64
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def _fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_probability: float) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_probability)


def _mask(kind: str, batch: int, length: int) -> Tensor | None:
    if kind == "none":
        return None
    if kind == "causal":
        return Causal().mask(length)
    real_lengths = length - torch.arange(batch)[:, None] % max(length // 8, 1)  # sorted by length, few are padded much
    return padding_mask(torch.arange(length) < real_lengths)


def _seconds(attention: Callable[..., Tensor], projected: Tensor, n_heads: int, mask: Tensor | None) -> float:
    """One forward pass, and one backward pass if gradients are on."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    q, k, v = (part.unflatten(2, (n_heads, -1)).transpose(1, 2) for part in projected.chunk(3, dim=2))
    out = attention(q, k, v, mask, 0.0).transpose(1, 2).flatten(2)
    if out.requires_grad:
        torch.autograd.grad(out, projected, torch.ones_like(out))
    return clock() - start


def _compare(length: int, n_heads: int, dtype: torch.dtype, arguments: argparse.Namespace) -> tuple[float, float]:
    """Median seconds of the written-out and of the fused form."""
    batch = max(arguments.tokens // length, 1)
    projected = torch.randn(batch, length, 3 * n_heads * _HEAD_WIDTH).to(dtype)
    projected.requires_grad_(not arguments.forward_only)
    mask = _mask(arguments.mask, batch, length)
    times: dict[Callable[..., Tensor], list[float]] = {written_out_attention: [], _fused_attention: []}
    for attention in times:  # warm up
        _seconds(attention, projected, n_heads, mask)
    for _ in range(arguments.repeats):
        for attention, measured in times.items():
            measured.append(_seconds(attention, projected, n_heads, mask))
    written_out, fused = (median(measured) for measured in times.values())
    return written_out, fused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mask", choices=["padding", "causal", "none"], default="padding")
    parser.add_argument("--forward-only", action="store_true", help="as in decoding: no gradients")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a batch")
    parser.add_argument("--repeats", type=int, default=9, help="turns of each form")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    choose_device("cpu")  # sets up matrix products and malloc as every command does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    passes = "forward" if arguments.forward_only else "forward + backward"
    print(f"{passes}, {arguments.mask} mask, {arguments.tokens} tokens, d_k = d_v = {_HEAD_WIDTH},", end=" ")
    print(f"{arguments.threads} thread(s), torch {torch.__version__}; milliseconds, ratio = fused / written out")
    print("type   heads  length  written out    fused  ratio")
    for name, dtype in _DTYPES.items():
        for n_heads in _HEAD_COUNTS:
            for length in _LENGTHS:
                written_out, fused = _compare(length, n_heads, dtype, arguments)
                row = f"{name}   {n_heads:5}  {length:6}  {written_out * 1e3:11.2f}  {fused * 1e3:7.2f}"
                print(f"{row}  {fused / written_out:5.2f}", flush=True)


if __name__ == "__main__":
    main()
