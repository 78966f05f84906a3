"""A trainer on one process, and what it asked of its surroundings."""

from dataclasses import dataclass, field

from torch import Tensor

from aiayn_cli.config import ModelConfig, TrainingConfig
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
    saves: list[tuple[int, bool, bool]] = field(default_factory=list)  # step, best, regular
    gradients: list[Tensor] = field(default_factory=list)  # as they were applied
    rates: list[float] = field(default_factory=list)

    @property
    def weights(self) -> dict[str, Tensor]:
        return self.trainer.optimizer.weights()
