"""The paper's Table 1, measured: what layers cost as sequences grow.

    python tests/benchmarks/layers.py [--forward-only] [--svg layers.svg] [--longest 4096] [--device cuda]

One layer of each kind maps n vectors of d numbers to n vectors of d numbers. For one sequence, in float32, forward and
backward: the time (processor time of one thread on a CPU, so that other work on the machine weighs little), and the
most memory that its tensors take at once, beside weights and input. Growth is fitted as time ~ n^x over the longest
half of the lengths, and as time ~ d^x. Attention stands alone, as in the paper's table, and with its four projections,
each of which costs n d^2.
"""

import argparse
import math
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from aiayn_cli.model.attention import MultiHeadAttention, attend
from aiayn_cli.model.masks import Window

HEADS = 8
SHORTEST = 32
WIDTHS = (128, 256, 512, 1024)
LEAST_SECONDS = 0.4  # of measuring each place; the first round is thrown away


class Layer(nn.Module):
    """A module, and how it maps [1, n, d] to [1, n, d]."""

    def __init__(self, module: nn.Module, mapping: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self.mapping = module, mapping

    def forward(self, x: Tensor) -> Tensor:
        return self.mapping(self.module, x)


def attention(window: Window | None) -> Layer:
    """The attention function of 8 heads, without projections."""

    def attend_alone(_: nn.Module, x: Tensor) -> Tensor:
        heads = x.unflatten(2, (HEADS, -1)).transpose(1, 2)
        return attend(heads, heads, heads, window).transpose(1, 2).flatten(2)

    return Layer(nn.Identity(), attend_alone)


def projected(d: int, window: Window | None) -> Layer:
    """Multi-head attention as the model has it."""
    return Layer(MultiHeadAttention(d, HEADS, d // HEADS, d // HEADS), lambda module, x: module(x, x, window))


def recurrent(d: int) -> Layer:
    return Layer(nn.LSTM(d, d, batch_first=True), lambda lstm, x: lstm(x)[0])


def convolution(d: int, kernel: int, separable: bool) -> Layer:
    """Kernels over all d numbers, or first over each alone and then over all at one position."""
    whole = nn.Conv1d(d, d, kernel, padding=kernel // 2)
    parts = nn.Conv1d(d, d, kernel, padding=kernel // 2, groups=d), nn.Conv1d(d, d, 1)
    module = nn.Sequential(*parts) if separable else whole
    return Layer(module, lambda convolutions, x: convolutions(x.transpose(1, 2)).transpose(1, 2))


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    name: str
    make: Callable[[int], nn.Module]  # for a width d
    complexity: str  # this and the next two as in the paper's Table 1
    sequential: str
    path: str
    growth: tuple[str, str]  # the exponents of n and d in the complexity


def kinds(reach: int, kernel: int) -> list[Kind]:
    """All rows."""
    r, k = f"r={reach}", f"k={kernel}"
    window = Window(reach, causal=False)
    separable = f"separable convolution {k}"
    return [
        Kind("self-attention", lambda d: attention(None), "n^2 d", "1", "1", ("2", "1")),
        Kind(f"restricted self-attention {r}", lambda d: attention(window), "r n d", "1", "n/r", ("1", "1")),
        Kind("recurrent (LSTM)", recurrent, "n d^2", "n", "n", ("1", "2")),
        Kind(f"convolution {k}", lambda d: convolution(d, kernel, False), "k n d^2", "1", "log_k n", ("1", "2")),
        Kind(separable, lambda d: convolution(d, kernel, True), "k n d + n d^2", "1", "log_k n", ("1", "2")),
        Kind("self-attention, projected", lambda d: projected(d, None), "n^2 d + n d^2", "1", "1", ("1-2", "1-2")),
        Kind(f"restricted {r}, projected", lambda d: projected(d, window), "r n d + n d^2", "1", "n/r", ("1", "1-2")),
    ]


class AliveTensors(TorchDispatchMode):
    """Counts the bytes of the tensors that live at once, each storage once; weights and input were there before."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {each.untyped_storage()._cdata for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in given | self._known:
                    self._known.add(storage._cdata)
                    self._add(storage.nbytes())
                    weakref.finalize(storage, self._forget, storage._cdata, storage.nbytes())
        return result

    def _add(self, size: int) -> None:
        self.now += size
        self.peak = max(self.peak, self.now)

    def _forget(self, identity: int, size: int) -> None:
        self._known.discard(identity)
        self.now -= size


def run(layer: nn.Module, x: Tensor, backward: bool) -> None:
    """One step."""
    y = layer(x)
    if backward:
        y.backward(torch.ones_like(y))


def measure(layer: nn.Module, x: Tensor, backward: bool) -> tuple[float, float]:
    """Seconds and MB of one step."""
    cuda = x.device.type == "cuda"
    x.requires_grad_(backward)
    run(layer, x, backward)
    if cuda:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(layer, x, backward)
        memory = torch.cuda.max_memory_allocated() - before
    else:
        with AliveTensors() as alive:
            run(layer, x, backward)
        memory = alive.peak
    times: list[float] = []
    while sum(times) < LEAST_SECONDS or len(times) < 3:
        start = time.perf_counter() if cuda else time.process_time()
        run(layer, x, backward)
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() if cuda else time.process_time()) - start)
    return median(times), memory / 1e6


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of log y over log x, by least squares."""
    pairs = [(math.log(x), math.log(y)) for x, y in zip(xs, ys, strict=True)]
    mean_x, mean_y = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in pairs) / sum((x - mean_x) ** 2 for x, _ in pairs)


def draw(path: Path, lengths: Sequence[int], curves: dict[str, list[float]], title: str) -> None:
    """Write the times as an SVG picture, both axes logarithmic."""
    width, height, left, top, right, bottom = 900, 560, 80, 50, 270, 60
    colours = ("#1b6ca8", "#d1495b", "#2e8540", "#8d5a97", "#c77700", "#6aa9d8", "#e59aa5")
    values = [value for curve in curves.values() for value in curve]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(n: float) -> float:
        return left + (width - left - right) * math.log(n / lengths[0]) / math.log(lengths[-1] / lengths[0])

    def y(seconds: float) -> float:
        return height - bottom - (height - top - bottom) * (math.log10(seconds) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"',
        ' font-family="sans-serif" font-size="14">',
        f'<rect width="{width}" height="{height}" fill="white"/><text x="{left}" y="28" font-size="17">{title}</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{width - right}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 5:.1f}" text-anchor="end">{10.0 ** (power + 3):g} ms</text>')
    for n in lengths:
        parts.append(f'<line x1="{x(n):.1f}" y1="{top}" x2="{x(n):.1f}" y2="{height - bottom}" stroke="#eee"/>')
        parts.append(f'<text x="{x(n):.1f}" y="{height - bottom + 20}" text-anchor="middle">{n}</text>')
    middle = (left + width - right) / 2
    parts.append(f'<text x="{middle}" y="{height - 14}" text-anchor="middle">length n</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour, dash = colours[number], ' stroke-dasharray="6 4"' if "projected" in name else ""
        points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in zip(lengths, curve, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
        at = top + 20 + 24 * number
        line = (
            f'<line x1="{width - right + 16}" y1="{at - 5}" x2="{width - right + 44}" y2="{at - 5}" stroke="{colour}"'
        )
        parts.append(f'{line} stroke-width="2.5"{dash}/><text x="{width - right + 52}" y="{at}">{name}</text>')
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longest", type=int, default=4096, metavar="N", help="lengths are 32, 64, ... N")
    parser.add_argument("--width", type=int, default=512, metavar="D")
    parser.add_argument(
        "--reach", type=int, default=32, metavar="R", help="positions that restricted attention sees to each side"
    )
    parser.add_argument("--kernel", type=int, default=3, metavar="K")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--forward-only", action="store_true")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also draw the times")
    options = parser.parse_args(arguments)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    device, backward = torch.device(options.device), not options.forward_only
    lengths = [SHORTEST << i for i in range(int(math.log2(options.longest / SHORTEST)) + 1)]
    half = len(lengths) // 2
    all_kinds = kinds(options.reach, options.kernel)

    def at(kind: Kind, n: int, d: int) -> tuple[float, float]:
        layer, x = kind.make(d).to(device), torch.randn(1, n, d, device=device)
        return measure(layer, x, backward)

    with torch.set_grad_enabled(backward):
        by_length = {kind.name: [at(kind, n, options.width) for n in lengths] for kind in all_kinds}
        by_width = {kind.name: [at(kind, lengths[half], d)[0] for d in WIDTHS] for kind in all_kinds}
    steps = "forward and backward" if backward else "forward"
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"one thread, torch {torch.__version__}"
    print(f"d = {options.width}, one sequence, float32, {steps}; {where}")
    for what, unit, place in (("milliseconds", 1e3, 0), ("MB", 1.0, 1)):
        print(f"\n{what:<32}" + "".join(f"{f'n={n}':>9}" for n in lengths))
        for name, row in by_length.items():
            print(f"{name:<32}" + "".join(f"{unit * value[place]:>9.2f}" for value in row))
    head = f"{'n: paper':>10}{'time':>6}{'memory':>8}{'d: paper':>10}{'time':>6}{'steps':>7}{'path':>9}"
    print(f"\n{'growth':<32}{'paper':>16}{head}")
    for kind in all_kinds:
        rows = by_length[kind.name][half:]
        fitted = (exponent(lengths[half:], [row[place] for row in rows]) for place in (0, 1))
        in_n = "".join(f"{x:>{w}.2f}" for x, w in zip(fitted, (6, 8), strict=True))
        in_d = exponent(WIDTHS, by_width[kind.name])
        print(f"{kind.name:<32}{kind.complexity:>16}{kind.growth[0]:>10}{in_n}{kind.growth[1]:>10}{in_d:>6.2f}", end="")
        print(f"{kind.sequential:>7}{kind.path:>9}")
    print(f"(n from {lengths[half]} to {lengths[-1]} at d = {options.width};", end=" ")
    print(f"d from {WIDTHS[0]} to {WIDTHS[-1]} at n = {lengths[half]})")
    if options.svg:
        title = f"One layer, {steps}, d = {options.width} ({device.type})"
        draw(options.svg, lengths, {name: [t for t, _ in row] for name, row in by_length.items()}, title)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
