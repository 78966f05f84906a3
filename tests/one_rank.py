"""What each process of test_distributed.py does: a few updates of a tiny model, and a SIGTERM for one rank."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from aiayn_cli.checkpoint.metrics_log import MetricsLog
from aiayn_cli.config import ModelConfig, TrainingConfig
from aiayn_cli.data.store import TokenStore
from aiayn_cli.model.build import build_model
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.resume import TrainingState
from aiayn_cli.train.trainer import Hooks, Trainer


def learn(
    store: Path, out: Path, interrupted_rank: int, interrupted_update: int, *, dropout: float = 0.0, division: int = 1
) -> None:
    """Train as the rank that the environment says, and leave gradients, weights and state in a folder."""
    torch.manual_seed(11)
    shape = ModelConfig(
        n_encoder_layers=1, n_decoder_layers=1, d_model=16, d_ff=24, n_heads=2, d_k=5, d_v=7, dropout=dropout
    )
    config = TrainingConfig(batch_tokens=150, max_tokens=40, max_updates=99, warmup_steps=4, log_every_steps=1)
    model = build_model(shape, 31)
    optimizer = MasterAdam(model, config)
    gradients: dict[str, torch.Tensor] = {}
    step = optimizer.step

    def watched_step(learning_rate: float) -> None:
        gradients[str(len(gradients))] = optimizer.gradient.clone()
        step(learning_rate)

    optimizer.step = watched_step  # type: ignore[method-assign]
    worker = Worker.from_environment()
    with worker.together():
        trainer = Trainer(
            model,
            optimizer,
            TokenStore(store, "train"),
            config,
            worker,
            MetricsLog(out / "metrics.jsonl" if worker.rank == 0 else None),
            Hooks(
                save=lambda *_: worker.wait(),
                interrupted=lambda: (
                    "SIGTERM" if (worker.rank, len(gradients) + 1) == (interrupted_rank, interrupted_update) else ""
                ),
            ),
            TrainingState(division=division).for_devices(worker.world_size),
        )
        stopped_by = trainer.train()
    weights = {name: weight.clone() for name, weight in optimizer.weights().items()}
    save_file(weights, out / f"weights-{worker.rank}.safetensors")
    save_file(gradients, out / f"gradients-{worker.rank}.safetensors")
    (out / f"state-{worker.rank}.json").write_text(json.dumps([stopped_by, trainer.state.to_json()]))
