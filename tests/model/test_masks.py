"""What must not reach an output does not, and what should does: causal, padding and window masks in the whole model.

A window in blocks gives what its mask over all positions gives, and costs length * reach.
"""

import pytest
import torch
from torch import Tensor

from aiayn_cli.model import attention
from aiayn_cli.model.attention import attend, written_out_attention
from aiayn_cli.model.build import build_model
from aiayn_cli.model.masks import Window
from aiayn_cli.model.transformer import Transformer
from aiayn_cli.recipe_keys import ModelConfig, Norm

_VOCAB = 100
_LENGTH = 11


def _model(norm: Norm = "post", window: int = 0, encoder_layers: int = 2, decoder_layers: int = 3) -> Transformer:
    config = ModelConfig(
        n_encoder_layers=encoder_layers, n_decoder_layers=decoder_layers, d_model=12, d_ff=20, n_heads=3, d_k=5, d_v=7,
        dropout=0, norm=norm, attention_window=window, share_embeddings="none",
    )  # fmt: skip
    return build_model(config, _VOCAB).double()


def _tokens(length: int, first: int = 0) -> Tensor:
    """[1, length], every token once, so that an embedding's row stands for one position."""
    return torch.arange(first, first + length)[None]


def _moved_and_touched(output: Tensor, changed: Tensor, weight: Tensor, place: int) -> tuple[list[bool], list[bool]]:
    """Which positions of an output [1, length, d] differ, and which tokens' embeddings have a gradient at one place."""
    grad = torch.autograd.grad(output[0, place].square().sum(), weight)[0]
    return (output != changed).any(dim=2)[0].tolist(), (grad != 0).any(dim=1).tolist()


@pytest.mark.parametrize(("norm", "place"), [("post", 0), ("post", 4), ("pre", 4), ("pre", _LENGTH - 1)])
def test_a_target_position_sees_itself_and_its_past_only(norm: Norm, place: int) -> None:
    model = _model(norm)
    memory = torch.randn(1, 5, 12).double()
    tgt_in = _tokens(_LENGTH)
    other = tgt_in.clone()
    other[0, place] = 77
    output, changed = model.decode(tgt_in, memory, None), model.decode(other, memory, None)
    moved, touched = _moved_and_touched(output, changed, model.tgt_embedding.weight, place)
    assert moved == [i >= place for i in range(_LENGTH)]
    assert touched[:_LENGTH] == [i <= place for i in range(_LENGTH)]


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("window", [0, 4])
def test_padding_is_never_read(norm: Norm, window: int) -> None:
    model = _model(norm, window)
    src, tgt_in = _tokens(_LENGTH), _tokens(7, first=50)
    src_mask = torch.arange(_LENGTH)[None] < 8
    other = src.clone()
    other[0, 8:] = torch.tensor([91, 92, 93])
    memory = model.encode(src, src_mask)
    assert torch.equal(memory[:, :8], model.encode(other, src_mask)[:, :8])
    logits = model(src, src_mask, tgt_in)
    assert torch.equal(logits, model(other, src_mask, tgt_in))
    grad = torch.autograd.grad(logits.square().sum(), model.src_embedding.weight)[0]
    assert (grad != 0).any(dim=1).tolist() == [i < 8 for i in range(_VOCAB)]
    cache, other_cache = (model.start(model.encode(x, src_mask), src_mask) for x in (src, other))
    assert torch.equal(model.step(tgt_in, cache), model.step(tgt_in, other_cache))


@pytest.mark.parametrize(("window", "layers", "place"), [(1, 1, 0), (3, 1, 5), (1, 2, 7), (2, 2, 5)])
def test_a_window_reaches_exactly_its_neighbourhood_in_each_layer(window: int, layers: int, place: int) -> None:
    model = _model(window=window, encoder_layers=layers, decoder_layers=layers)
    reach = window * layers
    src = _tokens(_LENGTH)
    other = src.clone()
    other[0, place] = 77
    output, changed = model.encode(src, None), model.encode(other, None)
    moved, touched = _moved_and_touched(output, changed, model.src_embedding.weight, place)
    assert moved == touched[:_LENGTH] == [abs(i - place) <= reach for i in range(_LENGTH)]

    memory = torch.randn(1, 5, 12).double()
    output, changed = model.decode(src, memory, None), model.decode(other, memory, None)
    moved, touched = _moved_and_touched(output, changed, model.tgt_embedding.weight, place)
    assert moved == [place <= i <= place + reach for i in range(_LENGTH)]
    assert touched[:_LENGTH] == [place - reach <= i <= place for i in range(_LENGTH)]


def test_a_window_does_not_limit_what_the_decoder_reads_of_the_source() -> None:
    model = _model(window=1, encoder_layers=1, decoder_layers=1)
    memory = torch.randn(1, 9, 12).double().requires_grad_()
    grad = torch.autograd.grad(model.decode(_tokens(4), memory, None)[0, 0].square().sum(), memory)[0]
    assert (grad != 0).any(dim=2).all()


def test_a_window_that_meets_only_padding_leaves_numbers_and_gradients_finite() -> None:
    model = _model(window=1)
    src_mask = torch.arange(_LENGTH) < torch.tensor([[1], [4], [11]])
    logits = model(torch.randint(_VOCAB, (3, _LENGTH)), src_mask, torch.randint(_VOCAB, (3, 7)))
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("window", [0, 3])
@torch.no_grad()
def test_the_fused_path_of_long_sequences_blocks_too(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_WRITTEN_OUT_BELOW", 0)
    model = _model(window=window, encoder_layers=1, decoder_layers=1)
    src, tgt_in = torch.randint(_VOCAB, (2, 300)), torch.randint(_VOCAB, (2, 310))
    src_mask = torch.arange(300) < torch.tensor([[300], [170]])
    other_src, other_tgt = src.clone(), tgt_in.clone()
    other_src[1, 170:] = 5
    other_tgt[:, 140:] = 6
    logits = model(src, src_mask, tgt_in)
    assert torch.equal(logits[:, :140], model(other_src, src_mask, other_tgt)[:, :140])
    alone = model(src[1:, :170], None, tgt_in[1:, :140])
    torch.testing.assert_close(logits[1:, :140], alone)


def _qkv(batch: int, length: int) -> list[Tensor]:
    torch.manual_seed(length)
    return [torch.randn(batch, 3, length, w, dtype=torch.double, requires_grad=True) for w in (5, 5, 7)]


@pytest.mark.parametrize("length", [1, 15, 16, 17, 83])
@pytest.mark.parametrize(
    ("reach", "causal", "padded"),
    [(1, False, True), (2, True, False), (16, False, False), (16, True, True), (20, True, True), (100, False, True)],
)
def test_blocks_equal_the_mask_in_output_and_gradient(
    length: int, reach: int, causal: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Window, "pays", lambda self, length: True)
    lengths = torch.tensor([length, *(max(length * i // 4, 1) for i in (1, 2, 3))])
    window = Window(reach, causal, torch.arange(length) < lengths[:, None] if padded else None)
    q, k, v = inputs = _qkv(4, length)
    found = attend(q, k, v, window)
    expected = written_out_attention(q, k, v, window.mask(length, q.device), 0.0)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(out.square().sum(), inputs) for out in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("causal", "seen"), [(False, 3), (True, 2)])
def test_keys_for_each_query_do_not_grow_with_the_length(causal: bool, seen: int) -> None:
    for length in (100, 1_000):
        q, k, v, mask = Window(20, causal).to_blocks(*_qkv(2, length))
        blocks = length // 20
        assert q.shape == (2 * blocks, 3, 20, 5)
        assert (k.shape, v.shape) == ((2 * blocks, 3, seen * 20, 5), (2 * blocks, 3, seen * 20, 7))
        assert mask.shape == (2 * blocks, 1, 20, seen * 20)
        assert int(mask.any(-1).all()) == 1


def test_a_model_gives_the_same_in_blocks_as_with_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(window=4)
    src, tgt = torch.randint(_VOCAB, (3, 90)), torch.randint(_VOCAB, (3, 70))
    src_mask = torch.arange(90) < torch.tensor([90, 50, 3])[:, None]
    assert Window(4, False).pays(90)
    assert Window(4, True).pays(70)
    assert not Window(40, False).pays(90)
    in_blocks = model(src, src_mask, tgt)
    monkeypatch.setattr(Window, "pays", lambda self, length: False)
    torch.testing.assert_close(in_blocks, model(src, src_mask, tgt))


@pytest.mark.parametrize("counts_slots", [True, False])  # as on a CPU, as on a GPU
@torch.no_grad()
def test_the_cache_of_incremental_decoding_does_not_grow_with_the_length(counts_slots: bool) -> None:
    model = _model(window=4).eval()
    cache = model.start(model.encode(torch.randint(_VOCAB, (2, 9)), None), None)
    cache._counts_slots = counts_slots
    sizes = []
    for position in range(80):
        model.step(torch.randint(_VOCAB, (2 * 3, 1)), cache)
        cache.reorder(torch.tensor([0, 0, 1, 3, 4, 4]))
        sizes.append(cache.layers[0]._k.shape[2])
        assert cache.lengths == [position + 1] * 2
    assert max(sizes) == sizes[20] < 40  # 3 hypotheses x (4 before + 1), in pools that grow by 16
