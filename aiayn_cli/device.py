"""Device, precision, threads and allocator: chosen once, here, and explained in one line. What the CPU can do."""

import ctypes
import os
import platform
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from aiayn_cli import logs
from aiayn_cli.errors import AiaynError, UsageError
from aiayn_cli.recipe_keys import Precision

# What the RuntimeError of torch's CPU allocator says when there is no memory, among other words.
_NO_CPU_MEMORY = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory")
# A container's memory limit and use, in both versions of Linux's control groups.
_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
# glibc's names for mallopt's parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
# Compiled products that oneDNN caches, 0.6 MB each. Its default of 1,024 is too few for the shapes of a large corpus:
# with one shape too many, each may be recompiled whenever it returns.
_ONEDNN_PRODUCTS = 2_048
# Environment variables that keep oneDNN and FBGEMM from instructions that the processor has, and values without effect.
_ONEDNN_LIMITS, _FBGEMM_LIMIT = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"), "FBGEMM_ENABLE_INSTRUCTIONS"
_NO_LIMIT = ("", "ALL", "DEFAULT")


@dataclass(frozen=True)
class Device:
    """Where and in which type numbers are computed."""

    device: torch.device
    dtype: torch.dtype  # of weights and activations in the forward pass: torch.bfloat16 or torch.float32
    threads: int  # CPU threads of one operation
    explanation: str  # one line for the log: what was chosen and why


def choose_device(device: str = "auto", precision: Precision = "auto", local_rank: int = 0) -> Device:
    """Choose the device and set up the process for it; call once, before the first large allocation.

    Args:
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".
        precision: "auto" takes bf16 where the device multiplies it in hardware, else fp32.
        local_rank: which GPU of this machine an "auto" or "cuda" choice takes.
    """
    chosen = _named_device(device, local_rank)
    if chosen.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False  # fp32 means fp32
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        parts = [torch.cuda.get_device_name(chosen)]
        reason = "tensor cores" if fast else "no bf16 in hardware"
    else:
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_ONEDNN_PRODUCTS))  # read at the first product
        fast = has_bf16()
        _keep_freed_memory()
        parts = [f"CPU, {logs.counted(_set_threads(), 'thread')}", *_use_onednn_for_fp32()]
        reason = "bf16 instructions" if fast else "no bf16 instructions"
    is_bf16 = precision == "bf16" or (precision == "auto" and fast)
    why = reason if precision == "auto" else "as requested"
    if is_bf16 and not fast:
        why = f"{why}, with {reason}: many times slower than fp32"
    parts.insert(1, f"{'bf16' if is_bf16 else 'fp32'} ({why})")
    dtype = torch.bfloat16 if is_bf16 else torch.float32
    return Device(chosen, dtype, torch.get_num_threads(), f"device: {'; '.join(parts)}")


def device_of_each(gpus: int | None, device: str) -> list[str]:
    """Name the device of each process of `--gpus`; None means one process, on any device."""
    if gpus is None:
        return [device]
    if device.startswith("cuda:"):
        raise UsageError(f"--gpus {gpus} and --device {device} contradict each other", "remove one of them")
    if device == "cpu":
        return [device] * gpus
    found = torch.cuda.device_count()
    if found < gpus:
        hint = f"give --gpus {found}, or check CUDA" if found else "check CUDA, or add --device cpu"
        raise AiaynError(f"--gpus {gpus}, but {_visible(found)}", hint)
    return [f"cuda:{number}" for number in range(gpus)]


def has_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware and oneDNN may use that; emulated bf16 is slower than fp32."""
    if not _is_x86():  # oneDNN's limits name vector lengths there, such as SVE_256, and leave bf16 alone
        return _cpu_has("bf16")
    with_bf16 = ("BF16", "FP16", "AMX")  # in the names of oneDNN's instruction sets that include bf16
    may_use = all(any(name in limit for name in with_bf16) for limit in _limits(*_ONEDNN_LIMITS))
    return may_use and _cpu_has("avx512_bf16", "amx_bf16")


def adds_8_bits_in_32(*, by_avx512: bool = False) -> bool:
    """Whether the CPU adds 8-bit products in 32 bits; on older x86 CPUs the sum of two may overflow 16 bits.

    If the environment limits a library's instructions in any way, the CPU counts as an older one. `by_avx512` is for a
    library that uses AVX-512 instructions only.
    """
    if not _is_x86():
        return True
    instructions = ["avx512_vnni"] if by_avx512 else ["avx512_vnni", "avx_vnni", "amx_int8"]
    return not _limits(*_ONEDNN_LIMITS, _FBGEMM_LIMIT) and _cpu_has(*instructions)


def matmul_rate(device: Device, seconds: float = 0.2) -> float:
    """Measure the FLOP/s of one large matrix product in the network's type: the best that training could reach.

    It is the best of at least five timings over `seconds`, after a warm-up: other work on the machine can only slow it.
    """
    on_gpu = device.device.type == "cuda"
    rows, inner, columns = (8192, 8192, 8192) if on_gpu else (4096, 512, 2048)
    x = torch.ones(rows, inner, dtype=device.dtype, device=device.device)
    w = torch.ones(columns, inner, dtype=device.dtype, device=device.device)
    repeats = 8 if on_gpu else 1  # so that launching a kernel costs little in comparison

    def timed() -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            functional.linear(x, w)
        if on_gpu:
            torch.cuda.synchronize(device.device)
        return time.perf_counter() - started

    timed()
    end = time.perf_counter() + seconds
    best = min(timed() for _ in range(5))
    while time.perf_counter() < end:
        best = min(best, timed())
    return repeats * 2.0 * rows * inner * columns / best


def free_memory(device: torch.device) -> int | None:
    """Bytes free on a device, for the CPU within the machine's and its container's limits; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        meminfo = Path("/proc/meminfo").read_bytes().partition(b"MemAvailable:")[2]
        free = int(meminfo.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    for limit, used in _CGROUPS:
        with suppress(OSError, ValueError):  # no such limit
            free = min(free, int(Path(limit).read_bytes()) - int(Path(used).read_bytes()))
    return free


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that the device's or the machine's memory has run out."""
    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or any(words in str(error) for words in _NO_CPU_MEMORY)


def peak_memory(device: torch.device) -> int:
    """The most bytes of the GPU's or the machine's memory that this process has held so far."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kilobytes elsewhere


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


def _limits(*variables: str) -> list[str]:
    values = (os.environ.get(variable, "").upper() for variable in variables)
    return [value for value in values if value not in _NO_LIMIT]


def _cpu_has(*instructions: str) -> bool:
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # since torch 2.7
    return any(capabilities.get(name) for name in instructions)


def _named_device(name: str, local_rank: int) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if name in ("auto", "cuda"):
        name = f"cuda:{local_rank}"
    if name.startswith("cuda:") and name[5:].isdecimal():
        found = torch.cuda.device_count()
        if int(name[5:]) < found:
            return torch.device(name)
        raise AiaynError(f"--device {name}, but {_visible(found)}", "check CUDA, or use --device cpu")
    raise AiaynError(f"unknown device {name!r}", "use auto, cpu, cuda or cuda:N")


def _visible(gpus: int) -> str:
    return f"{logs.counted(gpus, 'GPU')} {'is' if gpus == 1 else 'are'} visible"


def _set_threads() -> int:
    """Use the processors that this process may run on, unless OMP_NUM_THREADS says otherwise."""
    if "OMP_NUM_THREADS" not in os.environ and hasattr(os, "sched_getaffinity"):
        torch.set_num_threads(min(torch.get_num_threads(), len(os.sched_getaffinity(0))))
    return torch.get_num_threads()


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory, so that a step does not fault its pages in again."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # not glibc
        return
    wanted = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_TOP_PAD: 64 << 20}
    if all(mallopt(key, value) for key, value in wanted.items()):
        logs.detail("malloc keeps freed memory")


def _use_onednn_for_fp32() -> list[str]:
    """Let oneDNN compute fp32 products where it is exact, twice as fast on some CPUs; returns what to log.

    The same switch lets CPUs with matrix units round to bf16. A probe that bf16 cannot hold detects those; they keep
    the default.
    """
    torch.set_float32_matmul_precision("medium")
    probe = torch.full((256, 256), 1 + 2**-12)
    if torch.equal(probe @ torch.eye(256), probe):
        return ["fp32 products by oneDNN"]
    torch.set_float32_matmul_precision("highest")
    return []
