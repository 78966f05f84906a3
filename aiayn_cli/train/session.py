"""One call of `aiayn train`: recipe + prepared data -> a run's folder with checkpoints, or its exact continuation."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from aiayn_cli import logs
from aiayn_cli.checkpoint import run_checkpoints
from aiayn_cli.checkpoint.checkpoint import Checkpoint, TrainingSnapshot, save_checkpoint
from aiayn_cli.checkpoint.metrics_log import MetricsLog, Record, TensorBoardLog, load_tensorboard
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.device import Device, choose_device, matmul_rate
from aiayn_cli.errors import AiaynError, Terminated
from aiayn_cli.model.build import build_model
from aiayn_cli.model.cost import TrainingCost, compared_to_paper
from aiayn_cli.model.translation_model import count_parameters
from aiayn_cli.recipe import load_recipe, recipe_to_yaml
from aiayn_cli.recipe_keys import Recipe, TrainingConfig
from aiayn_cli.train.compilation import compile_layers
from aiayn_cli.train.distributed import SIGNALS, ReceivedSignal, Worker, signals_to_obey
from aiayn_cli.train.optimizer import MasterAdam
from aiayn_cli.train.options import TrainOptions, schedule_of, short_schedule, updates_within
from aiayn_cli.train.preflight import DryRunResult, check_data, check_memory, dry_run, time_text, warn_of_disk
from aiayn_cli.train.report import write_report
from aiayn_cli.train.resume import TrainingState, finished, held, identify, load_newest, set_aside, write_run
from aiayn_cli.train.trainer import Hooks, Trainer
from aiayn_cli.train.validation import Validation, ValidationBleu, longest_validated, too_long

_WHAT_BEST_MEANS = ("training.best_metric ", "training.validation_bleu_pairs ")  # beginnings of changed settings


@dataclass(frozen=True)
class TrainResult:
    """What `aiayn train` prints."""

    run: Path
    stopped_by: str  # "max_updates", "patience", or "already done"
    updates: int
    epochs: int  # complete passes over the training data
    parameters: int  # of the model
    train_seconds: float  # in updates, over all calls, without validation and checkpoints
    tokens_per_second: float  # target tokens without padding, over train_seconds
    flops: int  # operations of training, counted as model/cost.py does
    best_metric: str
    best_value: float | None
    best_step: int | None

    def __str__(self) -> str:
        best = ""
        if self.best_value is not None:
            best = f"; best validation {self.best_metric} {self.best_value:.2f} at update {self.best_step:,}"
        return (
            f"{self.run}: {logs.counted(self.updates, 'update')}, {logs.counted(self.epochs, 'epoch')}, "
            f"{logs.clock(self.train_seconds)} of training, {self.tokens_per_second:,.0f} target tokens/s, "
            f"{self.flops:.2g} FLOPs{best}"
        )


def run_train(options: TrainOptions) -> TrainResult | DryRunResult:
    """Train a model, or continue a run exactly; Terminated or KeyboardInterrupt if a signal stopped it, all saved."""
    worker = Worker.from_environment()
    logs.setup(logs.verbosity(), worker.rank)
    run = options.run
    with worker.together():
        recipe, data = options.load()
        if options.tensorboard:
            load_tensorboard()  # a missing package is found now
        device = choose_device(options.device, recipe.training.precision, worker.local_rank)
        logs.notice(device.explanation)
        worker.check_same({"data": data.sha256, "recipe": recipe_to_yaml(recipe)})
        nowhere = run.with_name(f".{run.name}.fresh")  # does not exist
        if options.dry_run:
            return Session(run if options.resume else nowhere, recipe, data, device, worker).try_out()
        if not options.resume and worker.rank == 0 and worker.attempt == 0:  # a restart continues the fresh run
            with held(run):
                set_aside(run)
        worker.wait()  # before all look at the run's folder
        if options.hours is not None:
            trial = partial(Session, nowhere, recipe, data, device, worker)
            recipe = _fit_to_hours(options, options.hours, worker, lambda: trial().try_out())
        with held(run) if worker.rank == 0 else nullcontext():
            return Session(run, recipe, data, device, worker).train(tensorboard=options.tensorboard)


def _fit_to_hours(
    options: TrainOptions, hours: float, worker: Worker, try_out: Callable[[], DryRunResult | TrainResult]
) -> Recipe:
    """The recipe with a schedule for that time; a run that exists keeps its own."""
    recipe, written = load_recipe(options.recipe, options.overrides), options.run / "recipe.yaml"
    kept = worker.from_rank_0(
        lambda: {"schedule": schedule_of(load_recipe(str(written))) if written.is_file() else []}
    )["schedule"]
    if kept:
        logs.notice(f"{options.run} keeps its schedule; --hours is for new runs")
        return load_recipe(options.recipe, [*kept, *options.overrides])
    began = time.monotonic()
    trial = try_out()  # on each rank, whose clocks differ
    assert isinstance(trial, DryRunResult), "a run that does not exist is not finished"
    mine = {"seconds": trial.seconds_per_update, "spent": (time.monotonic() - began) / 3600}
    shared = worker.from_rank_0(lambda: mine)
    seconds, spent = float(shared["seconds"]), float(shared["spent"])
    updates = updates_within(hours - spent, seconds, recipe)
    logs.notice(
        f"--hours {hours:g}: {logs.counted(updates, 'update')} of {seconds:.3g} s take "
        f"{time_text(updates * seconds / 3600)} without validation, after {time_text(spent)} of measuring; the recipe "
        f"has {recipe.training.max_updates:,}"
    )
    return load_recipe(options.recipe, [*short_schedule(recipe, updates), *options.overrides])


@contextmanager
def signals() -> Iterator[ReceivedSignal]:
    """Note the first of SIGNALS, so that all can be saved; a second one ends the process immediately.

    SIGHUP and SIGUSR1 stay ignored where they are, as under nohup.
    """
    received: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        received.append(signal.Signals(number).name)

    before = {number: signal.signal(number, note) for number in signals_to_obey()}
    try:
        yield lambda: received[0] if received else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Session:
    """One call of `aiayn train` on one run."""

    def __init__(self, run: Path, recipe: Recipe, data: PreparedData, device: Device, worker: Worker) -> None:
        self._run, self._data, self._device, self._worker = run, data, device, worker
        check_data(data, recipe)
        check_memory(recipe, data.vocab_size, device)
        self._run_id, self._changes = "", list[str]()
        if worker.rank == 0:  # the run's folder need not be on other machines
            self._run_id, recipe, self._changes = identify(run, recipe, data)
        self._written_recipe = self._recipe = recipe
        if not recipe.training.max_tokens:
            # A CPU gains nothing from more than its caches hold; a GPU needs large batches to be busy.
            most = 4_096 if device.device.type == "cpu" else 25_000
            self._recipe = replace(recipe, training=replace(recipe.training, max_tokens=most))
        torch.manual_seed(recipe.training.seed)
        self._model = build_model(recipe.model, data.vocab_size).to(device.device)
        weights = {name: p.detach().clone() for name, p in self._model.named_parameters()}  # float32
        self._model.to(device.dtype)
        self._parameters = count_parameters(self._model)
        self._optimizer = MasterAdam(self._model, self._recipe.training, weights)
        self._metrics = MetricsLog(None)
        self._cost = TrainingCost(recipe.model, data.vocab_size)
        self._valid = data.valid if data.valid is not None and len(data.valid) else None
        self._longest = longest_validated(data, recipe)
        self._bleu: ValidationBleu | None = None
        self._low_confidence: float | None = None  # of the checkpoint that was loaded

    def train(self, *, tensorboard: bool = False) -> TrainResult:
        config = self._recipe.training
        state = self._start_state(touch=True)
        if enough := finished(config, state):
            logs.notice(f"{self._run} {enough}")
            return self._result("already done", state)
        if self._valid is not None and config.validation_bleu_pairs:
            self._bleu = ValidationBleu(self._model, self._data, self._device, self._recipe, self._worker)
        if self._worker.rank == 0:
            write_run(self._run, self._run_id, self._data, self._written_recipe, self._parameters)
            listeners = [self._renew_report]
            if tensorboard:
                listeners.append(TensorBoardLog(self._run / "tensorboard", state.step).write)
            self._metrics = MetricsLog(self._run / "metrics.jsonl", listeners)
        if state.step:
            logs.notice(f"resuming {self._run} from update {state.step:,}")
            for change in self._changes:
                logs.notice(f"changed setting applied: {change}")
        if state.step or self._metrics.latest:  # also if a crash came before the first checkpoint
            self._metrics.write("resume", step=state.step)
        rate = matmul_rate(self._device)
        with signals() as interrupted:
            validation = None
            if self._valid is not None:
                bleu = None if self._bleu is None else self._bleu.score
                validation = Validation(
                    self._model, self._valid, config, self._worker, self._metrics, bleu, interrupted, self._longest,
                    trained_seconds=state.seconds,
                )  # fmt: skip
            hooks = Hooks(self._save, interrupted, self._load, validation, self._cost, rate)
            trainer = self._trainer(config, hooks, state)
            self._announce(state, rate)
            with logs.progress("training", config.max_updates, "updates", done=state.step) as progress:
                stopped_by = trainer.train(progress)
        where, hint = f"at update {trainer.state.step:,}; {self._run} is saved", "the same command resumes from there"
        if stopped_by == "SIGINT":
            raise KeyboardInterrupt(f"stopped by Ctrl-C {where}: {hint}")
        if stopped_by in SIGNALS:
            raise Terminated(f"stopped by {stopped_by} {where}", hint)
        logs.notice(f"{self._run} {finished(config, trainer.state)}")
        return self._result(stopped_by, trainer.state)

    def try_out(self) -> DryRunResult | TrainResult:
        state, config = self._start_state(touch=False), self._recipe.training
        if enough := finished(config, state):
            logs.notice(f"{self._run} {enough}")
            return self._result("already done", state)
        return dry_run(partial(self._trainer, state=state), config, self._run, self._worker.world_size)

    def _start_state(self, *, touch: bool) -> TrainingState:
        """Where to begin, with weights and moments in every optimizer; `touch` repairs what a crash left behind."""
        found = self._load(touch=touch)
        if touch and self._worker.rank == 0 and found is not None:
            run_checkpoints.remove_leftovers(self._run)
            if (
                found.best_step is not None
                and (best := run_checkpoints.checkpoint_path(self._run, found.best_step)).exists()
            ):
                run_checkpoints.mark_best(self._run, best)
            run_checkpoints.prune_checkpoints(self._run, self._recipe.training.keep_checkpoints)
        state = (found or TrainingState()).for_devices(self._worker.world_size)
        if found is not None and state.division != found.division:
            logs.notice(
                f"updates are now divided for {logs.counted(state.division, 'device')}, not {found.division}: "
                "the pairs stay the same, dropout does not"
            )
        if any(change.startswith(_WHAT_BEST_MEANS) for change in self._changes):
            state = replace(state, best_value=None, worse_validations=0)  # not comparable with the next
        if any(change.startswith("training.max_tokens ") for change in self._changes):
            state = replace(state, max_tokens=0)
        return TrainingState.from_json(self._worker.from_rank_0(state.to_json), self._run)

    def _load(self, *, touch: bool = True) -> TrainingState | None:
        """Put weights and moments of the newest checkpoint into every process's optimizer; return its state."""
        loaded: tuple[TrainingState, dict[str, Tensor], float | None] | None = None

        def on_rank_0() -> dict[str, Any]:
            nonlocal loaded
            loaded = load_newest(self._run, self._optimizer.weights(), len(self._data.train), touch=touch)
            return {"state": None if loaded is None else loaded[0].to_json()}

        content = self._worker.from_rank_0(on_rank_0)["state"]
        state = None if content is None else TrainingState.from_json(content, self._run)
        adam_steps = 0 if state is None else state.step - state.skipped  # Adam never saw the skipped ones
        if loaded is not None:
            _, moments, self._low_confidence = loaded
            self._optimizer.load_moments(moments, adam_steps)
        self._optimizer.spread(self._worker, adam_steps)
        return state

    def _trainer(self, config: TrainingConfig, hooks: Hooks, state: TrainingState) -> Trainer:
        compile_layers(self._model, config.compile, self._device.device)
        return Trainer(
            self._model, self._optimizer, self._data.train, config, self._worker, self._metrics, hooks, state
        )

    def _announce(self, state: TrainingState, rate: float) -> None:
        config, train = self._recipe.training, self._data.train
        pairs, devices = len(train), self._worker.world_size
        run_flops = self._cost.run_flops(train.length_chunks(), config.batch_tokens, config.max_updates)
        logs.notice(
            f"model: {self._parameters:,} parameters; data: {self._data.folder}, {logs.counted(pairs, 'pair')}, "
            f"{train.n_tokens('src') + pairs:,} source and {train.n_tokens('tgt') + pairs:,} target tokens; "
            f"run: {self._run}, updates {state.step + 1:,} to {config.max_updates:,} of {config.batch_tokens:,} "
            f"tokens; report: {self._run / 'report.html'}"
        )
        logs.notice(
            f"cost: {compared_to_paper(run_flops)} in {logs.counted(config.max_updates, 'update')}; large matrix "
            f"products run at {rate / 1e12:.3g} TFLOP/s here"
            + (f", on each of {devices} devices" if devices > 1 else "")
        )
        self._metrics.write(
            "start", step=state.step, updates=config.max_updates, run_flops=run_flops,
            matmul_rate=round(rate), devices=devices, device=self._device.explanation,
        )  # fmt: skip
        if self._valid is None:
            logs.notice("no validation data, so no checkpoint is marked as the best")
        elif n := too_long(self._valid, self._longest):
            logs.notice(f"the validation loss skips {logs.counted(n, 'pair')} too long for the network")
        if config.warmup_steps > config.max_updates:
            _, warmup, scale, _ = short_schedule(self._recipe, config.max_updates)
            logs.warning(
                f"max_updates {config.max_updates:,} is less than warmup_steps {config.warmup_steps:,}: the learning "
                f"rate never peaks; use --hours, or add --set {warmup} --set {scale}"
            )
        if self._worker.rank == 0:
            warn_of_disk(self._run, self._optimizer.weights().values(), config)

    def _save(self, state: TrainingState, best: bool, regular: bool) -> None:
        self._worker.from_rank_0(lambda: self._write_checkpoint(state, best, regular))

    def _write_checkpoint(self, state: TrainingState, best: bool, regular: bool) -> None:
        path = (
            run_checkpoints.checkpoint_path(self._run, state.step)
            if regular
            else run_checkpoints.interrupted_path(self._run, state.step)
        )
        measured = None if self._bleu is None else self._bleu.low_confidence
        data, recipe = self._data, self._recipe
        checkpoint = Checkpoint(
            path=path, step=state.step, run_id=self._run_id, model=recipe.model, decoding=recipe.decoding,
            vocab_size=data.vocab_size, vocab_sha256=data.vocab_sha256, data_sha256=data.sha256,
            src_lang=data.src_lang, tgt_lang=data.tgt_lang, text=data.text, max_length=data.max_length,
            several_sentences=data.several_sentences,
            low_confidence=self._low_confidence if measured is None else measured,
        )  # fmt: skip
        snapshot = TrainingSnapshot(state.to_json(), self._optimizer.moments())
        save_checkpoint(checkpoint, self._optimizer.weights(), self._data.vocab_path, snapshot)
        if best:
            run_checkpoints.mark_best(self._run, path)
        run_checkpoints.prune_checkpoints(self._run, self._recipe.training.keep_checkpoints)
        if self._bleu is not None and (samples := self._bleu.new_samples()):
            self._metrics.write("samples", step=state.step, signature=self._bleu.signature, **samples)
            if state.step >= min(recipe.training.warmup_steps, recipe.training.max_updates):
                self._bleu.warn_of_collapse()
        self._metrics.write("checkpoint", step=state.step, path=path.name)

    def _renew_report(self, record: Record) -> None:
        if record["event"] in ("start", "checkpoint"):
            try:
                write_report(self._run)
            except (OSError, AiaynError) as error:  # no reason to stop training
                problem = getattr(error, "strerror", None) or error
                logs.warning(f"{self._run / 'report.html'} cannot be written: {problem}")

    def _result(self, stopped_by: str, state: TrainingState) -> TrainResult:
        has_bleu = self._valid is not None and self._recipe.training.best_metric == "bleu"
        return TrainResult(
            run=self._run, stopped_by=stopped_by, updates=state.step, epochs=state.position.epoch,
            parameters=self._parameters, train_seconds=state.seconds,
            tokens_per_second=state.tgt_tokens / state.seconds if state.seconds else 0.0, flops=state.flops,
            best_metric="BLEU" if has_bleu else "loss", best_value=state.best_value, best_step=state.best_step,
        )  # fmt: skip
