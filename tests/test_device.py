"""The device is chosen once and explained in one line; what a CPU can do is tested with made capabilities."""

import os
from collections.abc import Iterator

import pytest
import torch

from aiayn_cli import device as module
from aiayn_cli import logs
from aiayn_cli.device import (
    Device,
    adds_8_bits_in_32,
    choose_device,
    free_memory,
    is_out_of_memory,
    matmul_rate,
    peak_memory,
)
from aiayn_cli.errors import AiaynError

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone


@pytest.fixture(autouse=True)
def _torch_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    precision, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for limit in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "FBGEMM_ENABLE_INSTRUCTIONS"):
        monkeypatch.delenv(limit, raising=False)
    yield
    torch.set_float32_matmul_precision(precision)
    torch.set_num_threads(threads)


def cpu_has(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_without_a_gpu_the_cpu_is_taken_and_one_line_says_so(name: str) -> None:
    found = choose_device(name)
    assert found.device == torch.device("cpu")
    assert found.threads == torch.get_num_threads() > 0
    assert found.explanation.startswith(f"device: CPU, {logs.counted(found.threads, 'thread')}; ")
    assert "\n" not in found.explanation


@pytest.mark.parametrize(
    ("machine", "capabilities", "limit", "expected"),
    [
        ("x86_64", ["avx2", "avx512_bf16"], "", True),
        ("AMD64", ["avx2", "amx_bf16"], "", True),
        ("x86_64", ["avx2", "avx512_vnni"], "", False),
        ("aarch64", ["neon", "bf16"], "", True),
        ("arm64", ["neon", "dot"], "", False),
        ("x86_64", ["avx512_bf16", "amx_bf16"], "AVX2", False),  # what oneDNN may not use
        ("x86_64", ["avx512_bf16", "amx_bf16"], "avx512_core", False),
        ("x86_64", ["avx512_bf16", "amx_bf16"], "AVX512_CORE_BF16", True),
        ("x86_64", ["avx512_bf16", "amx_bf16"], "AVX512_CORE_AMX", True),
        ("x86_64", ["avx512_bf16", "amx_bf16"], "ALL", True),
        ("aarch64", ["neon", "bf16"], "SVE_256", True),  # a limit of vectors' length
        ("aarch64", ["neon", "bf16"], "AVX2", True),  # nothing that oneDNN knows there
    ],
)
def test_bf16_is_chosen_where_the_processor_multiplies_it_and_onednn_may(
    machine: str, capabilities: list[str], limit: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    cpu_has(monkeypatch, avx512_fp16=False, **dict.fromkeys(capabilities, True))
    found = choose_device("cpu")
    assert found.dtype is (torch.bfloat16 if expected else torch.float32)
    assert ("bf16 (bf16 instructions)" if expected else "fp32 (no bf16 instructions)") in found.explanation


def test_a_torch_that_does_not_tell_is_taken_for_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert choose_device("cpu").dtype is torch.float32
    assert not adds_8_bits_in_32()


@pytest.mark.parametrize("machine", ["AMD64", "x86_64", "i686", "arm64", "aarch64"])
@pytest.mark.parametrize(
    ("capability", "limit", "value", "expected", "by_avx512"),
    [
        ("avx512_vnni", "ONEDNN_MAX_CPU_ISA", "", True, True),
        ("avx_vnni", "ONEDNN_MAX_CPU_ISA", "", True, False),
        ("amx_int8", "ONEDNN_MAX_CPU_ISA", "", True, False),
        ("avx512_bf16", "ONEDNN_MAX_CPU_ISA", "", False, False),
        ("avx512_vnni", "ONEDNN_MAX_CPU_ISA", "AVX2", False, False),  # any limit is that of an older processor
        ("avx512_vnni", "ONEDNN_MAX_CPU_ISA", "default", True, True),
        ("avx512_vnni", "DNNL_MAX_CPU_ISA", "AVX512_CORE", False, False),
        ("avx512_vnni", "FBGEMM_ENABLE_INSTRUCTIONS", "AVX2", False, False),
        ("avx512_vnni", "FBGEMM_ENABLE_INSTRUCTIONS", "", True, True),
    ],
)
def test_only_older_x86_processors_and_limited_ones_add_8_bits_in_16(
    machine: str, capability: str, limit: str, value: str, expected: bool, by_avx512: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("platform.machine", lambda: machine)
    cpu_has(monkeypatch, avx2=True, **{capability: True})
    monkeypatch.setenv(limit, value)
    is_arm = machine in ("arm64", "aarch64")
    assert adds_8_bits_in_32() == (expected or is_arm)
    assert adds_8_bits_in_32(by_avx512=True) == (by_avx512 or is_arm)


def test_fp32_products_are_given_to_onednn_only_where_it_does_not_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "equal", lambda product, exact: True)
    assert "fp32 products by oneDNN" in choose_device("cpu", "fp32").explanation
    assert torch.get_float32_matmul_precision() == "medium"
    monkeypatch.setattr(torch, "equal", lambda product, exact: False)
    assert "oneDNN" not in choose_device("cpu", "fp32").explanation
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("fast", [True, False])
def test_a_named_precision_is_taken_as_asked(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_has(monkeypatch, avx512_bf16=fast)
    found = choose_device("cpu", "bf16")
    assert found.dtype is torch.bfloat16
    slow = "" if fast else ", with no bf16 instructions: many times slower than fp32"
    assert f"bf16 (as requested{slow})" in found.explanation
    assert choose_device("cpu", "fp32").dtype is torch.float32
    assert "fp32 (as requested)" in choose_device("cpu", "fp32").explanation


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(AiaynError, match=rf"--device {name}.*, but 0 GPUs are visible") as error:
        choose_device(name)
    assert "--device cpu" in error.value.hint


@pytest.mark.parametrize("name", ["gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "tpu", "", "cpu:0"])
def test_an_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(AiaynError, match="unknown device") as error:
        choose_device(name)
    assert repr(name) in error.value.problem
    assert "auto, cpu, cuda or cuda:N" in error.value.hint


def test_auto_and_cuda_take_this_ranks_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for name, rank, expected in (("auto", 2, 2), ("cuda", 3, 3), ("cuda:1", 3, 1)):
        assert module._named_device(name, rank) == torch.device(f"cuda:{expected}")
    with pytest.raises(AiaynError, match="--device cuda:4, but 4 GPUs are visible"):
        module._named_device("auto", 4)


def test_threads_follow_the_environment_and_the_processors_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(3)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert choose_device("cpu").threads == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 7}, raising=False)
    assert choose_device("cpu").threads == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert choose_device("cpu").threads == 2  # torch's own number, which knows what the machine is good for


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 64, 64), (7, 33, 5), (256, 256, 256), (300, 128, 700)])
def test_products_in_float32_keep_their_precision(rows: int, inner: int, columns: int) -> None:
    choose_device("cpu", "fp32")
    random = torch.Generator().manual_seed(rows)
    a, b = torch.randn(rows, inner, generator=random), torch.randn(inner, columns, generator=random)
    exact = a.double() @ b.double()
    for found in (a @ b, torch.baddbmm(torch.zeros(1, 1, 1), a[None], b[None])[0], torch.nn.functional.linear(a, b.T)):
        assert float((found - exact).abs().max()) < 1e-5 * inner**0.5  # bf16 would miss by a thousand times as much


def test_the_rate_of_products_is_measured_and_counts_two_operations_for_each_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warm_up = [0.0, 9.0]
    busy = [9.0, *(moment for start in range(10, 15) for moment in (start, start + 0.5))]  # five in any case
    times = iter([*warm_up, *busy, 16.0, 16.0, 16.25, 25.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(times))
    device = Device(torch.device("cpu"), torch.float32, 1, "")
    assert matmul_rate(device, seconds=8.0) == 2 * 4096 * 512 * 2048 / 0.25
    assert next(times, None) is None


def test_the_measured_rate_is_that_of_this_machine() -> None:
    rate = matmul_rate(Device(torch.device("cpu"), torch.float32, 1, ""), seconds=0.0)
    assert 1e8 < rate < 1e14


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (ValueError("memory"), False),
    ],
)
def test_what_says_that_memory_ran_out(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_torchs_own_words_for_it_are_known() -> None:
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 60)
    assert is_out_of_memory(error.value)


def test_memory_is_counted_in_bytes() -> None:
    free = free_memory(torch.device("cpu"))
    assert free is None or 50e6 < free < 1e15
    assert 50e6 < peak_memory(torch.device("cpu")) < 1e12  # torch alone takes more than the first
