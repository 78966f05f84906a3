import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.config import ModelConfig, Norm, ShareEmbeddings
from aiayn_cli.model.build import build_model
from aiayn_cli.model.transformer import Transformer

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

_VOCAB = 29
_ALMOST_ONE = 1 - 2**-16  # the highest probability that dropout can round to: what it acts on vanishes


def _config(**settings: object) -> ModelConfig:
    small: dict[str, object] = {
        "n_encoder_layers": 2, "n_decoder_layers": 3, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 5, "d_v": 7,
        "dropout": 0.0,
    }  # fmt: skip
    return ModelConfig(**(small | settings))


def _model(**settings: object) -> Transformer:
    return build_model(_config(**settings), _VOCAB)


def _batch() -> tuple[Tensor, Tensor, Tensor]:
    src_mask = torch.arange(6) < torch.tensor([[6], [3], [1], [5]])
    return torch.randint(_VOCAB, (4, 6)), src_mask, torch.randint(_VOCAB, (4, 8))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 31, 64, 511, 512, 513])
def test_a_projection_in_blocks_of_words_is_the_one_of_all_words(rows: int) -> None:
    torch.manual_seed(rows)
    model = build_model(_config(), 1_700)
    hidden = torch.randn(rows, 12)
    with torch.inference_mode():
        logits = model.project(hidden)
        torch.testing.assert_close(logits, functional.linear(hidden, model.output.weight))
        assert torch.equal(model.project(hidden.view(rows, 1, 12)), logits.view(rows, 1, -1))


@pytest.mark.parametrize(("share", "tied"), [("all", ["src_embedding", "tgt_embedding", "output"]),
                                             ("decoder", ["tgt_embedding", "output"])])  # fmt: skip
def test_a_tied_matrix_gets_the_sum_of_its_gradients(share: ShareEmbeddings, tied: list[str]) -> None:
    shared, separate = _model(share_embeddings=share).double(), _model(share_embeddings="none").double()
    separate.load_state_dict(shared.state_dict())
    src, src_mask, tgt_in = _batch()
    for model in (shared, separate):
        model(src, src_mask, tgt_in).log_softmax(dim=-1)[..., 3].sum().backward()
    parts = [separate.get_parameter(f"{name}.weight").grad for name in tied]
    assert all(part is not None and part.abs().sum() > 0 for part in parts)
    torch.testing.assert_close(shared.get_parameter(f"{tied[0]}.weight").grad, sum(parts))
    if share == "decoder":
        torch.testing.assert_close(shared.src_embedding.weight.grad, separate.src_embedding.weight.grad)


def test_the_sum_of_embedding_and_position_passes_through_dropout_in_both_stacks() -> None:
    model = _model(norm="pre", dropout=_ALMOST_ONE)  # pre: the residual path alone, so that nothing else remains
    src, src_mask, tgt_in = _batch()
    entered = []
    for layer in (model.encoder_layers[0], model.decoder_layers[0]):
        layer.register_forward_pre_hook(lambda _, arguments: entered.append(arguments[0]))
    logits = model(src, src_mask, tgt_in)
    assert [x.abs().sum().item() for x in entered] == [0, 0]
    assert logits.abs().sum() == 0  # no sub-layer adds anything either


def test_evaluation_loses_nothing_and_training_repeats_with_its_seed() -> None:
    model = _model(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    src, src_mask, tgt_in = _batch()
    torch.manual_seed(8)
    first, second = model(src, src_mask, tgt_in), model(src, src_mask, tgt_in)
    torch.manual_seed(8)
    assert torch.equal(model(src, src_mask, tgt_in), first)
    assert not torch.equal(first, second)
    without = _model()
    without.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(src, src_mask, tgt_in), without(src, src_mask, tgt_in))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("way", ["weights", "autocast"])
@torch.no_grad()
def test_bf16_stays_near_fp32(norm: Norm, way: str) -> None:
    model = build_model(ModelConfig(d_model=64, d_ff=128, n_heads=4, d_k=16, d_v=16, norm=norm), 101).eval()
    src, src_mask, tgt_in = _batch()
    exact = model(src, src_mask, tgt_in)
    memory = model.encode(src, src_mask)
    cache = model.start(memory, src_mask)
    if way == "weights":
        model.bfloat16()
        cache = model.start(memory.bfloat16(), src_mask)
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        found = model(src, src_mask, tgt_in).float()
        stepped = model.step(tgt_in, cache).float()
    assert (found - exact).norm() / exact.norm() < 0.03
    assert (stepped - exact[:, -1]).norm() / exact[:, -1].norm() < 0.03
    assert (found - exact).norm() > 0


@torch.no_grad()
def test_no_memory_is_read_before_it_is_written() -> None:
    model = _model(dropout=0.2, attention_dropout=0.2)
    src, src_mask, tgt_in = _batch()
    torch.use_deterministic_algorithms(True)  # fills what torch.empty returns with NaN
    try:
        assert torch.empty(3).isnan().all()
        for mask in (src_mask, None):
            memory = model.encode(src, mask)
            assert model(src, mask, tgt_in).isfinite().all()
            cache = model.start(memory, mask)
            for start, end in ((0, 1), (1, 4), (4, 8)):
                assert model.step(tgt_in[:, start:end], cache).isfinite().all()
                cache.reorder(torch.arange(4))
    finally:
        torch.use_deterministic_algorithms(False)
