"""Operations are those that torch counts when the network runs, less what masks hide; the paper's figures follow."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from aiayn_cli.model.build import build_model
from aiayn_cli.model.cost import PAPER_FLOPS, TrainingCost, compared_to_paper
from aiayn_cli.recipe_keys import ModelConfig

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # said where oneDNN is switched

SHAPE = ModelConfig(n_encoder_layers=2, n_decoder_layers=3, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7, dropout=0)
HEADS = 2 * (5 + 7)  # widths of keys and values, all heads together
VOCAB_SIZE = 31


def counted_by_torch(src: int, tgt: int, *, backward: bool, shape: ModelConfig = SHAPE) -> int:
    """Operations of one pair, end tokens in the lengths, with every place of self-attention computed."""
    model = build_model(shape, VOCAB_SIZE)
    # oneDNN's LSTM is one operation, which the counter does not know; without it, products remain.
    with torch.backends.mkldnn.flags(enabled=False), FlopCounterMode(display=False) as counter:
        logits = model(torch.randint(4, VOCAB_SIZE, (1, src)), None, torch.randint(4, VOCAB_SIZE, (1, tgt)))
        if backward:
            logits.sum().backward()
    return int(counter.get_total_flops())


def lengths(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


@pytest.mark.parametrize("changes", [{}, {"kind": "recurrent"}, {"kind": "convolutional", "kernel_size": 4}], ids=str)
@pytest.mark.parametrize(("src", "tgt"), [(1, 1), (7, 10), (12, 5)])
def test_operations_are_what_torch_counts_without_the_places_that_the_causal_mask_hides(
    changes: dict[str, Any], src: int, tgt: int
) -> None:
    shape = replace(SHAPE, **changes)
    hidden = 0 if changes else 2 * 3 * HEADS * (tgt * (tgt - 1) // 2)  # two operations, three layers
    cost, pair = TrainingCost(shape, VOCAB_SIZE), (lengths(src - 1), lengths(tgt - 1))
    assert cost.forward_flops(*pair) == counted_by_torch(src, tgt, backward=False, shape=shape) - hidden
    if not changes:
        assert cost.update_flops(*pair) == counted_by_torch(src, tgt, backward=True) - 3 * hidden


@pytest.mark.parametrize("reach", [1, 3, 50])
def test_a_window_leaves_out_what_is_beyond_its_reach(reach: int) -> None:
    src, tgt = 9, 6
    seen_by_encoder = sum(abs(i - j) <= reach for i in range(src) for j in range(src))
    seen_by_decoder = sum(0 <= i - j <= reach for i in range(tgt) for j in range(tgt))
    hidden = 2 * HEADS * (2 * (src * src - seen_by_encoder) + 3 * (tgt * tgt - seen_by_decoder))
    cost = TrainingCost(replace(SHAPE, attention_window=reach), VOCAB_SIZE)
    found = cost.forward_flops(lengths(src - 1), lengths(tgt - 1))
    assert found == counted_by_torch(src, tgt, backward=False) - hidden


def test_pairs_add_up_however_many_are_read_at_once() -> None:
    random = np.random.default_rng(1)
    src, tgt = random.integers(1, 40, 23).astype(np.int32), random.integers(1, 40, 23).astype(np.int32)
    cost = TrainingCost(SHAPE, VOCAB_SIZE)
    alone = sum(cost.update_flops(src[i : i + 1], tgt[i : i + 1]) for i in range(23))
    assert cost.update_flops(src, tgt) == alone
    chunks = [(src[i : i + 5], tgt[i : i + 5]) for i in range(0, 23, 5)]
    assert cost.run_flops(chunks, 100, 9) == cost.run_flops([(src, tgt)], 100, 9) > alone


def test_a_run_costs_one_pass_over_the_corpus_times_the_passes() -> None:
    src, tgt = lengths(9, 4, 14), lengths(7, 9, 14)  # 10 + 10 + 15 tokens with the end token: 4 updates of at most 10
    cost = TrainingCost(SHAPE, VOCAB_SIZE)
    assert cost.run_flops([(src, tgt)], 10, 8) == 2 * cost.update_flops(src, tgt)
    assert cost.run_flops([(src, tgt)], 35, 1) == cost.update_flops(src, tgt)
    assert cost.run_flops([(lengths(), lengths())], 10, 8) == 0


def test_the_papers_figures_follow_from_its_method() -> None:
    assert pytest.approx(12 * 3600 * 8 * 9.5e12, rel=0.01) == PAPER_FLOPS["base"]
    assert pytest.approx(3.5 * 86400 * 8 * 9.5e12, rel=0.01) == PAPER_FLOPS["big"]


def test_the_papers_base_model_needs_a_part_of_what_its_time_would_have_allowed() -> None:
    # 100,000 updates of 25,000 tokens a side: counted operations are below time x rate, and not by orders.
    sentences = np.full(1000, 24, np.int32)
    flops = TrainingCost(ModelConfig(), 37_000).run_flops([(sentences, sentences)], 25_000, 100_000)
    assert 0.1 < flops / PAPER_FLOPS["base"] < 0.6
    # the usual estimate: 6 operations a token and weight, where source tokens meet one half of the network
    assert flops == pytest.approx(6 * 100_000 * 25_000 * 63e6, rel=0.15)
    assert compared_to_paper(1.234e17) == "1.2e+17 FLOPs (paper: base 3.3e18, big 2.3e19)"
