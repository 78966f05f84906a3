"""The model as it is built learns: the paper's depth and post-norm, without a trick to keep it stable."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from aiayn_cli.config import ModelConfig
from aiayn_cli.model.build import build_model
from aiayn_cli.special_tokens import BOS_ID, EOS_ID, N_SPECIAL_TOKENS, PAD_ID

_WORDS = 8
_WARMUP = 20


def _copy_task(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences of 2 to 4 random words to be copied: what the encoder reads, the decoder reads, it should say."""
    lengths = torch.randint(2, 5, (batch, 1))
    places = torch.arange(5)
    words = torch.randint(N_SPECIAL_TOKENS, N_SPECIAL_TOKENS + _WORDS, (batch, 5))
    src = words.masked_fill(places == lengths, EOS_ID).masked_fill(places > lengths, PAD_ID)
    return src, functional.pad(src[:, :-1], (1, 0), value=BOS_ID), src


def test_six_and_six_layers_learn_to_copy_after_a_short_warm_up() -> None:
    config = ModelConfig(d_model=48, d_ff=96, n_heads=4, d_k=12, d_v=12, dropout=0.0)
    model = build_model(config, N_SPECIAL_TOKENS + _WORDS)
    optimiser = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for update in range(1, 111):
        optimiser.param_groups[0]["lr"] = 2e-3 * min(update / _WARMUP, (_WARMUP / update) ** 0.5)
        src, tgt_in, tgt_out = _copy_task(32)
        logits = model(src, src != PAD_ID, tgt_in)
        loss = functional.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD_ID)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    # Who does not read the source cannot know 3 words and one of 3 lengths in 4 tokens: 1.83 a token at best.
    blind = (3 * math.log(_WORDS) + math.log(3)) / 4
    assert max(losses) < 2 * math.log(N_SPECIAL_TOKENS + _WORDS)
    assert max(losses[-30:]) < 0.8 * blind
    assert sum(losses[-10:]) / 10 < 0.65 * blind
