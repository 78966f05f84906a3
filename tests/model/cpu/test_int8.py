import pytest
import torch
from torch import nn

from aiayn_cli.errors import AiaynError
from aiayn_cli.model.build import build_model
from aiayn_cli.model.cpu.int8 import Int8Linear, use_int8
from aiayn_cli.recipe_keys import ModelConfig

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_of_8_bits_comes_near_the_exact_one(bias: bool) -> None:
    exact = nn.Linear(64, 48, bias=bias)
    with torch.no_grad():
        exact.weight[5] *= 100  # each row has a scale of its own
        exact.weight[6] = 0
    rounded = Int8Linear(exact.weight, exact.bias, ((0, 10), (10, 48)))
    x = torch.randn(3, 7, 64)
    expected, found = exact(x), rounded(x)
    assert found.shape == expected.shape
    scale = expected.abs().amax(dim=(0, 1)).clamp(min=1e-3)
    assert ((found - expected).abs().amax(dim=(0, 1)) / scale).max() < 0.03
    assert not torch.equal(found, expected)
    torch.testing.assert_close(rounded.rows(x, 10, 48), found[..., 10:])
    torch.testing.assert_close(rounded.rows(x, 0, 10), found[..., :10])


def test_few_rows_and_many_are_multiplied_alike() -> None:
    torch.manual_seed(1)
    rounded = Int8Linear(torch.randn(48, 64), torch.randn(48), ((0, 10), (10, 48)))
    x = torch.randn(200, 64).clamp(-4, 5)
    x[:, 0], x[:, 1] = 5, -4  # in any rows, since the largest and the smallest number say how all are rounded
    together = rounded(x)
    for first in range(0, 200, 50):
        found = rounded(x[first : first + 50])
        off = (found - together[first : first + 50]).abs()
        assert off.median() < 1e-5
        assert off.max() < 0.3  # a number in the middle between two of 8 bits may go either way


@pytest.mark.skipif("fbgemm" not in torch.backends.quantized.supported_engines, reason="this torch has no FBGEMM")
@pytest.mark.parametrize("engines", [("onednn",), ("fbgemm",)])
def test_few_rows_do_not_overflow_on_processors_whose_instructions_fbgemm_does_not_know(
    engines: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx_vnni": True})
    monkeypatch.setattr("aiayn_cli.model.cpu.int8._ENGINES", engines)
    rounded = Int8Linear(torch.ones(48, 64), None, ((0, 10), (10, 48)))
    x = torch.ones(4, 64)
    x[:, ::2] = 0.5  # 64 of 127 in 7 bits; in 8 bits it would be 128 of 255, and the sums of two too large for 16
    expected = torch.full((4, 48), 32 * (1 + 64 / 127))
    torch.testing.assert_close(rounded(x), expected)
    torch.testing.assert_close(rounded.rows(x, 10, 48), expected[:, 10:])


def test_a_range_that_was_not_packed_by_itself_is_a_part_of_the_whole() -> None:
    rounded = Int8Linear(torch.randn(48, 64), None)
    x = torch.randn(3, 64)
    torch.testing.assert_close(rounded.rows(x, 5, 20), rounded(x)[:, 5:20])


@pytest.mark.parametrize("kind", ["transformer", "recurrent", "convolutional"])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_model_of_8_bits_says_nearly_the_same_step_by_step(kind: str, cache_dtype: torch.dtype) -> None:
    config = ModelConfig(
        kind=kind, n_encoder_layers=1, n_decoder_layers=2, d_model=32, d_ff=64, n_heads=4, d_k=8, d_v=8, kernel_size=3,
    )  # type: ignore[arg-type]  # fmt: skip
    torch.manual_seed(2)
    model = build_model(config, 50).eval()
    src, tokens = torch.randint(4, 50, (3, 6)), torch.randint(4, 50, (3, 5))
    expected = model(src, None, tokens).log_softmax(-1)
    use_int8(model, cache_dtype)
    cache = model.start(model.encode(src, None), None)
    for position in range(5):
        found = model.step(tokens[:, position : position + 1], cache).log_softmax(-1)
        assert (found - expected[:, position]).abs().mean() < 0.1
    assert not any(type(module) is nn.Linear for module in model.modules())


def test_the_projection_to_the_vocabulary_has_8_bits_too() -> None:
    model = build_model(ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=32, d_ff=64, n_heads=4), 50).eval()
    hidden = torch.randn(3, 32)
    exact = hidden @ model.output.weight.T
    torch.testing.assert_close(model.project(hidden), exact)
    use_int8(model)
    assert 0 < (model.project(hidden) - exact).abs().max() < 0.05 * exact.abs().max()


def test_a_torch_without_8_bit_products_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiayn_cli.model.cpu.int8._ENGINES", ("abacus",))
    with pytest.raises(AiaynError, match="no 8-bit kernels for this processor"):
        Int8Linear(torch.randn(3, 4), None)


@pytest.mark.skipif("qnnpack" not in torch.backends.quantized.supported_engines, reason="this torch has no qnnpack")
def test_on_a_mac_8_bits_stay_8_and_torch_warns_of_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"neon": True})
    monkeypatch.setattr("aiayn_cli.model.cpu.int8._ENGINES", ("qnnpack",))
    monkeypatch.setattr("aiayn_cli.model.cpu.int8._ENGINE_OF_FEW", "qnnpack")
    torch.manual_seed(3)
    weight, x = torch.randn(48, 64), torch.randn(5, 64)
    expected = x @ weight.T
    assert (Int8Linear(weight, None)(x) - expected).abs().max() < 0.03 * expected.abs().max()
    assert capfd.readouterr().err == "", "a bit less was asked for, which qnnpack ignores and says so"
