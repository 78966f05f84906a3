"""A run's folder: what marks it, what it was started on, and how it stays whole through crashes.

run/
  manifest.json    id of the run, and hashes of the data it is trained on
  recipe.yaml      every setting it was last trained with
  metrics.jsonl    what was measured on the way; see checkpoint/metrics_log.py
  report.html      all of it to look at; see report.py
  tensorboard/     where --tensorboard asked for it
  checkpoints/     see checkpoint/run_checkpoints.py
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aiayn_cli import __version__, logs
from aiayn_cli.checkpoint.run_checkpoints import (
    checkpoint_path,
    mark_best,
    newest_resumable,
    prune_checkpoints,
    remove_leftovers,
)
from aiayn_cli.checkpoint.tensor_files import read_json
from aiayn_cli.config import Recipe
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.errors import DataError
from aiayn_cli.files import UNFINISHED, write_whole
from aiayn_cli.recipe import recipe_to_yaml


@contextmanager
def held(run: Path) -> Iterator[None]:
    """Hold a run's folder, so that no second process trains the same run meanwhile; make it if it is not there.

    What holds it goes with the process, even after kill -9. A new folder that nothing was put into goes again.
    """
    if run.exists() and not run.is_dir():
        yield  # for the message of check_is_free
        return
    is_new = not run.exists()
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{run} cannot be made: {error.strerror}", "give another --out") from error
    folder = os.open(run, os.O_RDONLY)
    try:
        _lock(folder, run)
        yield
    finally:
        os.close(folder)
        if is_new:
            with suppress(OSError):  # it is not empty
                run.rmdir()


def check_is_free(run: Path) -> None:
    """Refuse to train into a folder that holds something else."""
    if not run.exists() or _is_run(run):
        return
    if not run.is_dir() or any(not _is_leftover(path) for path in run.iterdir()):
        raise DataError(f"{run} exists and is not a run", "give another --out")


def check_is_of(data: PreparedData, run: Path) -> str:
    """Check that an existing run was started on this data; return the run's id."""
    manifest = read_json(run / "manifest.json", "a run")
    if manifest.get("data_sha256") != data.sha256:
        raise DataError(
            f"{run} was trained on other data ({manifest.get('data')}) than {data.folder}",
            "give the data it was started with, or another --out, or --fresh",
        )
    return str(manifest.get("run_id"))


def set_aside(run: Path) -> None:
    """Give an existing run another name, so that a fresh one loses nothing."""
    if not _is_run(run):
        return
    number = 1
    while (aside := run.with_name(f"{run.name}.{number}")).exists():
        number += 1
    run.rename(aside)
    logs.notice(f"the run that was in {run} is now {aside}")


def write_run(run: Path, run_id: str, data: PreparedData, recipe: Recipe, parameters: int) -> None:
    run.mkdir(parents=True, exist_ok=True)
    manifest = {
        "format": 1,
        "aiayn": __version__,
        "run_id": run_id,
        "data": str(data.folder),
        "data_sha256": data.sha256,
        "vocab_sha256": data.vocab_sha256,
        "parameters": parameters,
    }
    write_whole(run / "manifest.json", json.dumps(manifest, indent=2) + "\n")  # first, since it marks a run
    write_whole(run / "recipe.yaml", recipe_to_yaml(recipe))


def finish_saving(run: Path, best_step: int | None, keep: int) -> None:
    """Do what a crash may have kept the writer of the last checkpoint from; best_step as that checkpoint has it."""
    remove_leftovers(run)
    if best_step is not None and (best := checkpoint_path(run, best_step)).exists():
        mark_best(run, best)
    prune_checkpoints(run, keep)


def _lock(folder: int, run: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(f"{run} is being trained by another process", "wait for it, or give another --out") from None
    except OSError:
        pass  # a file system without locks


def _is_run(path: Path) -> bool:
    """Whether a folder is a run; prepared data has a manifest.json too."""
    manifest = _manifest(path / "manifest.json")
    return (manifest is not None and "run_id" in manifest) or newest_resumable(path) is not None


def _is_leftover(path: Path) -> bool:
    """Whether a file is what a start that was cut short may have left: half a manifest."""
    return path.name.startswith(UNFINISHED) or (path.name == "manifest.json" and _manifest(path) is None)


def _manifest(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        content = json.loads(path.read_bytes())
        return content if isinstance(content, dict) else {}
    return None
