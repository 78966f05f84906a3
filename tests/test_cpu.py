import pytest
import torch

from aiayn_cli import cpu


@pytest.mark.parametrize("instruction", ["avx512_vnni", "avx_vnni", "amx_int8"])
def test_processors_are_known_that_add_8_bits_in_32(instruction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    capabilities = {"avx2": True, "avx512_bf16": True, instruction: False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert not cpu.adds_8_bits_in_32()
    capabilities[instruction] = True
    assert cpu.adds_8_bits_in_32()


def test_a_library_that_knows_avx512_alone_adds_in_16_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    capabilities = {"avx2": True, "avx_vnni": True, "avx512_vnni": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert not cpu.adds_8_bits_in_32(by_avx512=True)
    capabilities["avx512_vnni"] = True
    assert cpu.adds_8_bits_in_32(by_avx512=True)


@pytest.mark.parametrize(
    ("name", "value", "is_limited"),
    [
        ("ONEDNN_MAX_CPU_ISA", "AVX2", True),
        ("ONEDNN_MAX_CPU_ISA", "default", False),
        ("DNNL_MAX_CPU_ISA", "AVX512_CORE", True),
        ("FBGEMM_ENABLE_INSTRUCTIONS", "AVX2", True),
        ("FBGEMM_ENABLE_INSTRUCTIONS", "", False),
    ],
)
def test_a_library_that_may_not_use_all_instructions_is_taken_for_an_older_processor(
    name: str, value: str, is_limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_vnni": True})
    monkeypatch.setenv(name, value)
    assert cpu.adds_8_bits_in_32() != is_limited
    assert cpu.adds_8_bits_in_32(by_avx512=True) != is_limited
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert cpu.adds_8_bits_in_32()


def test_a_torch_that_does_not_tell_is_taken_for_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert not cpu.adds_8_bits_in_32()
    assert not cpu.has_bf16()


@pytest.mark.parametrize("machine", ["arm64", "aarch64"])
def test_only_x86_ever_added_8_bits_in_16(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"neon": True, "dotprod": False})
    assert cpu.adds_8_bits_in_32()
