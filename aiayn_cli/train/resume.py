"""A run's folder, its state, and how it resumes: from its newest intact checkpoint, with compatible settings.

run/
  manifest.json    id of the run, and hashes of the data it is trained on
  recipe.yaml      every setting it was last trained with
  metrics.jsonl    what was measured on the way; see checkpoint/metrics_log.py
  report.html      all of it to look at; see report.py
  tensorboard/     with --tensorboard
  checkpoints/     see checkpoint/run_checkpoints.py
"""

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from torch import Tensor

from aiayn_cli import __version__, logs
from aiayn_cli.checkpoint.checkpoint import load_checkpoint, load_training
from aiayn_cli.checkpoint.run_checkpoints import newest_resumable, resumable, set_aside_damaged, update_of
from aiayn_cli.checkpoint.tensor_files import from_json, read_json
from aiayn_cli.data.batches import LEAST_POOL_PAIRS, Position
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import CheckpointError, DataError
from aiayn_cli.files import UNFINISHED, write_whole
from aiayn_cli.recipe import load_recipe, recipe_to_yaml
from aiayn_cli.recipe_keys import ModelConfig, Recipe, TrainingConfig

_DEFAULTS = {"pool_pairs": LEAST_POOL_PAIRS}  # of states written before they had the field
_AT_MOST_ONCE_A_STEP = ("best_step", "worse_validations", "saves", "skipped", "skipped_in_a_row")
_MOST_DEVICES = 1 << 20  # that an update can be divided for

# Changing one of these would make the run another experiment: other weights, or other pairs in an update.
_FIXED = {f"model.{field.name}" for field in fields(ModelConfig) if "dropout" not in field.name}
_FIXED |= {"training.batch_tokens", "training.seed"}


@dataclass(frozen=True)
class TrainingState:
    """The state of a run: together with weights and moments, all that an exact continuation needs."""

    step: int = 0  # updates done
    position: Position = field(default_factory=Position)  # in the data
    best_value: float | None = None  # best validation so far by the recipe's metric
    best_loss: float | None = None  # validation loss there, which decides between equal BLEU
    best_step: int | None = None
    worse_validations: int = 0  # in a row, for patience
    tgt_tokens: int = 0  # target tokens learnt from, with end tokens, without padding
    seconds: float = 0.0  # spent in updates, without validation and checkpoints
    saves: int = 0  # regular checkpoints written
    saved_seconds: float = 0.0  # `seconds` at the last of them
    skipped: int = 0  # updates skipped because their gradient was not finite or exploded
    skipped_in_a_row: int = 0  # the newest of them
    usual_norm: float = 0.0  # running mean of the gradient's norm; 0 before the first update
    rollbacks: int = 0  # times that training went back to a checkpoint
    max_tokens: int = 0  # most padded tokens of a micro-batch since memory ran out; 0 = the recipe's
    division: int = 1  # the number of micro-batches in an update is a multiple of this, on which dropout depends
    flops: int = 0  # operations that learning took so far, counted as model/cost.py does
    pool_pairs: int = 0  # sorted by length together, on which the order of pairs depends; 0 = not chosen yet
    validation_due: bool = False  # a signal stopped the validation after this step, which comes before the next update

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: Path) -> "TrainingState":
        """The reverse of to_json(), for what was read from `source`."""
        try:
            state = from_json(cls, {**_DEFAULTS, **content, "position": from_json(Position, content["position"])})
            for name, value in [*vars(state).items(), *vars(state.position).items()]:
                least, most = (1, _MOST_DEVICES) if name == "division" else (0, 1 << 100)
                if isinstance(value, (int, float)) and not least <= value < most:  # NaN is in no range
                    raise TypeError(f"{name} is {value}")
                if name in _AT_MOST_ONCE_A_STEP and (value or 0) > state.step:
                    raise TypeError(f"{name} is {value:,} after {state.step:,} updates")
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{source} is not a training state: {error}", "use another checkpoint") from error
        return state

    def for_devices(self, n: int) -> "TrainingState":
        """The state for n devices, which share micro-batches evenly; a new division changes dropout."""
        return self if self.division % n == 0 else replace(self, division=n)


def load_newest(
    run: Path, weights: Mapping[str, Tensor], n_pairs: int, *, touch: bool = True
) -> tuple[TrainingState, dict[str, Tensor], float | None] | None:
    """Read a run's newest intact checkpoint into float32 weights; with `touch`, damaged newer ones are set aside.

    Returns the run's state, the optimizer's moments, and Checkpoint.low_confidence; None before the first checkpoint.
    Raises CheckpointError, which names the newest, if all are damaged.
    """
    damaged: dict[Path, CheckpointError] = {}
    for path in reversed(resumable(run)):
        try:
            found = load_checkpoint(path)
            snapshot = load_training(path)
            state = _state(snapshot.state, path, found.step, n_pairs)
            for name, weight in found.weights_for(weights).items():
                weights[name].copy_(weight)
        except CheckpointError as error:
            damaged[path] = error
            continue
        for bad in damaged:
            kept = f", and keeping it as {set_aside_damaged(bad).name}" if touch else ""
            logs.warning(f"the checkpoint {bad.name} is damaged: using {path.name} instead{kept}")
        return state, dict(snapshot.moments), found.low_confidence
    if damaged:
        raise next(iter(damaged.values()))
    return None


def _state(content: Mapping[str, Any], checkpoint: Path, step: int, n_pairs: int) -> TrainingState:
    path = checkpoint / "training" / "state.json"
    state = TrainingState.from_json(content, path)
    if state.step != step or step != update_of(checkpoint):
        problem = f"{path} is of update {state.step:,}, model.json of {step:,}, its folder of {update_of(checkpoint):,}"
        raise CheckpointError(problem, "use another checkpoint")
    if state.position.pairs >= n_pairs:
        problem = f"{path} is at pair {state.position.pairs:,} of an epoch, but there are {n_pairs:,}"
        raise CheckpointError(problem, "use another checkpoint")
    return state


def finished(config: TrainingConfig, state: TrainingState) -> str:
    """Why a run is finished, and what would continue it; "" if it is not."""
    if state.validation_due:
        return ""
    if state.step >= config.max_updates:
        updates = logs.counted(config.max_updates, "update")
        return f"is finished after {updates}; to train longer, add --set training.max_updates={2 * config.max_updates}"
    if config.patience and state.worse_validations >= config.patience:
        worse = logs.counted(state.worse_validations, "validation")
        return f"is finished at update {state.step:,}, after {worse} without a better one; raise training.patience"
    return ""


def changed_settings(old: Recipe, new: Recipe) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, by dotted name: (old, new)."""
    after = all_settings(new)
    return {key: (value, after[key]) for key, value in all_settings(old).items() if value != after[key]}


def all_settings(recipe: Recipe) -> dict[str, Any]:
    """Every value of a recipe by dotted name, such as "training.seed"."""
    return {f"{section}.{name}": v for section, part in vars(recipe).items() for name, v in vars(part).items()}


def identify(run: Path, recipe: Recipe, data: PreparedData) -> tuple[str, Recipe, list[str]]:
    """The id of a run, the recipe that it continues with, and the settings that changed: see continued_recipe().

    Raises DataError if the folder holds something else or a run on other data, CheckpointError for another recipe.
    """
    if newest_resumable(run) is None:
        is_other = run.exists() and not _is_run(run)
        if is_other and (not run.is_dir() or any(not path.name.startswith(UNFINISHED) for path in run.iterdir())):
            raise DataError(f"{run} exists and is not a run", "give another --out")
        return uuid.uuid4().hex, recipe, []
    manifest = read_json(run / "manifest.json", "a run")
    if manifest.get("data_sha256") != data.sha256:
        problem = f"{run} was trained on {manifest.get('data')}, whose content differs from {data.folder}"
        raise DataError(problem, "give --data as when it was started, another --out, or --fresh")
    return str(manifest.get("run_id")), *continued_recipe(load_recipe(str(run / "recipe.yaml")), recipe, run)


def continued_recipe(old: Recipe, new: Recipe, run: Path) -> tuple[Recipe, list[str]]:
    """The new recipe, if the run can continue with it, and its changes, such as "training.patience 0 -> 3"."""
    changes = changed_settings(old, new)
    refused = [f"{key} {before} -> {after}" for key, (before, after) in changes.items() if key in _FIXED]
    if refused:
        hint = "keep the old value, or start a new run with another --out or --fresh"
        raise CheckpointError(f"{run} cannot continue with {'; '.join(refused)}", hint)
    # What prepare did is in the data already, whose hash is checked.
    applied = [f"{key} {a} -> {b}" for key, (a, b) in changes.items() if not key.startswith("data.")]
    return replace(new, data=old.data), applied


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Create a run's folder if needed and lock it for this process; a new folder that stays empty is removed."""
    if run.exists() and not run.is_dir():
        yield  # for the message of identify()
        return
    is_new = not run.exists()
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{run} cannot be created: {error.strerror}", "give another --out") from error
    folder = os.open(run, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"{run} is being trained by another process"
            raise DataError(problem, "wait until it ends, or give another --out") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(folder)
        if is_new:
            with suppress(OSError):  # it is not empty
                run.rmdir()


def set_aside(run: Path) -> None:
    """Rename an existing run, so that a fresh one overwrites nothing."""
    if not _is_run(run):
        return
    places = (run.with_name(f"{run.name}.{number}") for number in count(1))
    run.rename(aside := next(place for place in places if not place.exists()))
    logs.notice(f"--fresh: the earlier run is now in {aside}")


def write_run(run: Path, run_id: str, data: PreparedData, recipe: Recipe, parameters: int) -> None:
    run.mkdir(parents=True, exist_ok=True)
    manifest = {
        "format": 1, "aiayn": __version__, "run_id": run_id, "data": str(data.folder), "data_sha256": data.sha256,
        "vocab_sha256": data.vocab_sha256, "parameters": parameters,
    }  # fmt: skip
    write_whole(run / "manifest.json", json.dumps(manifest, indent=2) + "\n")  # first, since it marks a run
    write_whole(run / "recipe.yaml", recipe_to_yaml(recipe))


def _is_run(path: Path) -> bool:
    """Whether a folder is a run; prepared data has a manifest.json too."""
    with suppress(OSError, ValueError, TypeError):
        if "run_id" in json.loads((path / "manifest.json").read_bytes()):
            return True
    return newest_resumable(path) is not None
