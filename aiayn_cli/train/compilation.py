"""torch.compile for the layers of a network, CUDA graphs, and batches of few shapes for both.

Launching a kernel takes the host some microseconds. With large layers and batches the GPU is busy meanwhile; with
small ones (4,096 tokens in layers of 256) it waits. A CUDA graph launches all kernels of a layer together, but is
recorded for one shape, so every shape costs a recording.

Padded batches on a GPU therefore have sizes from short lists, at 1 to 2 % more padding. torch.compile's kernels take
any shape, but each new one makes cuBLAS choose its kernels anew and fits no memory that was freed before.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.compiler import config as compiler_config

from aiayn_cli import logs
from aiayn_cli.data.collate import Shape
from aiayn_cli.model.cpu.packed_attention import rounded_up
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import Compile

# Graphs of one layer's code: with and without padding, gradients and dropout, and batches of one pair or one token,
# which torch always treats separately. Beyond its own limit of 8 torch would silently go on without compiling.
_MOST_GRAPHS = 32
# Steps from a power of two to the next: small where padding costs most, on the longer side and in the number of pairs.
_LONGER_STEPS, _SHORTER_STEPS, _PAIR_STEPS = 32, 8, 32
_PAIRS_MULTIPLE = 4  # so that no dimension is 1, which torch.compile treats separately
_LEAST_LENGTH = 8


def compile_layers(model: TranslationModel, wanted: Compile, device: torch.device) -> bool:
    """Compile each layer of a model on its device, on first use; return whether they will be.

    Batches of any shape and all layers of a stack share one graph. "auto" compiles on a GPU only: on a CPU, compiled
    layers of small models were slower. "graphs" records kernels as CUDA graphs and replays them, if that works.
    """
    if wanted == "graphs" and device.type != "cuda":
        logs.warning(f"CUDA graphs need a GPU, but the device is {device.type}: layers are not compiled")
    if wanted == "off" or (wanted != "on" and device.type != "cuda"):
        return False
    mode = None
    if wanted == "graphs":
        if problem := problem_with_graphs(device):
            logs.warning(f"CUDA graphs do not work here ({problem}): layers are compiled without them")
        else:
            mode, model.replays_graphs = "reduce-overhead", True
    if hasattr(compiler_config, "recompile_limit"):  # earlier versions of torch have no public name for it
        compiler_config.recompile_limit = max(compiler_config.recompile_limit, _MOST_GRAPHS)
    for layer in (*model.encoder_layers, *model.decoder_layers):
        layer.compile(dynamic=True, mode=mode)
    model.is_compiled = True
    return True


def begin_pass(model: TranslationModel) -> None:
    """Begin a pass through all layers, which are compiled one by one: CUDA graphs may reuse the last one's memory."""
    if model.replays_graphs:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]


@contextmanager
def without_graphs(model: TranslationModel) -> Iterator[None]:
    """Run layers without CUDA graphs, for batches of many shapes, each of which would be recorded."""
    if not model.replays_graphs:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def problem_with_graphs(device: torch.device) -> str:
    """What prevents recording a compiled layer as a CUDA graph on a device; "" if nothing does."""
    layer = nn.Linear(16, 16, device=device)
    try:
        recorded = torch.compile(layer, dynamic=True, mode="reduce-overhead")
        for rows in (32, 32, 32, 48, 48, 48):  # for each shape a first call, a recording and a replay
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            x = torch.rand(rows, 16, device=device)
            found = recorded(x)
            found.sum().backward()
            if not torch.allclose(found, layer(x), atol=1e-3):
                return "a replayed layer gives other numbers"
    except Exception as error:  # drivers, compilers and versions fail in many ways
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def few_shapes(exact: Shape, longest: int) -> Shape:
    """The smallest listed shape that holds a batch of the exact shape; no side has more than `longest` tokens."""
    longer = min(longest, rounded_up(max(exact.src_length, exact.tgt_length, _LEAST_LENGTH), _LONGER_STEPS))
    shorter = rounded_up(max(min(exact.src_length, exact.tgt_length), _LEAST_LENGTH), _SHORTER_STEPS)
    shorter = min(longer, shorter)
    pairs = -(-rounded_up(exact.pairs, _PAIR_STEPS) // _PAIRS_MULTIPLE) * _PAIRS_MULTIPLE
    src_is_longer = exact.src_length >= exact.tgt_length
    return Shape(pairs, *((longer, shorter) if src_is_longer else (shorter, longer)))


def few_counts(tokens: int) -> int:
    """The smallest listed number of rows that holds tokens without padding."""
    return rounded_up(tokens, _PAIR_STEPS)
