"""The command `aiayn train`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from aiayn_cli import logs
from aiayn_cli.command_line import AsJson, HelpCommand, Quiet, Verbose, loading, print_result, start_logs
from aiayn_cli.config import Compile, Precision
from aiayn_cli.data.recipe_choice import AUTO
from aiayn_cli.errors import UsageError


class TrainCommand(HelpCommand):
    groups: ClassVar = {
        "What to train": "--recipe --data --out --set --seed",
        "Stop and resume": "--resume --max-restarts --verify-resume",
        "Before a long run": "--dry-run --hours",
        "Performance": "--device --gpus --precision --compile",
        "Watching": "--report --tensorboard",
    }
    examples = """
        aiayn train
        aiayn train --recipe base --dry-run
        aiayn train --recipe big --gpus 8 --set training.max_updates=100000
    """


def train(
    recipe: Annotated[
        str,
        typer.Option(
            help="Recipe: auto (by the amount of data and the device), tiny, mini, small, base, big, or another name "
            "or file.",
            metavar="NAME|FILE",
        ),
    ] = AUTO,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of prepared data. Default: that of the recipe's corpus, or the only one there is."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: runs/RECIPE, or runs/DATA with --recipe auto.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting, such as training.max_updates=1000; repeatable.", metavar="KEY=VALUE"
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Continue an existing run exactly, or set it aside and start anew.")
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Seed of weights, order and dropout.", min=0)] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="Number format. Default: auto, bf16 where the device is fast at it.")
    ] = None,
    compile_layers: Annotated[
        Compile | None,
        typer.Option("--compile", help="Compile layers with torch.compile; auto = on a GPU; graphs = as CUDA graphs."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure memory, disk, speed and hours with a few updates, then stop.")
    ] = False,
    hours: Annotated[
        float | None,
        typer.Option(help="Fit a new run's schedule to this time, after measuring the speed.", min=0.001, max=100_000),
    ] = None,
    verify_resume: Annotated[
        bool, typer.Option("--verify-resume", help="Prove with two short runs that a killed run resumes exactly.")
    ] = False,
    gpus: Annotated[
        int | None, typer.Option(help="GPUs of this machine to train on; with --device cpu, processes.", min=1)
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(help="With --gpus: restarts of all from the last checkpoint when one fails.", min=0)
    ] = 0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write what TensorBoard draws, into RUN/tensorboard.")
    ] = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Train nothing: write a run's report, or a page that compares several."),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on prepared data. The same command resumes a run that stopped."""
    start_logs(quiet, verbose)
    if report:
        with loading():
            from aiayn_cli.train.report import run_report

        print_result({"html": run_report(report, out)}, as_json)
        return
    with loading():  # here, because it imports torch
        from aiayn_cli.train.options import TrainOptions, settle
        from aiayn_cli.train.session import run_train

    if hours is not None and (dry_run or verify_resume):
        raise UsageError("--hours is for training, and nothing is trained here", "remove one of the two options")
    if dry_run and verify_resume:
        raise UsageError("--dry-run and --verify-resume contradict each other", "give only one")
    named = {"seed": seed, "precision": precision, "compile": compile_layers}
    overrides = [*(settings or ()), *(f"training.{key}={value}" for key, value in named.items() if value is not None)]
    options = TrainOptions(
        recipe=recipe,
        overrides=overrides,
        data=data,
        out=out,
        resume=resume,
        device=device,
        tensorboard=tensorboard,
        dry_run=dry_run,
        hours=hours,
    )
    options = settle(options)
    same: dict[str, object] = {
        "--recipe": options.recipe,
        "--data": options.data,
        "--device": device,
        "--set": overrides,
    }
    same |= {"--dry-run": dry_run, "--tensorboard": tensorboard, "--verbose": verbose}
    result: object
    if verify_resume:  # its runs are new ones in the folder of the run, --fresh or not
        with loading():
            from aiayn_cli.train.preflight import run_verify_resume

        result = run_verify_resume(_as_arguments({**same, "--gpus": gpus}), options.run)
    elif gpus is not None:
        with loading():
            from aiayn_cli.train.launch import launch

        options.load()  # what would fail in every process fails once, here
        same |= {"--hours": hours, "--out": options.out, "--fresh": not resume, "--quiet": quiet, "--json": as_json}
        launch(["train", *_as_arguments(same)], gpus, max_restarts, device)
        return
    else:
        result = run_train(options)
    if logs.is_first():
        print_result(result, as_json)
        if not (dry_run or verify_resume):
            logs.notice(f"report: {options.run / 'report.html'}")
            logs.next_step("aiayn average", options.run)
        else:
            logs.next_step(
                " ".join(("aiayn train", *_as_arguments({"--recipe": recipe, "--data": data, "--out": out})))
            )


def _as_arguments(options: Mapping[str, object]) -> list[str]:
    """The command line with these options: True is a flag, a list repeats its option, None and False are left out."""
    words = []
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [word for each in (value if isinstance(value, list) else [value]) for word in (name, str(each))]
    return words
