"""The checkpoints of a run: their names and order, which is the best, which are kept, and which one a path means.

RUN/checkpoints/
  step-00010000/         a regular checkpoint; what `aiayn average` takes
  interrupted-00012345/  where a run was stopped, until there is a later checkpoint
  best -> step-00010000
"""

import shutil
from itertools import count
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.checkpoint.checkpoint import load_checkpoint
from aiayn_cli.errors import CheckpointError, nearest_path
from aiayn_cli.files import UNFINISHED, remove


def list_checkpoints(run: Path) -> list[Path]:
    """Regular, finished checkpoints of a run, without links, in the order of their steps."""
    return _numbered(run, "step-")


def checkpoint_path(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:08d}"


def interrupted_path(run: Path, step: int) -> Path:
    """Where a run that is stopped between two regular checkpoints is saved; never part of an average."""
    return run / "checkpoints" / f"interrupted-{step:08d}"


def newest_resumable(run: Path) -> Path | None:
    """The checkpoint of the latest update that training can resume from, if any."""
    return next(reversed(resumable(run)), None)


def resumable(run: Path) -> list[Path]:
    """All checkpoints that training can resume from, by update; of one update the regular one comes last."""
    return sorted([*_numbered(run, "interrupted-"), *list_checkpoints(run)], key=update_of)


def update_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def set_aside_damaged(path: Path) -> Path:
    """Rename a checkpoint that cannot be read, so that nothing finds it; returns its new path."""
    places = (path.with_name(f"damaged-{path.name}{f'.{number}' if number > 1 else ''}") for number in count(1))
    return path.rename(next(place for place in places if not place.exists()))


def remove_leftovers(run: Path) -> None:
    """Remove what a crash left half written."""
    for path in (run / "checkpoints").glob(f"{UNFINISHED}*"):
        remove(path)


def mark_best(run: Path, path: Path) -> None:
    link, temporary = run / "checkpoints" / "best", run / "checkpoints" / f"{UNFINISHED}best"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(path.name)
    if link.is_dir() and not link.is_symlink():  # a copy of the run that followed its links
        link.rename(doomed := link.with_name(f"{UNFINISHED}old-best"))
        remove(doomed)
    temporary.replace(link)


def prune_checkpoints(run: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` checkpoints, the best, and an interrupted one if newest; return them."""
    link = run / "checkpoints" / "best"
    best = link.readlink().name if link.is_symlink() else ""
    regular, newest = list_checkpoints(run), newest_resumable(run)
    removed = [path for path in regular[:-keep] if path.name != best]
    removed += [path for path in _numbered(run, "interrupted-") if path != newest]
    for path in removed:
        # Renamed first, so that a crash midway leaves no partial checkpoint under a complete one's name.
        doomed = path.with_name(f"{UNFINISHED}{path.name}")
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)
    return removed


def newest_run() -> Path:
    """The run in the working folder's runs/ with the newest regular checkpoint; without any, with the newest place.

    A run that began later, but crashed or was stopped before its first checkpoint, is mentioned.
    """
    runs = sorted(Path("runs").glob("*"))
    regular = {run: paths[-1] for run in runs if (paths := list_checkpoints(run))}
    newest = regular or {run: path for run in runs if (path := newest_resumable(run)) is not None}
    if not newest:
        raise CheckpointError("no trained model in runs/", "train one with `aiayn train`, or name a model's folder")
    chosen = max(newest, key=lambda run: newest[run].stat().st_mtime_ns)
    for run in (run for run in runs if run not in newest and (run / "manifest.json").is_file()):
        if (run / "manifest.json").stat().st_mtime_ns > newest[chosen].stat().st_mtime_ns:
            logs.notice(f"{run} is newer, but has no checkpoint yet: taking {chosen}")
    return chosen


def no_such_run(path: Path) -> CheckpointError:
    """The error for a run or checkpoint that does not exist, with the nearest one: runs/tiny for tiny."""
    folders = (each for each in (*path.parent.glob("*"), *Path("runs").glob("*")) if each.is_dir())
    hint = nearest_path(path, folders) or "name a run such as runs/tiny, or a checkpoint in it"
    return CheckpointError(f"{path} does not exist", hint)


def find_model(path: Path | None = None) -> Path:
    """The checkpoint directory that a user means.

    Args:
        path: a checkpoint, or a run (its averaged model if there is one, else its best checkpoint, else its newest);
            None means the newest run of the working folder.
    """
    run = newest_run() if path is None else path
    averaged, regular = run / "averaged", list_checkpoints(run)
    interrupted = _numbered(run, "interrupted-")[-1:]  # for a run that was stopped before its first checkpoint
    candidates = (run, averaged, run / "checkpoints" / "best", *reversed(regular), *interrupted)
    model = next((each for each in candidates if (each / "model.json").is_file()), None)
    if model is None:
        hint = "name a checkpoint such as runs/tiny/averaged, or a run with checkpoints"
        raise CheckpointError(f"{run} holds no model", hint) if run.exists() else no_such_run(run)
    if model in interrupted:
        logs.notice(f"{run} was stopped before its first checkpoint: taking {model.name}")
    if model == averaged and regular:
        step, newest = load_checkpoint(averaged).step, load_checkpoint(regular[-1]).step
        if newest > step:
            problem = f"{averaged} is out of date (update {step:,}; the run is at {newest:,})"
            logs.warning(f"{problem}: run `aiayn average {run}`")
    return model


def _numbered(run: Path, prefix: str) -> list[Path]:
    """Folders with this prefix before the number of an update, in its order."""
    found = [path for path in (run / "checkpoints").glob(f"{prefix}*") if path.is_dir() and not path.is_symlink()]
    return sorted((path for path in found if path.name.removeprefix(prefix).isdecimal()), key=update_of)
