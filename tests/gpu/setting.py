"""Where and how large the checks are, and the real trainer as they use it."""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from aiayn_cli.checkpoint.metrics_log import MetricsLog
from aiayn_cli.data.store import TokenStore
from aiayn_cli.device import Device
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import ModelConfig, TrainingConfig
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Hooks, Trainer

SMALL = ModelConfig(n_encoder_layers=4, n_decoder_layers=4, d_model=256, d_ff=1024, n_heads=4)
TINY = ModelConfig(n_encoder_layers=2, n_decoder_layers=2, d_model=64, d_ff=128, n_heads=4, d_k=16, d_v=16)


class Setting:
    """Where and how large the checks are."""

    def __init__(self, arguments: argparse.Namespace, device: Device, folder: Path) -> None:
        self.device, self.device_name, self.folder = device, arguments.device, folder
        self.small, self.compile = arguments.small, arguments.compile
        self.seconds = arguments.seconds if arguments.seconds is not None else 1.0 if self.small else 25.0

    def wait(self) -> None:
        """Until the device has done what it was asked to do."""
        if self.device.device.type == "cuda":
            torch.cuda.synchronize(self.device.device)


def a_trainer(
    model: TranslationModel,
    shape: ModelConfig,
    store: TokenStore,
    config: TrainingConfig,
    setting: Setting,
    interrupted: Callable[[], str],
    metrics: MetricsLog,
    rate: float,
    weights: dict[str, torch.Tensor] | None = None,
) -> Trainer:
    """The real trainer without validation and checkpoints."""
    return Trainer(
        model,
        MasterAdam(model, config, weights),
        store,
        config,
        Worker(),
        metrics,
        Hooks(
            save=lambda *_: None,
            interrupted=interrupted,
            cost=TrainingCost(shape, model.output.num_embeddings),
            matmul_rate=rate,
        ),
        TrainingState(),
    )
