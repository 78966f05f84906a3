"""What the processor computes in hardware, as far as torch knows."""

import platform

import torch


def has_bf16() -> bool:
    """True where the CPU multiplies bf16 in hardware; emulated bf16 is slower than fp32."""
    return _can("avx512_bf16", "amx_bf16", "bf16")


def adds_8_bits_in_32() -> bool:
    """True where the CPU adds products of 8 bits in 32 bits; in older x86 ones the sum of two may overflow 16."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
    return not is_x86 or _can("avx512_vnni", "avx_vnni", "amx_int8")


def _can(*names: str) -> bool:
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in names)
