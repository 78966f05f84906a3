"""An update never asks the device for a number, which would make the host wait for a GPU.

There is no GPU here. torch's meta device has shapes and no numbers: whoever asks it for one gets an error.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from aiayn_cli.checkpoint.metrics_log import MetricsLog
from aiayn_cli.config import ModelConfig, TrainingConfig
from aiayn_cli.data.batches import Position, plan_updates
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.cost import TrainingCost
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.train import optimizer as optimizer_module
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Hooks, Trainer

META = torch.device("meta")
SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7)  # model_of's


@pytest.fixture
def trainer_on(
    store_of: Callable[..., TokenStore],
    model_of: Callable[..., TranslationModel],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Trainer]:
    def make(device: torch.device, dtype: torch.dtype = torch.bfloat16, **settings: Any) -> Trainer:
        # torch's fused Adam is one kernel on a GPU, and refuses the meta device.
        monkeypatch.setattr(optimizer_module, "adam", lambda *_, **__: None)
        model = model_of(dtype, dropout=0.1).to(device)
        config = TrainingConfig(batch_tokens=120, max_tokens=60, **settings)
        return Trainer(
            model,
            MasterAdam(model, config),
            store_of(90),
            config,
            Worker(),
            MetricsLog(None),
            Hooks(lambda *_: None, lambda: "", cost=TrainingCost(SHAPE, 31), matmul_rate=1e9),
            TrainingState(),
        )

    return make


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("clip_norm", [0.0, 1.0])
def test_an_update_asks_for_no_number(
    dtype: torch.dtype, clip_norm: float, trainer_on: Callable[..., Trainer], store_of: Callable[..., TokenStore]
) -> None:
    trainer = trainer_on(META, dtype, clip_norm=clip_norm)
    updates = plan_updates(store_of(90), 120, 1, Position())
    for _ in range(4):  # with padding and without, in several micro-batches
        trainer._update(next(updates))
    assert trainer.state.step == 4


def test_whoever_asks_is_found_out(
    trainer_on: Callable[..., Trainer], store_of: Callable[..., TokenStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulate = MasterAdam.accumulate

    def asking(self: MasterAdam) -> None:
        accumulate(self)
        float(self.gradient.norm())

    monkeypatch.setattr(MasterAdam, "accumulate", asking)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        trainer_on(META)._update(next(plan_updates(store_of(90), 120, 1, Position())))


def test_what_is_known_late_is_counted_all_the_same(trainer_on: Callable[..., Trainer]) -> None:
    trainer = trainer_on(torch.device("cpu"), torch.float32, max_updates=5, log_every_steps=2, save_every_steps=5)
    trainer._readback._lag = 1  # as on a GPU
    limit_norm, count = trainer.optimizer.limit_norm, iter(range(5))

    def spoiling(*limits: float) -> tuple[Tensor, Tensor]:
        if next(count) == 2:
            trainer.optimizer.gradient[0] = torch.nan
        return limit_norm(*limits)

    trainer.optimizer.limit_norm = spoiling  # type: ignore[method-assign]
    assert trainer.train() == "max_updates"
    assert trainer.state.skipped == 1
