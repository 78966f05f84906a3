"""`aiayn train`: recipe + prepared data -> a run folder with checkpoints, or the exact continuation of one."""

import math
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import torch

from aiayn_cli import logs
from aiayn_cli.checkpoint import Checkpoint, TrainingSnapshot, load_checkpoint, load_training, save_checkpoint
from aiayn_cli.config import Recipe, TrainingConfig
from aiayn_cli.data.prepared import PreparedData, find_prepared
from aiayn_cli.decoding.translator import Translator
from aiayn_cli.device import Device, choose_device, matmul_rate
from aiayn_cli.errors import ConfigError, DataError, Terminated
from aiayn_cli.evaluation.bleu import bleu
from aiayn_cli.model.build import build_model
from aiayn_cli.model.cost import TrainingCost, beside_the_paper
from aiayn_cli.model.translation_model import count_parameters
from aiayn_cli.recipe import load_recipe, recipe_to_yaml, run_name
from aiayn_cli.run_checkpoints import checkpoint_path, interrupted_path, mark_best, newest_resumable, prune_checkpoints
from aiayn_cli.stages.changed_settings import continued_recipe
from aiayn_cli.stages.run_folder import check_is_free, check_is_of, finish_saving, held, set_aside, write_run
from aiayn_cli.stages.run_report import REPORT, write_report
from aiayn_cli.training.compilation import compile_layers
from aiayn_cli.training.distributed import Worker
from aiayn_cli.training.metrics import MetricsLog, Record
from aiayn_cli.training.optimizer import MasterAdam
from aiayn_cli.training.tensorboard import TensorBoardLog, load_tensorboard
from aiayn_cli.training.trainer import Hooks, Trainer, TrainingState

_WHAT_BEST_MEANS = ("training.best_metric ", "training.validation_bleu_pairs ")  # changed settings, as they are listed
_SAMPLES = 6  # validation sentences whose translations the report shows


@dataclass(frozen=True)
class TrainResult:
    """What `aiayn train` prints.

    Attributes:
        run: the run folder.
        stopped_by: "max_updates", "patience", or "already done".
        updates: done in all.
        epochs: times the training data was read whole.
        parameters: of the model.
        train_seconds: in updates, over all calls, without validation and checkpoints.
        tokens_per_second: target tokens without padding, over train_seconds.
        flops: operations of training, counted as model/cost.py does.
        best_metric, best_value, best_step: the best validation; None without validation data.
    """

    run: Path
    stopped_by: str
    updates: int
    epochs: int
    parameters: int
    train_seconds: float
    tokens_per_second: float
    flops: int
    best_metric: str
    best_value: float | None
    best_step: int | None

    def __str__(self) -> str:
        best = ""
        if self.best_value is not None:
            best = f"; best validation {self.best_metric} {self.best_value:.2f} at update {self.best_step:,}"
        return (
            f"{self.run}: {self.updates:,} updates, {self.epochs} epochs, {logs.clock(self.train_seconds)} of "
            f"training, {self.tokens_per_second:,.0f} target tokens/s, {self.flops:.2g} FLOPs{best}"
        )


def run_train(
    recipe_name: str,
    overrides: Sequence[str] = (),
    *,
    data: Path | None = None,
    out: Path | None = None,
    resume: bool = True,
    device_name: str = "auto",
    tensorboard: bool = False,
) -> TrainResult:
    """Train a model, or go on with an existing run exactly where it stopped.

    Args:
        recipe_name: a bundled recipe's name or a file.
        overrides: "section.field=value".
        data: prepared data; None = prepared/CORPUS of the recipe.
        out: run folder; None = runs/RECIPE.
        resume: go on with an existing run; False sets it aside and starts again.
        device_name: "auto", "cpu", "cuda" or "cuda:N".
        tensorboard: also write what TensorBoard draws, into the run's folder.
    Raises:
        AiaynError: the recipe, data or an existing run cannot be used; each says which and why.
        Terminated: SIGTERM arrived; a checkpoint was saved.
        KeyboardInterrupt: Ctrl-C; a checkpoint was saved.
    """
    worker = Worker.from_environment()
    logs.set_rank(worker.rank)
    run = out if out is not None else Path("runs") / run_name(recipe_name)
    with worker.together():
        recipe = load_recipe(recipe_name, overrides)
        if tensorboard:
            load_tensorboard()
        prepared = PreparedData.load(find_prepared(data if data is not None else recipe.data.corpus))
        _check_has_pairs(prepared)
        _check_validation(recipe, prepared)
        device = choose_device(device_name, recipe.training.precision, worker.local_rank)
        logs.notice(device.explanation)
        worker.join(device.device)
        worker.check_same({"data": f"{prepared.folder}, {prepared.sha256}", "recipe": recipe_to_yaml(recipe)})
        if not resume and worker.rank == 0 and worker.attempt == 0:  # what a restart finds is the fresh one
            with held(run):
                set_aside(run)
        worker.wait()  # all look at the run that is there from now on
        with held(run) if worker.rank == 0 else nullcontext():
            return _Session(run, recipe, prepared, device, worker, tensorboard).train()


class _Session:
    """One call of `aiayn train` on one run."""

    def __init__(
        self, run: Path, recipe: Recipe, data: PreparedData, device: Device, worker: Worker, tensorboard: bool
    ) -> None:
        self.run, self.data, self.device, self.worker = run, data, device, worker
        self.tensorboard = tensorboard
        self.valid = data.valid if data.valid is not None and len(data.valid) else None
        _check_vocabs(recipe, data)
        self.start = newest_resumable(run)
        self.changes: list[str] = []
        if self.start is None:
            check_is_free(run)
            self.run_id = uuid.uuid4().hex
        else:
            self.run_id = check_is_of(data, run)
            recipe, self.changes = continued_recipe(load_recipe(str(run / "recipe.yaml")), recipe, run)
        self.written_recipe, self.recipe = recipe, _with_max_tokens(recipe, device)
        torch.manual_seed(recipe.training.seed)
        self.model = build_model(recipe.model, data.vocab_size).to(device.device)
        self.metrics = MetricsLog(None)
        self.cost = TrainingCost(recipe.model, data.vocab_size)
        self.matmul_rate = math.nan  # measured when there is something to train
        self.samples: dict[str, list[str]] = {}  # of the last validation, until its checkpoint is there

    def train(self) -> TrainResult:
        config = self.recipe.training
        state, moments = TrainingState(), None
        if self.start is not None:
            load_checkpoint(self.start).load_into(self.model)
            snapshot = load_training(self.start)
            state = TrainingState.from_json(snapshot.state, self.start / "training" / "state.json")
            if any(change.startswith(_WHAT_BEST_MEANS) for change in self.changes):
                state = replace(state, best_value=None, worse_validations=0)  # what is not comparable with the next
            moments = dict(snapshot.moments)
            if self.worker.rank == 0:
                finish_saving(self.run, state.best_step, self.recipe.training.keep_checkpoints)
        if enough := _finished(config, state):
            logs.notice(f"{self.run} {enough}")
            return self._result("already done", state)
        self._open_run(state)
        weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}  # float32
        self.model.to(self.device.dtype)
        optimizer = MasterAdam(self.model, config, weights)
        if moments is not None:
            optimizer.load_moments(moments, state.step - state.skipped)  # Adam never saw the skipped ones
            logs.notice(f"going on with {self.run} from update {state.step:,}")
            for change in self.changes:
                logs.notice(f"changed setting applied: {change}")
            self.metrics.write("resume", step=state.step)
        self.matmul_rate = matmul_rate(self.device)
        compile_layers(self.model, config.compile, self.device.device)
        with _signals() as interrupted:
            trainer = Trainer(
                self.model,
                optimizer,
                self.data.train,
                self.valid,
                config,
                d_model=self.recipe.model.d_model,
                device=self.device.device,
                worker=self.worker,
                metrics=self.metrics,
                hooks=Hooks(self._saver(optimizer), self._bleu(), interrupted, self.cost, self.matmul_rate),
                state=state,
            )
            self._announce(state)
            stopped_by = trainer.train()
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
        src_tokens = int(self.data.train.src_lengths.sum()) + pairs
        tgt_tokens = int(self.data.train.tgt_lengths.sum()) + pairs
        logs.notice(
            f"model: {count_parameters(self.model):,} parameters; data: {self.data.folder}, {pairs:,} pairs, "
            f"{src_tokens:,} source and {tgt_tokens:,} target tokens; run: {self.run}, "
            f"updates {state.step + 1:,} to {config.max_updates:,} of {config.batch_tokens:,} tokens"
        )
        run_flops = self.cost.run_flops(
            self.data.train.src_lengths, self.data.train.tgt_lengths, config.batch_tokens, config.max_updates
        )
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
        if self.valid is None:
            logs.notice("no validation data: nothing says which checkpoint is the best")

    def _saver(self, optimizer: MasterAdam) -> Callable[[TrainingState, bool, bool], None]:
        def save(state: TrainingState, best: bool, regular: bool) -> None:
            if self.worker.rank == 0:
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
                )
                snapshot = TrainingSnapshot(state.to_json(), optimizer.moments())
                save_checkpoint(checkpoint, optimizer.weights(), self.data.vocab_path, snapshot)
                if best:
                    mark_best(self.run, path)
                prune_checkpoints(self.run, self.recipe.training.keep_checkpoints)
                if self.samples:
                    self.metrics.write("samples", step=state.step, **self.samples)
                    self.samples = {}
                self.metrics.write("checkpoint", step=state.step, path=path.name)
            self.worker.wait()

        return save

    def _bleu(self) -> Callable[[], float] | None:
        wanted = self.recipe.training.validation_bleu_pairs
        if self.valid is None or wanted == 0:
            return None
        sources, references = self.data.valid_src_text(), self.data.valid_tgt_text()
        every = max(1, len(sources) // wanted)  # spread over the set, which may be in an order of topics
        sources, references = sources[::every][:wanted], references[::every][:wanted]
        codec = self.data.codec()

        def score() -> float:
            translator = Translator([self.model], codec, self.device, self.recipe.decoding)
            translations = translator.translate(sources)
            shown = slice(None, None, max(1, len(sources) // _SAMPLES))
            columns = {"sources": sources, "references": references, "translations": translations}
            self.samples = {name: lines[shown][:_SAMPLES] for name, lines in columns.items()}
            return bleu(translations, [references], tgt_lang=self.data.tgt_lang).score

        return score

    def _renew_report(self, record: Record) -> None:
        """Bring report.html up to date with each checkpoint, and when a call begins."""
        if record["event"] not in ("start", "checkpoint"):
            return
        try:
            write_report(self.run)
        except OSError as error:  # a page to look at is no reason to stop training
            logs.warning(f"{self.run / REPORT} cannot be written: {error.strerror or error}")

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


def _check_vocabs(recipe: Recipe, data: PreparedData) -> None:
    if data.separate_vocabs and recipe.model.share_embeddings == "all":
        raise ConfigError(
            f"model.share_embeddings is all, but {data.folder} has a vocabulary for each side",
            "add --set model.share_embeddings=decoder, or prepare with --joint-vocab",
            key="model.share_embeddings",
        )


def _check_validation(recipe: Recipe, data: PreparedData) -> None:
    if data.text.trees and recipe.training.validation_bleu_pairs:
        raise ConfigError(
            f"training.validation_bleu_pairs is {recipe.training.validation_bleu_pairs}, but {data.folder} holds trees",
            "BLEU is for text: add --set training.validation_bleu_pairs=0 --set training.best_metric=loss",
            key="training.validation_bleu_pairs",
        )


def _with_max_tokens(recipe: Recipe, device: Device) -> Recipe:
    """Choose what one forward pass holds, where the recipe leaves it to the device."""
    if recipe.training.max_tokens:
        return recipe
    # A CPU gains nothing from more than its caches hold; a GPU wants to be full.
    most = 4_096 if device.device.type == "cpu" else 25_000
    return replace(recipe, training=replace(recipe.training, max_tokens=most))


def _check_has_pairs(data: PreparedData) -> None:
    if len(data.train) == 0:
        raise DataError(f"{data.folder} has no training pairs", "look at the drops in its manifest.json")


def _finished(config: TrainingConfig, state: TrainingState) -> str:
    """Why a run needs no more training, and what would change that; "" if it does."""
    if state.step >= config.max_updates:
        return f"already has its {config.max_updates:,} updates; --set training.max_updates=... adds some"
    if config.patience and state.worse_validations >= config.patience:
        return (
            f"ended at update {state.step:,}, after {state.worse_validations} validations without a better one; "
            "--set training.patience=... goes on"
        )
    return ""


@contextmanager
def _signals() -> Iterator[Callable[[], str]]:
    """Turn SIGTERM and SIGINT into a name to ask for, so that the update at hand is finished and saved.

    A second one ends the process at once.
    """
    received: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        received.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: received[0] if received else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
