"""Attention in blocks gives what the mask over all positions gives, forward and backward, and costs n * r."""

import pytest
import torch
from torch import Tensor

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.attention import attend, written_out_attention
from aiayn_cli.model.build import build_model
from aiayn_cli.model.masks import Window


def _qkv(batch: int, length: int, requires_grad: bool = False) -> list[Tensor]:
    torch.manual_seed(length)
    widths = (5, 5, 7)
    return [torch.randn(batch, 3, length, w, dtype=torch.double, requires_grad=requires_grad) for w in widths]


def _is_token(batch: int, length: int) -> Tensor:
    return (
        torch.arange(length) < torch.tensor([length, *(max(length * i // batch, 1) for i in range(1, batch))])[:, None]
    )


@pytest.mark.parametrize("length", [1, 15, 16, 17, 83])
@pytest.mark.parametrize(
    ("reach", "causal", "padded"),
    [(1, False, True), (2, True, False), (16, False, False), (16, True, True), (20, True, True), (100, False, True)],
)
def test_blocks_equal_the_mask(
    length: int, reach: int, causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Window, "pays", lambda self, length: True)
    window = Window(reach, causal, _is_token(4, length) if padded else None)
    q, k, v = _qkv(4, length)
    expected = written_out_attention(q, k, v, window.mask(length, q.device), 0.0)
    torch.testing.assert_close(attend(q, k, v, window), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_equal_the_mask_s(causal: bool) -> None:
    window = Window(3, causal, _is_token(4, 50))
    blocks, whole = _qkv(4, 50, requires_grad=True), _qkv(4, 50, requires_grad=True)
    attend(*blocks, window).square().sum().backward()
    written_out_attention(*whole, window.mask(50, torch.device("cpu")), 0.0).square().sum().backward()
    for found, expected in zip(blocks, whole, strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


@pytest.mark.parametrize(("causal", "seen"), [(False, 3), (True, 2)])
def test_keys_for_each_query_do_not_grow_with_the_length(causal: bool, seen: int) -> None:
    for length in (100, 1_000):
        q, k, v, mask = Window(20, causal).to_blocks(*_qkv(2, length))
        blocks = length // 20
        assert q.shape == (2 * blocks, 3, 20, 5)
        assert (k.shape, v.shape) == ((2 * blocks, 3, seen * 20, 5), (2 * blocks, 3, seen * 20, 7))
        assert mask.shape == (2 * blocks, 1, 20, seen * 20)
        assert int(mask.any(-1).all()) == 1


def _model(window: int) -> torch.nn.Module:
    torch.manual_seed(1)
    config = ModelConfig(
        n_encoder_layers=2, n_decoder_layers=2, d_model=12, d_ff=20, n_heads=2, d_k=5, d_v=7, dropout=0.0,
        attention_window=window,
    )  # fmt: skip
    return build_model(config, 30).double()


def test_a_model_gives_the_same_in_blocks_as_with_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(window=4)
    src, tgt = torch.randint(4, 30, (3, 90)), torch.randint(4, 30, (3, 70))
    src_mask = torch.arange(90) < torch.tensor([90, 50, 3])[:, None]
    in_blocks = model(src, src_mask, tgt)
    real_pays = Window.pays
    monkeypatch.setattr(Window, "pays", lambda self, length: False)
    torch.testing.assert_close(in_blocks, model(src, src_mask, tgt))
    monkeypatch.setattr(Window, "pays", real_pays)
    assert Window(4, False).pays(90)
    assert Window(4, True).pays(70)
    assert not Window(40, False).pays(90)


def test_incremental_decoding_gives_the_same_as_blocks() -> None:
    model = _model(window=4).eval()
    src, tgt = torch.randint(4, 30, (2, 60)), torch.randint(4, 30, (2, 60))
    with torch.no_grad():
        whole = model(src, None, tgt)
        cache = model.start(model.encode(src, None), None)
        for position in range(60):
            step = model.step(tgt[:, position : position + 1], cache)
            torch.testing.assert_close(step, whole[:, position])


@pytest.mark.parametrize("counts_slots", [True, False])  # as on a CPU, as on a GPU
def test_the_cache_of_incremental_decoding_does_not_grow_with_the_length(counts_slots: bool) -> None:
    model = _model(window=4).eval()
    cache = model.start(model.encode(torch.randint(4, 30, (2, 9)), None), None)
    cache._counts_slots = counts_slots
    sizes = []
    with torch.no_grad():
        for position in range(80):
            model.step(torch.randint(4, 30, (2 * 3, 1)), cache)
            cache.reorder(torch.tensor([0, 0, 1, 3, 4, 4]))
            sizes.append(cache.layers[0]._k.shape[2])
            assert cache.lengths == [position + 1] * 2
    assert max(sizes) == sizes[20] < 40  # 3 hypotheses x (4 before + 1), in pools that grow by 16
