"""`aiayn train`: recipe + prepared data -> a run folder with checkpoints, or the exact continuation of one."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from aiayn_cli import logs
from aiayn_cli.data.prepared import PreparedData, find_prepared
from aiayn_cli.device import choose_device
from aiayn_cli.recipe import load_recipe, recipe_to_yaml, run_name
from aiayn_cli.train.distributed import Worker
from aiayn_cli.train.dry_run import DryRunResult, try_out
from aiayn_cli.train.result import TrainResult
from aiayn_cli.train.run_folder import held, set_aside
from aiayn_cli.train.session import Session
from aiayn_cli.train.tensorboard import load_tensorboard


def run_train(
    recipe_name: str,
    overrides: Sequence[str] = (),
    *,
    data: Path | None = None,
    out: Path | None = None,
    resume: bool = True,
    device_name: str = "auto",
    tensorboard: bool = False,
    dry_run: bool = False,
) -> TrainResult | DryRunResult:
    """Train a model, or go on with an existing run exactly where it stopped.

    Args:
        recipe_name: a bundled recipe's name or a file.
        overrides: "section.field=value".
        data: prepared data; None = prepared/CORPUS of the recipe.
        out: run folder; None = runs/RECIPE.
        resume: go on with an existing run; False sets it aside and starts again.
        device_name: "auto", "cpu", "cuda" or "cuda:N".
        dry_run: only find out what it will take, and leave no trace.
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
        device = choose_device(device_name, recipe.training.precision, worker.local_rank)
        logs.notice(device.explanation)
        worker.check_same({"data": prepared.sha256, "recipe": recipe_to_yaml(recipe)})
        if dry_run:
            there = run if resume else run.with_name(f".{run.name}.fresh")  # where nothing is
            return try_out(Session(there, recipe, prepared, device, worker, tensorboard=False))
        if not resume and worker.rank == 0 and worker.attempt == 0:  # what a restart finds is the fresh one
            with held(run):
                set_aside(run)
        worker.wait()  # all look at the run that is there from now on
        with held(run) if worker.rank == 0 else nullcontext():
            return Session(run, recipe, prepared, device, worker, tensorboard).train()
