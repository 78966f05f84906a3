"""What the processor computes in hardware, as far as torch knows."""

import os
import platform

import torch

# With them a user keeps oneDNN and FBGEMM from instructions that the processor has.
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "FBGEMM_ENABLE_INSTRUCTIONS")
_NO_LIMIT = ("", "ALL", "DEFAULT")


def has_bf16() -> bool:
    """True where the CPU multiplies bf16 in hardware; emulated bf16 is slower than fp32."""
    return _can("avx512_bf16", "amx_bf16", "bf16")


def adds_8_bits_in_32(*, by_avx512: bool = False) -> bool:
    """True where the CPU adds products of 8 bits in 32 bits; in older x86 ones the sum of two may overflow 16.

    Where the environment limits what a library may use, it is taken for an older one, whatever the limit.

    Args:
        by_avx512: for a library that knows the instructions of AVX-512 alone, and not what smaller processors have.
    """
    is_x86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
    if is_x86 and any(os.environ.get(limit, "").upper() not in _NO_LIMIT for limit in _LIMITS):
        return False
    return not is_x86 or _can("avx512_vnni", *(() if by_avx512 else ("avx_vnni", "amx_int8")))


def _can(*names: str) -> bool:
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in names)
