import pytest
import torch
from torch import Tensor, nn

from aiayn_cli.model.attention import MultiHeadAttention
from aiayn_cli.model.build import build_model
from aiayn_cli.model.embeddings import LearnedPositions
from aiayn_cli.recipe_keys import ModelConfig, Norm

_CONFIG = ModelConfig(
    n_encoder_layers=1, n_decoder_layers=1, d_model=160, d_ff=300, n_heads=6, d_k=30, d_v=50, positions="learned",
    share_embeddings="none", attention_bias=True, norm="pre",
)  # fmt: skip


def _assert_uniform_within_glorots_bound(matrix: Tensor) -> None:
    """U(-b, b) with b = sqrt(6 / (fan_in + fan_out)): nothing outside, the edge reached, the right deviation."""
    bound = (6 / sum(matrix.shape)) ** 0.5
    n = matrix.numel()
    assert matrix.abs().max() <= bound
    assert matrix.abs().max() > bound * (1 - 20 / n)
    assert abs(matrix.mean().item()) < 5 * bound / (3 * n) ** 0.5
    assert matrix.std().item() == pytest.approx(bound / 3**0.5, rel=5 / n**0.5)


def test_every_matrix_has_glorots_bound_and_the_fused_ones_one_for_each_of_their_three() -> None:
    model = build_model(_CONFIG, 500)
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    fused = {id(attention.w_qkv) for attention in attentions}
    assert (len(linears), len(attentions)) == (10, 3)
    for linear in linears:
        if id(linear) not in fused:
            _assert_uniform_within_glorots_bound(linear.weight.detach())
    for attention in attentions:
        for matrix in attention.w_qkv.weight.detach().split([6 * 30, 6 * 30, 6 * 50]):
            _assert_uniform_within_glorots_bound(matrix)


def test_biases_start_at_zero_and_norms_as_the_identity() -> None:
    model = build_model(_CONFIG, 500)
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 7
    assert all((norm.weight == 1).all() for norm in norms)
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    assert len(biases) == 7 + 10
    assert all((bias == 0).all() for bias in biases)


def test_embeddings_enter_the_network_with_unit_variance() -> None:
    model = build_model(_CONFIG, 500)
    for embedding in (model.src_embedding, model.tgt_embedding, model.output):
        n = embedding.weight.numel()
        assert (embedding.weight * 160**0.5).std().item() == pytest.approx(1, rel=5 / (2 * n) ** 0.5)
        assert abs(embedding.weight.mean().item()) < 5 / (160 * n) ** 0.5


def test_learned_positions_start_small_beside_the_tokens() -> None:
    positions = [module for module in build_model(_CONFIG, 500).modules() if isinstance(module, LearnedPositions)]
    assert len(positions) == 2
    for table in positions:
        assert table.weight.std().item() == pytest.approx(0.02, rel=5 / (2 * table.weight.numel()) ** 0.5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_a_fresh_model_of_full_depth_predicts_almost_uniformly(norm: Norm) -> None:
    config = ModelConfig(d_model=128, d_ff=512, n_heads=4, d_k=32, d_v=32, norm=norm)
    model = build_model(config, 1_000).eval()
    tokens = torch.randint(1_000, (4, 9))
    logits = model(tokens, None, torch.randint(1_000, (4, 7)))
    assert 0.8 < logits.std() < 1.2  # a normed vector times N(0, 1 / d_model)
