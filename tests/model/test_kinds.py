"""Every kind of model keeps the promises that training and search rely on; test_cache.py has those of its steps."""

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aiayn_cli.model.build import build_empty, build_model
from aiayn_cli.model.rivals.recurrent import AdditiveAttention
from aiayn_cli.model.translation_model import NO_LIMIT, TranslationModel, count_parameters
from aiayn_cli.recipe_keys import ModelConfig, ModelKind
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS, PAD_ID

VOCAB = 19
every_kind = pytest.mark.parametrize("kind", ["transformer", "recurrent", "convolutional"])


def make(kind: ModelKind, **settings: object) -> TranslationModel:
    shape: dict[str, object] = {
        "n_encoder_layers": 2, "n_decoder_layers": 3, "d_model": 12, "d_ff": 20, "n_heads": 3, "d_k": 5, "d_v": 7,
        "kernel_size": 4, "dropout": 0.0,
    }  # fmt: skip
    config = ModelConfig(kind=kind, **{**shape, **settings})  # type: ignore[arg-type]
    return build_model(config, VOCAB).double()


def some_sources(lengths: list[int]) -> tuple[Tensor, Tensor]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    src = torch.randint(N_SPECIAL_TOKENS, VOCAB, mask.shape).masked_fill(~mask, PAD_ID)
    return src, mask


@every_kind
@torch.no_grad()
def test_padding_and_neighbours_change_nothing(kind: ModelKind) -> None:
    model = make(kind).eval()
    src, mask = some_sources([3, 9, 5])
    tgt_in = torch.randint(VOCAB, (3, 7))
    together = model(src, mask, tgt_in)
    for i, length in enumerate([3, 9, 5]):
        alone = model(src[i : i + 1, :length], None, tgt_in[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone)


@every_kind
@torch.no_grad()
def test_no_position_sees_a_later_target(kind: ModelKind) -> None:
    model = make(kind).eval()
    src, mask = some_sources([4, 6])
    tgt_in = torch.randint(VOCAB, (2, 8))
    before = model(src, mask, tgt_in)
    tgt_in[:, 5:] = (tgt_in[:, 5:] + 1) % VOCAB
    after = model(src, mask, tgt_in)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert not torch.allclose(after[:, 5:], before[:, 5:])


@every_kind
def test_every_weight_has_a_part_in_the_loss(kind: ModelKind) -> None:
    model = make(kind, share_embeddings="none")
    src, mask = some_sources([4, 6])
    model(src, mask, torch.randint(VOCAB, (2, 5))).square().sum().backward()
    unused = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert unused == []


@every_kind
@pytest.mark.parametrize(("shared", "matrices"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_shared_embeddings_exist_once(kind: ModelKind, shared: str, matrices: int) -> None:
    model = make(kind, share_embeddings=shared)
    embeddings = {m.weight.data_ptr() for m in model.modules() if isinstance(m, nn.Embedding)}
    assert len(embeddings) == matrices
    without = count_parameters(make(kind, share_embeddings="all")) - VOCAB * 12
    assert count_parameters(model) == without + matrices * VOCAB * 12


@every_kind
def test_it_learns_to_copy(kind: ModelKind) -> None:
    # The Transformer with the paper's depth, post-norm and warm-up, and without a trick to keep it stable.
    n_words, warm_up, is_rival = 8, 20, kind != "transformer"
    depth = {"n_encoder_layers": 2, "n_decoder_layers": 3} if is_rival else {}
    config = ModelConfig(kind=kind, **depth, d_model=48, d_ff=96, n_heads=4, d_k=12, d_v=12, kernel_size=3, dropout=0.0)
    model = build_model(config, N_SPECIAL_TOKENS + n_words)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98), eps=1e-9)
    places, losses = torch.arange(5), []
    for update in range(1, 61 if is_rival else 111):
        if not is_rival:
            optimiser.param_groups[0]["lr"] = 2e-3 * min(update / warm_up, (warm_up / update) ** 0.5)
        lengths = torch.randint(2, 5, (32, 1))
        words = torch.randint(N_SPECIAL_TOKENS, N_SPECIAL_TOKENS + n_words, (32, 5))
        src = words.masked_fill(places == lengths, EOS_ID).masked_fill(places > lengths, PAD_ID)
        logits = model(src, src != PAD_ID, functional.pad(src[:, :-1], (1, 0), value=BOS_ID))
        loss = functional.cross_entropy(logits.flatten(0, 1), src.flatten(), ignore_index=PAD_ID)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    # Who does not read the source cannot know 3 words and one of 3 lengths in 4 tokens: 1.83 a token at best.
    blind = (3 * math.log(n_words) + math.log(3)) / 4
    if not is_rival:
        assert max(losses) < 2 * math.log(N_SPECIAL_TOKENS + n_words)
        assert max(losses[-30:]) < 0.8 * blind
    assert sum(losses[-10:]) / 10 < (0.5 if is_rival else 0.65) * blind


@torch.no_grad()
def test_additive_attention_is_what_its_paper_says() -> None:
    attention = AdditiveAttention(5).double()
    queries, memory = torch.randn(2, 3, 5).double(), torch.randn(2, 4, 5).double()
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    found = attention(queries, attention.w_key(memory), memory, mask)
    for b in range(2):
        for t in range(3):
            energies = [
                float(attention.v(torch.tanh(attention.w_query(queries[b, t]) + attention.w_key(memory[b, s]))))
                for s in range(int(mask[b].sum()))
            ]
            total = sum(math.exp(e) for e in energies)
            expected = sum((math.exp(e) / total * memory[b, s] for s, e in enumerate(energies)), torch.zeros(5))
            torch.testing.assert_close(found[b, t], expected)


def test_learned_positions_limit_a_convolutional_model_and_no_recurrent_one() -> None:
    assert make("convolutional", positions="learned", max_positions=33).max_positions == 33
    assert make("convolutional").max_positions == NO_LIMIT
    assert make("recurrent", positions="learned", max_positions=33).max_positions == NO_LIMIT


@every_kind
def test_the_seed_decides_every_weight(kind: ModelKind) -> None:
    weights = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        weights.append(make(kind).state_dict())
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name])
        assert torch.equal(weight, weights[2][name]) == ("norm" in name or (weight == 0).all())


@every_kind
def test_an_empty_model_has_all_shapes_and_no_numbers(kind: ModelKind) -> None:
    config = ModelConfig(kind=kind, d_model=12, n_heads=3, d_k=5, d_v=7, positions="learned", share_embeddings="none")
    state = torch.get_rng_state()
    empty = build_empty(config, VOCAB)
    assert torch.equal(torch.get_rng_state(), state)
    expected = build_model(config, VOCAB).state_dict()
    assert {name: (weight.shape, weight.device.type) for name, weight in empty.state_dict().items()} == {
        name: (weight.shape, "meta") for name, weight in expected.items()
    }


def test_an_empty_model_is_built_without_torchs_compiler() -> None:
    code = (
        "import sys; from aiayn_cli.recipe_keys import ModelConfig; from aiayn_cli.model.build import build_empty\n"
        "for kind in ('transformer', 'recurrent', 'convolutional'):\n"
        "    build_empty(ModelConfig(kind=kind), 99)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "False\n"
