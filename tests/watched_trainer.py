"""A trainer on one process, and what it asked of its surroundings."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from made_pairs import read_pair
from torch import Tensor
from torch.nn import functional

from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import ModelConfig, TrainingConfig
from aiayn_cli.special_tokens import BOS_ID, EOS_ID
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.trainer import Trainer

CONFIG = TrainingConfig(
    batch_tokens=120, max_tokens=1_000, max_updates=6, warmup_steps=4, save_every_steps=2, log_every_steps=1, seed=5
)
SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7)  # model_of's
VOCAB_SIZE = 31


@dataclass
class Watched:
    """A trainer, and what it asked of its surroundings."""

    trainer: Trainer
    gradients: list[Tensor]  # as they were applied
    saves: list[tuple[int, bool, bool]] = field(default_factory=list)  # step, best, regular

    @property
    def weights(self) -> dict[str, Tensor]:
        return self.trainer.optimizer.weights()


def watch_steps(optimizer: MasterAdam) -> list[Tensor]:
    """A list that grows with the gradient of each step."""
    gradients, step = list[Tensor](), optimizer.step

    def watched(learning_rate: float) -> None:
        gradients.append(optimizer.gradient.clone())
        step(learning_rate)

    optimizer.step = watched  # type: ignore[method-assign]
    return gradients


def mean_loss(model: TranslationModel, store: TokenStore, pairs: Iterable[int], smoothing: float = 0.0) -> Tensor:
    """The mean over all target tokens, a pair at a time without padding, by torch's own loss."""
    total, tokens = torch.zeros(()), 0
    for pair in pairs:
        src, tgt = (ids.tolist() for ids in read_pair(store, int(pair)))
        logits = model(torch.tensor([[*src, EOS_ID]]), None, torch.tensor([[BOS_ID, *tgt]]))[0]
        targets = torch.tensor([*tgt, EOS_ID])
        total = total + functional.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
        tokens += len(targets)
    return total / tokens
