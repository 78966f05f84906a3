"""One call of `aiayn train` on one run, from its folder to its result."""

import math
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint.format import Checkpoint, TrainingSnapshot, save_checkpoint
from aiayn_cli.checkpoint.metrics import MetricsLog, Record
from aiayn_cli.checkpoint.run import checkpoint_path, interrupted_path, mark_best, newest_resumable, prune_checkpoints
from aiayn_cli.config import Recipe, TrainingConfig
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import TokenStore
from aiayn_cli.device import Device, matmul_rate
from aiayn_cli.errors import AiaynError, Terminated
from aiayn_cli.model.build import build_model
from aiayn_cli.model.cost import TrainingCost, beside_the_paper
from aiayn_cli.model.translation_model import count_parameters
from aiayn_cli.recipe import load_recipe
from aiayn_cli.train.changed_settings import continued_recipe
from aiayn_cli.train.compilation import compile_layers
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.report import REPORT, write_report
from aiayn_cli.train.result import TrainResult
from aiayn_cli.train.run_folder import check_is_free, check_is_of, finish_saving, write_run
from aiayn_cli.train.signals import signals
from aiayn_cli.train.start import (
    check_data,
    check_memory,
    finished,
    load_newest,
    longest_validated,
    too_long,
    warn_of_disk,
    with_max_tokens,
)
from aiayn_cli.train.state import TrainingState
from aiayn_cli.train.tensorboard import TensorBoardLog
from aiayn_cli.train.trainer import Hooks, Trainer
from aiayn_cli.train.validation_bleu import ValidationBleu

_WHAT_BEST_MEANS = ("training.best_metric ", "training.validation_bleu_pairs ")  # changed settings, as they are listed


class Session:
    """One call of `aiayn train` on one run."""

    def __init__(
        self, run: Path, recipe: Recipe, data: PreparedData, device: Device, worker: Worker, tensorboard: bool
    ) -> None:
        self.run, self.data, self.device, self.worker = run, data, device, worker
        self.tensorboard = tensorboard
        self.valid = data.valid if data.valid is not None and len(data.valid) else None
        check_data(data, recipe)
        check_memory(recipe, data.vocab_size, device)
        self.run_id, self.changes = "", list[str]()
        if worker.rank == 0:  # the run's folder need not be on other machines
            if newest_resumable(run) is None:
                check_is_free(run)
                self.run_id = uuid.uuid4().hex
            else:
                self.run_id = check_is_of(data, run)
                recipe, self.changes = continued_recipe(load_recipe(str(run / "recipe.yaml")), recipe, run)
        self.written_recipe, self.recipe = recipe, with_max_tokens(recipe, device)
        torch.manual_seed(recipe.training.seed)
        self.model = build_model(recipe.model, data.vocab_size).to(device.device)
        weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}  # float32
        self.model.to(device.dtype)
        self.optimizer = MasterAdam(self.model, self.recipe.training, weights)
        self.metrics = MetricsLog(None)
        self.cost = TrainingCost(recipe.model, data.vocab_size)
        self.matmul_rate = math.nan  # measured when there is something to train
        self.validation_bleu: ValidationBleu | None = None  # where there is something to train

    def train(self) -> TrainResult:
        """Train until the end, or a signal.

        Raises:
            AiaynError: the run cannot go on; each reason is named.
            Terminated: SIGTERM arrived; a checkpoint was saved.
            KeyboardInterrupt: Ctrl-C; a checkpoint was saved.
        """
        state = self.start_state(touch=True)
        if enough := finished(self.recipe.training, state):
            logs.notice(f"{self.run} {enough}")
            return self._result("already done", state)
        self.validation_bleu = self._validation_bleu()
        self._open_run(state)
        if state.step:
            logs.notice(f"going on with {self.run} from update {state.step:,}")
            for change in self.changes:
                logs.notice(f"changed setting applied: {change}")
        if state.step or self.metrics.latest:  # also where a crash came before the first checkpoint
            self.metrics.write("resume", step=state.step)
        self.matmul_rate = matmul_rate(self.device)
        with signals() as interrupted:
            score = None if self.validation_bleu is None else self.validation_bleu.score
            hooks = Hooks(self._save, score, interrupted, self._load, self.cost, self.matmul_rate)
            config = self.recipe.training
            trainer = self.trainer(state, hooks, config=config, valid=self.valid)
            self._announce(state)
            with logs.progress("training", config.max_updates, "updates", done=state.step) as progress:
                stopped_by = trainer.train(progress)
        if stopped_by == "SIGTERM":
            raise Terminated(
                f"stopped by SIGTERM at update {trainer.state.step:,}; {self.run} is saved",
                "the same command goes on from there",
            )
        if stopped_by == "SIGINT":
            logs.notice(
                f"stopped at update {trainer.state.step:,}; {self.run} is saved: the same command goes on from there"
            )
            raise KeyboardInterrupt
        return self._result(stopped_by, trainer.state)

    def start_state(self, *, touch: bool) -> TrainingState:
        """Where to begin, with weights and moments in every process's optimizer.

        Args:
            touch: whether to mend what a crash left in the run's folder.
        """
        found = self._load(touch=touch)
        if touch and self.worker.rank == 0 and found is not None:
            finish_saving(self.run, found.best_step, self.recipe.training.keep_checkpoints)
        state = (found or TrainingState()).for_devices(self.worker.world_size)
        if found is not None and state.division != found.division:
            logs.notice(
                f"updates are divided for {state.division} devices from here on, before for {found.division}: "
                "the pairs are the same, dropout is not"
            )
        if any(change.startswith(_WHAT_BEST_MEANS) for change in self.changes):
            state = replace(state, best_value=None, worse_validations=0)  # what is not comparable with the next
        if any(change.startswith("training.max_tokens ") for change in self.changes):
            state = replace(state, max_tokens=0)
        return TrainingState.from_json(self.worker.share(state.to_json()), self.run)

    def _load(self, *, touch: bool = True) -> TrainingState | None:
        """Put weights and moments of the newest checkpoint into every process's optimizer; give its state."""
        moments: dict[str, Tensor] | None = None

        def on_rank_0() -> dict[str, Any]:
            nonlocal moments
            loaded = load_newest(self.run, self.optimizer.weights(), len(self.data.train), touch=touch)
            if loaded is None:
                return {"state": None}
            state, moments = loaded
            return {"state": state.to_json()}

        content = self.worker.from_rank_0(on_rank_0)["state"]
        state = None if content is None else TrainingState.from_json(content, self.run)
        adam_steps = 0 if state is None else state.step - state.skipped  # Adam never saw the skipped ones
        if moments is not None:
            self.optimizer.load_moments(moments, adam_steps)
        self.optimizer.spread(self.worker, adam_steps)
        return state

    def trainer(
        self, state: TrainingState, hooks: Hooks, *, config: TrainingConfig, valid: TokenStore | None
    ) -> Trainer:
        """The loop, ready to train.

        Args:
            state: where to begin.
            hooks: what the loop asks of its surroundings.
            config: the recipe's training section, or a changed one.
            valid: the pairs to validate on.
        """
        device = self.device.device
        compile_layers(self.model, config.compile, device)
        return Trainer(
            self.model,
            self.optimizer,
            self.data.train,
            valid,
            config,
            d_model=self.recipe.model.d_model,
            device=device,
            worker=self.worker,
            metrics=self.metrics,
            hooks=hooks,
            state=state,
            longest_validated=longest_validated(self.data, self.recipe),
        )

    def _open_run(self, state: TrainingState) -> None:
        """Create the run folder, or bring the existing one up to date."""
        if self.worker.rank != 0:
            return
        write_run(self.run, self.run_id, self.data, self.written_recipe, count_parameters(self.model))
        listeners = [self._renew_report]
        if self.tensorboard:
            listeners.append(TensorBoardLog(self.run / "tensorboard", state.step).write)
        self.metrics = MetricsLog(self.run / "metrics.jsonl", listeners)

    def _announce(self, state: TrainingState) -> None:
        config, pairs = self.recipe.training, len(self.data.train)
        src_tokens = self.data.train.n_tokens("src") + pairs
        tgt_tokens = self.data.train.n_tokens("tgt") + pairs
        logs.notice(
            f"model: {count_parameters(self.model):,} parameters; data: {self.data.folder}, {pairs:,} pairs, "
            f"{src_tokens:,} source and {tgt_tokens:,} target tokens; run: {self.run}, "
            f"updates {state.step + 1:,} to {config.max_updates:,} of {config.batch_tokens:,} tokens"
        )
        run_flops = self.cost.run_flops(self.data.train.length_chunks(), config.batch_tokens, config.max_updates)
        logs.notice(
            f"cost: {beside_the_paper(run_flops)} in {config.max_updates:,} updates; large matrix products run at "
            f"{self.matmul_rate / 1e12:.3g} TFLOP/s here, on each of {self.worker.world_size} devices"
        )
        self.metrics.write(
            "start",
            step=state.step,
            updates=config.max_updates,
            run_flops=run_flops,
            matmul_rate=round(self.matmul_rate),
            devices=self.worker.world_size,
            device=self.device.explanation,
        )
        if self.valid is not None and (n := too_long(self.valid, longest_validated(self.data, self.recipe))):
            logs.notice(f"{n:,} validation pairs are too long for the network and left out of the validation loss")
        if self.worker.rank == 0:
            warn_of_disk(self.run, self.optimizer.weights().values(), config)
        if self.valid is None:
            logs.notice("no validation data: nothing says which checkpoint is the best")

    def _save(self, state: TrainingState, best: bool, regular: bool) -> None:
        def on_rank_0() -> dict[str, Any]:
            self._write_checkpoint(state, best, regular)
            return {}

        self.worker.from_rank_0(on_rank_0)

    def _write_checkpoint(self, state: TrainingState, best: bool, regular: bool) -> None:
        path = checkpoint_path(self.run, state.step) if regular else interrupted_path(self.run, state.step)
        checkpoint = Checkpoint(
            path=path,
            step=state.step,
            model=self.recipe.model,
            decoding=self.recipe.decoding,
            vocab_size=self.data.vocab_size,
            vocab_sha256=self.data.vocab_sha256,
            data_sha256=self.data.sha256,
            src_lang=self.data.src_lang,
            tgt_lang=self.data.tgt_lang,
            run_id=self.run_id,
            text=self.data.text,
            max_length=self.data.max_length,
        )
        snapshot = TrainingSnapshot(state.to_json(), self.optimizer.moments())
        save_checkpoint(checkpoint, self.optimizer.weights(), self.data.vocab_path, snapshot)
        if best:
            mark_best(self.run, path)
        prune_checkpoints(self.run, self.recipe.training.keep_checkpoints)
        if self.validation_bleu is not None and (samples := self.validation_bleu.new_samples()):
            self.metrics.write("samples", step=state.step, **samples)
        self.metrics.write("checkpoint", step=state.step, path=path.name)

    def _validation_bleu(self) -> ValidationBleu | None:
        wanted = self.recipe.training.validation_bleu_pairs
        if self.valid is None or wanted == 0:
            return None
        return ValidationBleu(self.model, self.data, self.device, self.recipe.decoding, wanted, self.worker)

    def _renew_report(self, record: Record) -> None:
        """Bring report.html up to date with each checkpoint, and when a call begins."""
        if record["event"] not in ("start", "checkpoint"):
            return
        try:
            write_report(self.run)
        except (OSError, AiaynError) as error:  # a page to look at is no reason to stop training
            logs.warning(f"{self.run / REPORT} cannot be written: {getattr(error, 'strerror', None) or error}")

    def _result(self, stopped_by: str, state: TrainingState) -> TrainResult:
        has_bleu = self.valid is not None and self.recipe.training.best_metric == "bleu"
        return TrainResult(
            run=self.run,
            stopped_by=stopped_by,
            updates=state.step,
            epochs=state.position.epoch,
            parameters=count_parameters(self.model),
            train_seconds=state.seconds,
            tokens_per_second=state.tgt_tokens / state.seconds if state.seconds else 0.0,
            flops=state.flops,
            best_metric="BLEU" if has_bleu else "loss",
            best_value=state.best_value,
            best_step=state.best_step,
        )
