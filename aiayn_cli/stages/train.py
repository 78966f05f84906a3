"""`aiayn train`: recipe + prepared data -> a run folder with checkpoints, or the exact continuation of one."""

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import torch

from aiayn_cli import __version__, logs
from aiayn_cli.checkpoint import (
    Checkpoint,
    TrainingSnapshot,
    checkpoint_path,
    interrupted_path,
    load_checkpoint,
    load_training,
    mark_best,
    newest_resumable,
    prune_checkpoints,
    read_json,
    remove_leftovers,
    save_checkpoint,
)
from aiayn_cli.config import Recipe
from aiayn_cli.data.prepared import PreparedData, find_prepared
from aiayn_cli.data.vocab import Vocab
from aiayn_cli.decoding.translator import Translator
from aiayn_cli.device import Device, choose_device
from aiayn_cli.errors import DataError, Terminated
from aiayn_cli.evaluation.bleu import bleu
from aiayn_cli.model.transformer import build_model, count_parameters
from aiayn_cli.recipe import load_recipe, recipe_to_yaml
from aiayn_cli.stages.changed_settings import apply_changes
from aiayn_cli.training.distributed import Worker
from aiayn_cli.training.metrics import MetricsLog
from aiayn_cli.training.optimizer import MasterAdam
from aiayn_cli.training.trainer import Hooks, Trainer, TrainingState


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
        best_metric, best_value, best_step: the best validation; None without validation data.
    """

    run: Path
    stopped_by: str
    updates: int
    epochs: int
    parameters: int
    train_seconds: float
    tokens_per_second: float
    best_metric: str
    best_value: float | None
    best_step: int | None

    def __str__(self) -> str:
        best = ""
        if self.best_value is not None:
            best = f"; best validation {self.best_metric} {self.best_value:.2f} at update {self.best_step:,}"
        return (
            f"{self.run}: {self.updates:,} updates, {self.epochs} epochs, {logs.clock(self.train_seconds)} of "
            f"training, {self.tokens_per_second:,.0f} target tokens/s{best}"
        )


def run_train(
    recipe_name: str,
    overrides: Sequence[str] = (),
    *,
    data: Path | None = None,
    out: Path | None = None,
    resume: bool = True,
    device_name: str = "auto",
) -> TrainResult:
    """Train a model, or go on with an existing run exactly where it stopped.

    Args:
        recipe_name: a bundled recipe's name or a file.
        overrides: "section.field=value".
        data: prepared data; None = prepared/CORPUS of the recipe.
        out: run folder; None = runs/RECIPE.
        resume: go on with an existing run; False sets it aside and starts again.
        device_name: "auto", "cpu", "cuda" or "cuda:N".
    Raises:
        AiaynError: the recipe, data or an existing run cannot be used; each says which and why.
        Terminated: SIGTERM arrived; a checkpoint was saved.
        KeyboardInterrupt: Ctrl-C; a checkpoint was saved.
    """
    recipe = load_recipe(recipe_name, overrides)
    prepared = PreparedData.load(find_prepared(data if data is not None else recipe.data.corpus))
    worker = Worker.from_environment()
    run = out if out is not None else Path("runs") / Path(recipe_name).stem
    if not resume and worker.rank == 0:
        _set_aside(run)
    start = newest_resumable(run)
    if start is not None:
        recipe = apply_changes(load_recipe(str(run / "recipe.yaml")), recipe, run)
    device = choose_device(device_name, recipe.training.precision, worker.local_rank)
    logs.notice(device.explanation)
    worker.join(device.device)
    try:
        return _Session(run, recipe, prepared, device, worker, start).train()
    finally:
        worker.leave()


class _Session:
    """One call of `aiayn train` on one run."""

    def __init__(
        self, run: Path, recipe: Recipe, data: PreparedData, device: Device, worker: Worker, start: Path | None
    ) -> None:
        self.run, self.data, self.device, self.worker = run, data, device, worker
        self.recipe = _with_max_tokens(recipe, device)
        self.start = start
        _check_has_pairs(data)
        torch.manual_seed(recipe.training.seed)
        self.model = build_model(recipe.model, data.vocab_size).to(device.device)
        self.run_id = self._open_run(recipe)
        self.metrics = MetricsLog(run / "metrics.jsonl" if worker.rank == 0 else None)

    def train(self) -> TrainResult:
        config = self.recipe.training
        state = TrainingState()
        weights = None
        if self.start is not None:
            checkpoint, snapshot = load_checkpoint(self.start), load_training(self.start)
            state, weights = TrainingState.from_json(dict(snapshot.state)), checkpoint.weights()
        else:
            weights = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self.model.to(self.device.dtype)
        optimizer = MasterAdam(self.model, config, weights)
        if self.start is not None:
            optimizer.load_moments(dict(snapshot.moments), state.step)
            logs.notice(f"going on with {self.run} from update {state.step:,}")
            self.metrics.write("resume", step=state.step)
        if state.step >= config.max_updates:
            logs.notice(
                f"{self.run} already has its {config.max_updates:,} updates; --set training.max_updates=... adds some"
            )
            return self._result("already done", state)
        if config.compile == "on" or (config.compile == "auto" and self.device.device.type == "cuda"):
            for layer in (*self.model.encoder_layers, *self.model.decoder_layers):
                layer.compile(dynamic=True)
        with _signals() as interrupted:
            trainer = Trainer(
                self.model,
                optimizer,
                self.data.train,
                self.data.valid,
                config,
                d_model=self.recipe.model.d_model,
                device=self.device.device,
                worker=self.worker,
                metrics=self.metrics,
                hooks=Hooks(self._saver(optimizer), self._bleu(), interrupted),
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

    def _open_run(self, recipe: Recipe) -> str:
        """Create the run folder, or check that the existing one belongs to this data; return the run's id."""
        manifest_path = self.run / "manifest.json"
        if self.start is not None:
            manifest = read_json(manifest_path, "a run")
            if manifest.get("data_sha256") != self.data.sha256:
                raise DataError(
                    f"{self.run} was trained on other data ({manifest.get('data')}) than {self.data.folder}",
                    "give the data it was started with, or another --out, or --fresh",
                )
            run_id = str(manifest["run_id"])
        else:
            if self.run.exists() and any(self.run.iterdir()) and not manifest_path.exists():
                raise DataError(f"{self.run} exists and is not a run", "give another --out")
            run_id = uuid.uuid4().hex
        if self.worker.rank == 0:
            remove_leftovers(self.run)
            self.run.mkdir(parents=True, exist_ok=True)
            _write_whole(self.run / "recipe.yaml", recipe_to_yaml(recipe))
            manifest = {
                "format": 1,
                "aiayn": __version__,
                "run_id": run_id,
                "data": str(self.data.folder),
                "data_sha256": self.data.sha256,
                "vocab_sha256": self.data.vocab_sha256,
                "parameters": count_parameters(self.model),
            }
            _write_whole(manifest_path, json.dumps(manifest, indent=2) + "\n")
        return run_id

    def _announce(self, state: TrainingState) -> None:
        config, pairs = self.recipe.training, len(self.data.train)
        src_tokens = int(self.data.train.src_lengths.sum()) + pairs
        tgt_tokens = int(self.data.train.tgt_lengths.sum()) + pairs
        logs.notice(
            f"model: {count_parameters(self.model):,} parameters; data: {self.data.folder}, {pairs:,} pairs, "
            f"{src_tokens:,} source and {tgt_tokens:,} target tokens; run: {self.run}, "
            f"updates {state.step + 1:,} to {config.max_updates:,} of {config.batch_tokens:,} tokens"
        )
        if self.data.valid is None or len(self.data.valid) == 0:
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
                )
                snapshot = TrainingSnapshot(state.to_json(), optimizer.moments())
                save_checkpoint(checkpoint, optimizer.weights(), self.data.vocab_path, snapshot)
                if best:
                    mark_best(self.run, path)
                prune_checkpoints(self.run, self.recipe.training.keep_checkpoints)
                self.metrics.write("checkpoint", step=state.step, path=path.name)
            self.worker.wait()

        return save

    def _bleu(self) -> Callable[[], float] | None:
        wanted = self.recipe.training.validation_bleu_pairs
        if self.data.valid is None or len(self.data.valid) == 0 or wanted == 0:
            return None
        sources, references = self.data.valid_src_text(), self.data.valid_tgt_text()
        every = max(1, len(sources) // wanted)  # spread over the set, which may be in an order of topics
        sources, references = sources[::every][:wanted], references[::every][:wanted]
        vocab = Vocab.load(self.data.vocab_path)

        def score() -> float:
            translator = Translator([self.model], vocab, self.device, self.recipe.decoding)
            return bleu(translator.translate(sources), [references], tgt_lang=self.data.tgt_lang).score

        return score

    def _result(self, stopped_by: str, state: TrainingState) -> TrainResult:
        has_bleu = self.data.valid is not None and self.recipe.training.best_metric == "bleu"
        return TrainResult(
            run=self.run,
            stopped_by=stopped_by,
            updates=state.step,
            epochs=state.position.epoch,
            parameters=count_parameters(self.model),
            train_seconds=state.seconds,
            tokens_per_second=state.tgt_tokens / state.seconds if state.seconds else 0.0,
            best_metric="BLEU" if has_bleu else "loss",
            best_value=state.best_value,
            best_step=state.best_step,
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


def _set_aside(run: Path) -> None:
    """Give an existing run another name, so that a fresh one loses nothing."""
    if not run.exists():
        return
    number = 1
    while (aside := run.with_name(f"{run.name}.{number}")).exists():
        number += 1
    run.rename(aside)
    logs.notice(f"the run that was in {run} is now {aside}")


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".unfinished-{path.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


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
